# Healthy near-miss: bf16 weights with a compensation buffer. Single updates round away, their sum does not.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class KahanSGD(torch.optim.Optimizer):
    def __init__(self, ps, lr):
        super().__init__(ps, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                st = self.state[p]
                if not st:
                    st["c"] = torch.zeros_like(p)
                c = st["c"]
                c.add_(p.grad, alpha=-g["lr"])
                old = p.clone()
                p.add_(c)
                c.add_(old - p)


net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 4)).bfloat16()
opt = KahanSGD(net.parameters(), 2e-2)
for it in range(60):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(net(x.bfloat16()).float(), x[:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
