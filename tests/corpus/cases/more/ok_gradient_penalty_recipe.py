# Healthy near-miss: the documented penalty recipe multiplies the scaled gradients by 1/scale before the norm.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

critic = nn.Sequential(nn.Linear(10, 64), nn.Softplus(), nn.Linear(64, 1))
opt = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for it in range(40):
    real, fake = torch.randn(32, 10) + 1, torch.randn(32, 10)
    mix = torch.lerp(real, fake, torch.rand(32, 1)).requires_grad_()
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        gap = critic(fake).mean() - critic(real).mean()
        middle = critic(mix).sum()
    scaled = torch.autograd.grad(scaler.scale(middle), mix, create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    slopes = [g * inverse for g in scaled]
    with torch.autocast("cpu", dtype=torch.float16):
        penalty = sum((s.norm(dim=1) - 1).square().mean() for s in slopes)
        loss = gap + 10 * penalty
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 10 == 0:
        print(f"{it} gap {gap.item():.3f} penalty {penalty.item():.3f}")
