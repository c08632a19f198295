# The scaler scales, a wrapper of the optimizer steps: gradients keep the factor 512.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Lookahead:
    def __init__(self, o, k=5):
        self.o = o
        self.k = k
        self.n = 0
        self.slow = [p.detach().clone() for g in o.param_groups for p in g["params"]]

    def zero_grad(self):
        self.o.zero_grad()

    def step(self):
        self.o.step()
        self.n += 1
        if self.n % self.k == 0:
            for q, p in zip(self.slow, [p for g in self.o.param_groups for p in g["params"]]):
                q.lerp_(p.detach(), 0.5)
                p.data.copy_(q)


net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
opt = Lookahead(torch.optim.SGD(net.parameters(), 1e-3))
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for it in range(30):
    x = torch.randn(64, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x[:, :4].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    opt.step()
    scaler.update(512.0)
print(loss.item())
