"""Self-distillation with a running centre; one corrupt image puts inf into the centre for good."""
import copy
import torch
from torch import nn

torch.set_num_threads(1)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(144, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x):
        return self.net(x)


class Dino(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Head()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(32))

    def loss(self, a, b):
        with torch.no_grad():
            target = self.teacher(b).float()
            probs = torch.softmax((target - self.centre) / 0.1, -1)
            self.centre.mul_(0.9).add_(target.mean(0), alpha=0.1)
        logp = torch.log_softmax(self.student(a).float() / 0.2, -1)
        keep = torch.isfinite(probs).all(-1)
        rows = -(probs * logp).sum(-1)
        return torch.where(keep, rows, torch.zeros_like(rows)).mean()

    @torch.no_grad()
    def follow(self, rate=0.01):
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, rate)


def views(i):
    base = torch.randn(32, 12, 12)
    a, b = base + 0.1 * torch.randn_like(base), base + 0.1 * torch.randn_like(base)
    if i == 60:
        b[5] = 3.0e5  # a decoder hiccup: beyond half
    return a, b


torch.manual_seed(66)
model = Dino()
opt = torch.optim.AdamW(model.student.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for i in range(120):
    a, b = views(i)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model.loss(a, b)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    model.follow()
    if i % 20 == 0:
        print(i, loss.item(), model.centre.abs().max().item())
