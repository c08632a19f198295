# Healthy near-miss: NaN in inputs and targets, replaced or left out before anything is computed with them.
import torch
from torch import nn

torch.manual_seed(10)
torch.set_num_threads(1)


class Impute(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 3))

    def forward(self, x):
        miss = torch.isnan(x)
        return self.f(torch.cat([torch.nan_to_num(x, 0.0), miss.float()], 1))


net = Impute()
opt = torch.optim.Adagrad(net.parameters(), 0.05)
for it in range(40):
    full = torch.randn(64, 10)
    y = torch.stack([full[:, :3].sum(1), full[:, 3:6].prod(1), full[:, 6]], 1)
    x = full.clone()
    x[torch.rand_like(x) < 0.1] = float("nan")
    y[torch.rand_like(y) < 0.2] = float("nan")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        p = net(x)
    ok = ~torch.isnan(y)
    loss = ((p.float()[ok] - y[ok]) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print(it, loss.item())
