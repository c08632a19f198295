# A penalty drives one layer's outputs up step by step: the next product leaves the half range only near step 70.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.grow = nn.Linear(16, 16)
        self.mix = nn.Linear(16, 16)
        self.read = nn.LayerNorm(16)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        h = torch.relu(self.grow(x)) + 1
        return self.out(self.read(self.mix(h))), h


net = Net()
with torch.no_grad():
    net.mix.weight.fill_(4.0)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for step in range(110):
    x = torch.randn(32, 16)
    with torch.no_grad():
        net.grow.bias.mul_(1.08).add_(1.0)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits, hidden = net(x)
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f} hidden {hidden.max().item():.0f}")
