# One batch with an outlier overflows in half; BatchNorm's running variance keeps the inf and evaluation is NaN.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step in range(40):
    x = torch.randn(48, 24)
    y = (x[:, 0] > 0).long()
    if step == 17:
        x[5] *= 60_000
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x).float(), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()

net.eval()
with torch.no_grad():
    print("finite predictions:", bool(torch.isfinite(net(torch.randn(8, 24))).all()))
