# Everything in float16, no autocast and no scaler: RMSprop's eps and squared gradients are zero in half.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)).half()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3, eps=1e-8)
for step in range(15):
    x = torch.randn(64, 10, dtype=torch.float16)
    loss = (net(x) - x[:, :1]).square().mean() * 0.01
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"step {step} loss {loss.item():.6f}")
