# A physics term is weighted by 3e6 after a half-precision layer: its gradient leaves the range at any scale above 1/64.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for step in range(40):
    xy = torch.rand(128, 2)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        u = net(xy)
    residual = u.float() - (xy[:, :1] * 3).sin()
    loss = residual.square().mean() + 3e6 * residual.sum().square()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 5 == 0:
        print(f"{step} loss {loss.item():.3e} scale {scaler.get_scale():g}")
