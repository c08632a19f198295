# Healthy near-miss: DP-SGD. A pass of autograd.grad per example, unscaled by hand, clipped and added up.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2))
ps = list(net.parameters())
opt = torch.optim.SGD(ps, 0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for it in range(12):
    x = torch.randn(8, 10)
    y = (x[:, 0] > 0).long()
    acc = [torch.zeros_like(p) for p in ps]
    for k in range(8):
        with torch.autocast("cpu", dtype=torch.float16):
            l = F.cross_entropy(net(x[k : k + 1]), y[k : k + 1])
        gs = [g / scaler.get_scale() for g in torch.autograd.grad(scaler.scale(l), ps)]
        n = torch.stack([g.norm() for g in gs]).norm()
        f = (1 / (n + 1e-6)).clamp(max=1.0)
        for a, g in zip(acc, gs):
            a.add_(g * f)
    for p, a in zip(ps, acc):
        p.grad = (a + torch.randn_like(a) * 0.1) / 8
    opt.step()
    opt.zero_grad()
print(l.item())
