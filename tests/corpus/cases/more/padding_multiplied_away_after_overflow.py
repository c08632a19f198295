"""Energy model over variable-size molecules: padded atoms are multiplied by zero after an fp16 product."""
import torch
from torch import nn

torch.manual_seed(27)
torch.set_num_threads(1)
PAD = 2000.0  # far away, so that padded atoms interact with nobody


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 64), nn.SiLU(), nn.Linear(64, 1))
        self.stiffness = nn.Parameter(torch.tensor(0.05))

    def forward(self, position, present):
        h = position.half()
        local = self.f(torch.cat([h, h.norm(dim=-1, keepdim=True)], -1)).squeeze(-1)
        spring = self.stiffness.half() * h.square().sum(-1)
        per_atom = (local + spring) * present.half()
        return per_atom.sum(-1).float() / present.sum(-1)


def molecules(n=32, atoms=12):
    position = torch.randn(n, atoms, 3)
    count = torch.randint(4, atoms + 1, (n, 1))
    present = (torch.arange(atoms) < count).float()
    energy = (position.square().sum(-1) * 0.3 * present).sum(-1) / present.sum(-1)
    position = torch.where(present.bool().unsqueeze(-1), position, torch.full_like(position, PAD))
    return position, present, energy


net = Energy()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for it in range(60):
    position, present, energy = molecules()
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        predicted = net(position, present)
    loss = nn.functional.mse_loss(predicted, energy)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if it % 20 == 0:
        print(it, loss.item(), scaler.get_scale())
