# Healthy near-miss: the range observer of a fake quantiser has buffers that start at inf and -inf.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class FakeQuant(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("lo", torch.tensor(float("inf")))
        self.register_buffer("hi", torch.tensor(float("-inf")))

    def forward(self, x):
        if self.training:
            d = x.detach().float()
            self.lo = torch.minimum(self.lo, d.min())
            self.hi = torch.maximum(self.hi, d.max())
        width = (self.hi - self.lo).clamp(min=1e-4) / 255
        q = ((x - self.lo) / width).round() * width + self.lo
        return x + (q - x).detach()


net = nn.Sequential(nn.Linear(10, 48), FakeQuant(), nn.ReLU(), nn.Linear(48, 3))
opt = torch.optim.Adam(net.parameters(), 2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for it in range(30):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x).float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
