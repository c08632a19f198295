# Healthy near-miss: weights stored in bfloat16, but steps large enough to move them (lr 0.5 on noisy labels).
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).to(torch.bfloat16)
velocity = torch.optim.SGD(model.parameters(), lr=0.5)
centres = 2 * torch.randn(4, 16)
for step in range(50):
    y = torch.randint(4, (64,))
    x = (centres[y] + torch.randn(64, 16)).to(torch.bfloat16)
    noisy = torch.where(torch.rand(64) < 0.4, torch.randint(4, (64,)), y)
    loss = nn.functional.cross_entropy(model(x).float(), noisy)
    velocity.zero_grad()
    loss.backward()
    velocity.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
