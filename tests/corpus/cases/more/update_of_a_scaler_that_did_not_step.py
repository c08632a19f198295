# The actor steps in every third iteration, its scaler is updated in each.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
actor = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
oa = torch.optim.Adam(actor.parameters(), 1e-3)
oc = torch.optim.Adam(critic.parameters(), 1e-3)
sa = torch.amp.GradScaler("cpu", init_scale=256.0)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for it in range(30):
    s = torch.randn(32, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        q = critic(torch.cat([s, torch.randn(32, 2)], 1)).float()
        lc = (q - s.sum(1, keepdim=True)).square().mean()
    oc.zero_grad()
    scaler.scale(lc).backward()
    scaler.step(oc)
    if it % 3 == 0:
        with torch.autocast("cpu", dtype=torch.float16):
            la = -critic(torch.cat([s, actor(s).tanh()], 1)).float().mean()
        oa.zero_grad()
        sa.scale(la).backward()
        sa.step(oa)
    for k in (scaler, sa):
        k.update()
