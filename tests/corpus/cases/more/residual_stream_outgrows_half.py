# Forty residual branches with a gain above one: the half-precision residual addition leaves the range, no matmul does.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Deep(nn.Module):
    def __init__(self, width=24, depth=40):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.gain = 2000.0
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        h = self.inp(x).half()
        for norm in self.norms:
            h = h + norm(h).abs().half() * self.gain
        return self.out(h)


net = Deep()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(20):
    x = torch.randn(16, 8)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(f"step {step} loss {loss.item():.4f}")
