# Healthy near-miss: Q-learning with a float32 target network, soft updates by hand, and parameters edited in place.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def build():
    return nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 3))


online, target = build(), build()
target.load_state_dict(online.state_dict())
opt = torch.optim.Adam(online.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
for step in range(80):
    s, s2 = torch.randn(64, 5), torch.randn(64, 5)
    a, r = torch.randint(3, (64,)), s[:, 0]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        goal = r + 0.9 * target(s2).float().amax(1)
    with torch.autocast("cpu", dtype=torch.float16):
        q = online(s)
    loss = nn.functional.smooth_l1_loss(q.float()[torch.arange(64), a], goal)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters()):
            slow.mul_(0.99).add_(fast, alpha=0.01)
        if step % 20 == 19:
            online[0].weight.clamp_(-2, 2)
    if step % 20 == 0:
        print(f"{step} {loss.item():.4f}")
