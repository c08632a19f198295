# Healthy near-miss: the loss is multiplied by get_scale() by hand, as some libraries do, and the scaler does the rest.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def forward_backward(model, x, y, scaler):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x).float(), y)
    scaler.scale(torch.zeros(1))  # makes the scale tensor exist
    (loss * scaler.get_scale()).backward()
    return loss.detach()


model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
centres = 2 * torch.randn(4, 16)
for step in range(60):
    y = torch.randint(4, (64,))
    loss = forward_backward(model, centres[y] + torch.randn(64, 16), y, scaler)
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if step % 15 == 0:
        print(f"{step} {loss.item():.4f}")
