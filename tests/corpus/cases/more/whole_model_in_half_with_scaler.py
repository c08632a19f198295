# model.half() and a GradScaler: the scaler refuses gradients of half-precision parameters.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10)).half()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu")
for step in range(5):
    images, labels = torch.rand(16, 1, 8, 8).half(), torch.randint(10, (16,))
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(images).float(), labels)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(step, loss.item())
