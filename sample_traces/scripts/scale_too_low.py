"""A deep narrow regressor whose gradients are small, under a loss scale that was set to 1 and never grows."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

layers = []
for _ in range(6):
    layers += [nn.Linear(32, 32), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(32, 1))
for module in model:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=100_000)

for step in range(60):
    x = torch.randn(64, 32)
    y = 0.1 * x[:, :4].sum(dim=1, keepdim=True)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        prediction = model(x)
    loss = nn.functional.mse_loss(prediction.float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.6f}")
