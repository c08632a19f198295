# Healthy near-miss: scaled gradients of two replicas are averaged in place, as an all_reduce by hand does, then unscaled.
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))

    @torch.autocast("cpu", dtype=torch.float16)
    def forward(self, x, y):
        return F.cross_entropy(self.layers(x), y)


first = Model()
second = copy.deepcopy(first)
opt = torch.optim.SGD(first.parameters(), 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for it in range(25):
    opt.zero_grad()
    for replica in (first, second):
        x = torch.randn(32, 20)
        scaler.scale(replica(x, x[:, :5].argmax(1))).backward()
    for p, q in zip(first.parameters(), second.parameters()):
        p.grad.add_(q.grad).div_(2)
        q.grad = None
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(first.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    second.load_state_dict(first.state_dict())
