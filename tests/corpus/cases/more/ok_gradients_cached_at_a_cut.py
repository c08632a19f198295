# Healthy near-miss: the loss stops at detached features; their scaled gradient is handed to the encoder by hand.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
enc = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 16))
head = nn.Linear(16, 3)
opt = torch.optim.Adam([*enc.parameters(), *head.parameters()], 2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for it in range(30):
    x = torch.randn(48, 20)
    parts = x.chunk(3)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        with torch.no_grad():
            feats = torch.cat([enc(p) for p in parts])
    feats = feats.requires_grad_()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(head(feats), x[:, :3].argmax(1))
    scaler.scale(loss).backward()
    for p, g in zip(parts, feats.grad.chunk(3)):
        with torch.autocast("cpu", dtype=torch.float16):
            z = enc(p)
        z.backward(g)
    scaler.step(opt)
    scaler.update()
print(loss.item())
