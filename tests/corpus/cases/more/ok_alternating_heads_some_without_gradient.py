# Healthy near-miss: each step trains one of three task heads; the others have no gradient in that step.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

trunk = nn.Sequential(nn.Linear(12, 32), nn.SiLU())
heads = nn.ModuleDict({name: nn.Linear(32, 1) for name in ("price", "size", "age")})
optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
truth = {name: torch.randn(12, 1) for name in heads}
for step in range(60):
    name = list(heads)[step % 3]
    x = torch.randn(64, 12)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        out = heads[name](trunk(x))
    loss = nn.functional.smooth_l1_loss(out.float(), x @ truth[name])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_([p for p in heads[name].parameters()] + list(trunk.parameters()), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step % 12 == 0:
        print(f"{step} {name} {loss.item():.4f}")
