# A hand-written RMS norm in half: the mean of squares overflows to inf, rsqrt(inf) is 0 and the block goes silent.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.gain


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(16, 64)
        self.norm = RMSNorm(64)
        self.out = nn.Linear(64, 3)
        nn.init.normal_(self.embed.weight, std=120.0)

    def forward(self, x):
        return self.out(self.norm(self.embed(x)))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(30):
    x = torch.randn(32, 16)
    y = x[:, :3].argmax(1)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 6 == 0:
        print(f"step {step} loss {loss.item():.6f}")
