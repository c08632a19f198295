# One autocast context around the training loop: its cache keeps the half copies of the first iteration's weights.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
prototypes = 2 * torch.randn(4, 16)

with torch.autocast("cpu", dtype=torch.bfloat16):
    for step in range(60):
        y = torch.randint(4, (64,))
        x = prototypes[y] + torch.randn(64, 16)
        loss = nn.functional.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f}")
