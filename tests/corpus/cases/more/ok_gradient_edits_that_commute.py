# Healthy near-miss: edits of scaled gradients that commute with the scale (masks of pruned weights, a padding row
# set to zero, layer-wise factors, division by the accumulation count).
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
emb = nn.Embedding(60, 24)
net = nn.Sequential(nn.Flatten(), nn.Linear(24 * 6, 64), nn.ReLU(), nn.Linear(64, 2))
keep = (torch.rand_like(net[1].weight) > 0.5).float()
net[1].weight.data.mul_(keep)
ps = [*emb.parameters(), *net.parameters()]
opt = torch.optim.SGD(ps, 0.3)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for it in range(30):
    opt.zero_grad()
    for _ in range(4):
        x = torch.randint(0, 60, (16, 6))
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(net(emb(x)), (x[:, 0] > 30).long())
        scaler.scale(loss).backward()
    for p in ps:
        p.grad.div_(4)
    emb.weight.grad[0] = 0.0
    net[1].weight.grad.mul_(keep)
    net[3].weight.grad *= 0.5
    scaler.step(opt)
    scaler.update()
print(loss.item())
