# Healthy near-miss: two optimizers and one scaler; two steps, one update; the critic trains twice as often.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

make = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_make = torch.optim.Adam(make.parameters(), lr=1e-3, betas=(0.5, 0.99))
opt_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.99))
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
bce = nn.functional.binary_cross_entropy_with_logits

for it in range(60):
    real = torch.randn(64, 2) * 0.3 + torch.tensor([1.0, -1.0])
    with torch.autocast("cpu", dtype=torch.float16):
        fake = make(torch.randn(64, 8))
        on_real, on_fake = judge(real).float(), judge(fake.detach()).float()
    opt_judge.zero_grad()
    judge_loss = bce(on_real, torch.ones_like(on_real)) + bce(on_fake, torch.zeros_like(on_fake))
    scaler.scale(judge_loss).backward()
    scaler.step(opt_judge)
    if it % 2 == 0:
        opt_make.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            fooled = judge(fake).float()
        make_loss = bce(fooled, torch.ones_like(fooled))
        scaler.scale(make_loss).backward()
        scaler.step(opt_make)
    scaler.update()
    if it % 20 == 0:
        print(f"{it} judge {judge_loss.item():.4f} maker {make_loss.item():.4f}")
