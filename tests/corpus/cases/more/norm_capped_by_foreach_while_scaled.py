# The gradients are brought to norm 1 with the foreach API while they carry the loss scale: one factor for all of them.
import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)


def cap(grads, limit=1.0):
    total = float(torch.stack(torch._foreach_norm(grads)).norm())
    torch._foreach_mul_(grads, limit / max(total, limit))


net = nn.Sequential(nn.Conv1d(2, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 14, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for it in range(40):
    x = torch.randn(64, 2, 16)
    y = (x.sum((1, 2)) / 4).round().clamp(-1, 1).long() + 1
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    cap([p.grad for p in net.parameters()])
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
