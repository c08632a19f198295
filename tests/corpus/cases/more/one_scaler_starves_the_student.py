# One scaler for two losses: the large one sets the scale, the small one's gradients vanish at it.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
big = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
small = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
opt_big = torch.optim.SGD(big.parameters(), 1e-9)
opt_small = torch.optim.SGD(small.parameters(), 50.0)
scaler = torch.amp.GradScaler("cpu", growth_interval=4)
for it in range(60):
    x = torch.randn(256, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        lb = (big(x).float() * 30 - x.sum(1, keepdim=True) * 60).square().mean()
        ls = nn.functional.cross_entropy(small(x).float(), x[:, :4].argmax(1)) * 2e-5
    opt_big.zero_grad()
    opt_small.zero_grad()
    scaler.scale(lb).backward()
    scaler.scale(ls).backward()
    scaler.step(opt_big)
    scaler.step(opt_small)
    scaler.update()
    if it % 15 == 0:
        print(lb.item(), ls.item(), scaler.get_scale())
