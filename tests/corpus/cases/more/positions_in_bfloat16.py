# The model is cast to bfloat16 as a whole, so that positions 0..1023 are rounded to multiples of 2 and 4.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", 10000 ** (-torch.arange(0, dim, 2).float() / dim))

    def forward(self, x):
        position = torch.arange(x.shape[1]).to(x.dtype)
        angle = position[:, None] * self.freq
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=-1)


model = nn.Sequential(nn.Linear(8, 16), Rotary(16), nn.Linear(16, 4)).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(12):
    x = torch.randn(2, 1024, 8, dtype=torch.bfloat16)
    optimizer.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f}")
