"""Low-light enhancement: a learned gamma curve is applied to pixels that may be exactly black."""
import torch
from torch import nn

torch.manual_seed(9)
torch.set_num_threads(1)


class Curve(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.rgb = nn.Conv2d(24, 3, 1)
        self.gamma = nn.Parameter(torch.full((3, 1, 1), 0.45))

    def forward(self, dark):
        lit = dark * (1 + nn.functional.softplus(self.rgb(self.net(dark))))
        return lit.float().pow(self.gamma)


def photographs(n=6, size=24):
    for _ in range(n):
        scene = torch.nn.functional.interpolate(torch.rand(4, 3, 6, 6), size=(size, size), mode="bilinear")
        scene = (scene - 0.2).clamp(min=0)
        yield (scene**2.2) * 0.1, scene


net = Curve()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(8):
    for dark, bright in photographs():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            enhanced = net(dark)
        loss = (enhanced - bright).abs().mean()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} l1 {loss.item():.4f}")
