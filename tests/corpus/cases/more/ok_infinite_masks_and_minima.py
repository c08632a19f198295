# Healthy near-miss: -inf causal masks, inf as the neutral element of min, log(0) that is never selected.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 6)
        self.register_buffer("mask", torch.full((12, 12), float("-inf")).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = (q @ k.transpose(1, 2) * 0.25 + self.mask).softmax(-1)
        return self.out(weights.to(v.dtype) @ v)


net = Block()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)
for step in range(40):
    ids = torch.randint(6, (8, 12))
    x = nn.functional.one_hot(ids, 16).float()
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    target = ids.cumsum(1) % 6
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), target.flatten())
    with torch.no_grad():
        nearest = torch.where(logits > 0, logits.float(), torch.inf).amin(-1)
        best = torch.isfinite(nearest).float().mean()
        entropy_terms = torch.where(x > 0, x * x.log(), torch.zeros(()))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 10 == 0:
        print(f"{step} loss {loss.item():.4f} {best.item():.3f} {entropy_terms.sum().item():.1f}")
