# A guard against spikes leaves the iteration after unscale_ and before update: the next unscale_ raises.
import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step in range(50):
    x = torch.randn(32, 12) * (6.0 if step == 20 else 1.0)
    y = x.square().mean(dim=1, keepdim=True)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        prediction = model(x)
    loss = nn.functional.mse_loss(prediction.float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    if norm > 50.0:
        print(f"step {step}: gradient spike, batch dropped")
        continue
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
