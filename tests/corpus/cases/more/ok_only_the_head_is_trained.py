# The optimizer holds the head and a spare one that is not used; the body has gradients that nobody asked for.
import torch
from torch import nn

torch.manual_seed(8)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 40), nn.ReLU())
        self.head, self.spare = nn.Linear(40, 3), nn.Linear(40, 9)

    def forward(self, x):
        return self.head(self.body(x))


net = Net()
opt = torch.optim.AdamW([*net.head.parameters(), *net.spare.parameters()], lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for it in range(40):
    x = torch.randn(64, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
