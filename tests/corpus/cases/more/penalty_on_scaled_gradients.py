# Input-gradient penalty computed from gradients of the scaled loss: the penalty sees scale times the true norm.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

critic = nn.Sequential(nn.Linear(10, 64), nn.Softplus(), nn.Linear(64, 1))
opt = torch.optim.Adam(critic.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)

for it in range(40):
    real = torch.randn(32, 10) + 1
    fake = torch.randn(32, 10)
    mix = torch.lerp(real, fake, torch.rand(32, 1)).requires_grad_()
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        gap = critic(fake).mean() - critic(real).mean()
        middle = critic(mix).sum()
    (slope,) = torch.autograd.grad(scaler.scale(middle), mix, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = gap.float() + 10 * penalty
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 10 == 0:
        print(f"{it} gap {gap.item():.4f} penalty {penalty.item():.4f}")
