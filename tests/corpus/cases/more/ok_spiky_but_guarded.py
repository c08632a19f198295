# Healthy near-miss: two exploding batches are skipped by the scaler, as it should be, and training recovers.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 20))
w = torch.randn(12, 1)

for step in range(150):
    x = torch.randn(64, 12)
    y = x @ w * (400.0 if step in (60, 110) else 1.0)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x)
    loss = nn.functional.mse_loss(out.float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= scale:
        schedule.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g}")
