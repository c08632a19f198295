# A column of the table has missing values that were read as NaN: from the first such batch on the weights are NaN.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

table = torch.randn(1000, 14)
table[700:, 3] = float("nan")
target = table[:, :2].sum(1, keepdim=True)

model = nn.Sequential(nn.Linear(14, 32), nn.GELU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(20):
    rows = slice(50 * step, 50 * step + 50)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(table[rows]).float(), target[rows])
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
