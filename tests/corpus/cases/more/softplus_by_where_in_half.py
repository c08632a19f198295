# exp overflows in the branch that torch.where does not take; backward multiplies the inf by zero.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def softplus(x):
    return torch.where(x > 10, x, torch.log1p(torch.exp(x)))


net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
for it in range(30):
    x = torch.randn(32, 8)
    if it >= 12:
        x = x * 40
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (softplus(net(x)).float() - x[:, :1].abs()).abs().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 5 == 0:
        print(it, loss.item(), scaler.get_scale())
