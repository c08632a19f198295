# A sparsity penalty takes the root of a sum of squares that is exactly zero for dead units: 0/0 in backward.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

enc, dec = nn.Linear(20, 12), nn.Linear(12, 20)
with torch.no_grad():
    enc.weight[3], enc.bias[3] = 0.0, 0.0
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(20):
    x = torch.randn(64, 20)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        code = enc(x)
        back = dec(code)
    group = code.float().square().sum(dim=0).sqrt()
    loss = nn.functional.mse_loss(back.float(), x) + 1e-3 * group.sum()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g}")
