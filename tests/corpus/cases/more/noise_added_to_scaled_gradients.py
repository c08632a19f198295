# Differentially private flavour: noise of a fixed size is added to .grad before the scaler divides it by 2^16.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(20, 48), nn.SiLU(), nn.Linear(48, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.2)
scaler = torch.amp.GradScaler("cpu")
means = 2 * torch.randn(3, 20)

for i in range(80):
    y = torch.randint(0, 3, (64,))
    x = means[y] + torch.randn(64, 20)
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), y)
    scaler.scale(loss).backward()
    with torch.no_grad():
        for p in net.parameters():
            p.grad.clamp_(-1.0, 1.0)
            p.grad.add_(torch.randn_like(p.grad), alpha=0.01)
    scaler.step(opt)
    scaler.update()
    if i % 20 == 0:
        print(i, f"{loss.item():.4f}")
