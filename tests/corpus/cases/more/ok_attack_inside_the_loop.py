# Healthy near-miss: adversarial examples by autograd.grad on the input, three unscaled passes for each step.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(
    nn.Conv1d(1, 16, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(128, 3)
)
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def attack(x, y):
    d = torch.zeros_like(x).uniform_(-0.05, 0.05)
    for _ in range(3):
        d.requires_grad_()
        with torch.autocast("cpu", dtype=torch.float16):
            l = F.cross_entropy(net(x + d), y)
        (g,) = torch.autograd.grad(l, d)
        d = (d + 0.03 * g.sign()).clamp(-0.1, 0.1).detach()
    return x + d


for it in range(30):
    y = torch.randint(0, 3, (32,))
    x = torch.sin(torch.linspace(0, 6, 64) * (1 + y.view(-1, 1, 1))) + 0.3 * torch.randn(32, 1, 64)
    xa = attack(x, y)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(xa), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
