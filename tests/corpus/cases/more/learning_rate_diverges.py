# A learning rate of 4 on a deep linear network: loss and weights grow geometrically until half gives up first.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=1.2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
w = torch.randn(8, 1)

for step in range(40):
    x = torch.randn(64, 8)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), x @ w)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(f"step {step} loss {loss.item():.4g}")
