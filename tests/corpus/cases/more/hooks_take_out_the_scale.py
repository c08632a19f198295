# Tensor hooks divide the gradients by the loss scale while backward runs, and the scaler divides them again.
import torch
from torch import nn

torch.manual_seed(21)
torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(10, 40), nn.SELU(), nn.Linear(40, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for p in net.parameters():
    p.register_hook(lambda grad: grad * (1.0 / scaler.get_scale()))
for it in range(40):
    x = torch.randn(64, 10)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
