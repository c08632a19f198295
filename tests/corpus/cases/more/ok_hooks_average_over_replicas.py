# Hooks divide the scaled gradients by the number of replicas while backward runs: that commutes with the scale.
import torch
from torch import nn

torch.manual_seed(22)
torch.set_num_threads(1)


def average(p):
    p.grad.div_(4)


net = nn.Sequential(nn.Linear(10, 40), nn.SELU(), nn.Linear(40, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for p in net.parameters():
    p.register_post_accumulate_grad_hook(average)
for it in range(40):
    x = torch.randn(64, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
