# One batch makes a running mean square infinite in half; from then on the layer divides by inf and gives zeros.
import torch
from torch import nn

torch.manual_seed(16)
torch.set_num_threads(1)


class Normalise(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean_square", torch.ones(width))

    def forward(self, h):
        if self.training:
            self.mean_square.mul_(0.95).add_(0.05 * h.detach().square().mean(0).float())
        return h / self.mean_square.sqrt().clamp(min=1e-2)


net = nn.Sequential(nn.Linear(8, 32), Normalise(32), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for it in range(48):
    x = torch.randn(64, 8) * (1500.0 if it == 20 else 1.0)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = (out.float() - x[:, :1].tanh()).square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
