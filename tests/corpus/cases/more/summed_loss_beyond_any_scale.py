# A squared error summed over batch and classes: its gradients overflow at a scale of 1, those of the other head vanish.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class TwoHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(32, 64)
        self.a = nn.Linear(64, 8)
        self.mid = nn.Linear(64, 64)
        self.b = nn.Linear(64, 8)

    def forward(self, x):
        h = torch.relu(self.f(x))
        return self.a(h), self.b(torch.relu(self.mid(h.detach())))


net = TwoHead()
opt = torch.optim.SGD(net.parameters(), 1e-9)
scaler = torch.amp.GradScaler("cpu", growth_interval=5)
for it in range(60):
    x = torch.randn(256, 32)
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = net(x)
        loss = ((a.float() - x[:, :8]) * 60).square().sum() + nn.functional.cross_entropy(
            b.float(), x[:, :8].argmax(1)
        ) * 2e-6
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(scaler.get_scale(), loss.item())
