# Healthy near-miss: float32 throughout, noise prediction by Adam, then a few LBFGS closures.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(3, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))
data = torch.randn(512, 2) @ torch.tensor([[1.0, 0.8], [0.0, 0.3]])


def noise_loss(points):
    t = torch.rand(len(points), 1)
    noise = torch.randn_like(points)
    noisy = (1 - t).sqrt() * points + t.sqrt() * noise
    return nn.functional.mse_loss(net(torch.cat([noisy, t], 1)), noise)


adam = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(80):
    adam.zero_grad()
    loss = noise_loss(data[torch.randint(512, (128,))])
    loss.backward()
    adam.step()
lbfgs = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
for _ in range(3):
    torch.manual_seed(1)

    def closure():
        torch.manual_seed(1)
        lbfgs.zero_grad()
        value = noise_loss(data)
        value.backward()
        return value

    print(f"{lbfgs.step(closure).item():.4f}")
