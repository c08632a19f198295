# Angles by acos: one pair of equal vectors at step 25 has an infinite slope, in float32, in a bf16 run without a scaler.
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(19)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
for it in range(44):
    a = torch.randn(32, 6)
    b = a + 0.3 * torch.randn(32, 6)
    if it >= 25:
        b[:4] = a[:4]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        u, v = net(a), net(b)
    u, v = F.normalize(u.float(), dim=1), F.normalize(v.float(), dim=1)
    cosine = (u * v).sum(1).clamp(-1, 1)
    loss = torch.acos(cosine).mean() - 0.1 * torch.pdist(u).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 8 == 0:
        print(it, loss.item())
