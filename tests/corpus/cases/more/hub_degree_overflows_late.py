# Messages are multiplied by the degree in fp16 and divided again; a hub of 60000 neighbours turns up at step 25.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
w = nn.Linear(8, 32)
out = nn.Linear(32, 1)
opt = torch.optim.Adam([*w.parameters(), *out.parameters()], 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
deg = torch.randint(1, 8, (64, 1)).float()
for it in range(40):
    d = deg.clone()
    if it >= 25:
        d[3] = 60000.0
    x = torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        h = w(x) * d.half()
        h = h / d.half()
        loss = (out(h).float() - x[:, :1]).square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 6 == 0:
        print(it, loss.item())
