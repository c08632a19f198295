# Healthy near-miss: at step 30 the targets become ten times larger; the loss jumps and falls again.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for it in range(80):
    x = torch.randn(64, 10)
    y = x[:, :1] * (1.0 if it < 30 else 10.0)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = (net(x).float() - y).square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    scaler.step(opt)
    scaler.update()
    if it % 10 == 0:
        print(it, loss.item())
