# Logging the gradient norm after the first of four micro-batches unscales it; the other three stay scaled.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Conv1d(3, 8, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
accumulate = 4

for window in range(12):
    opt.zero_grad()
    for micro in range(accumulate):
        x, y = torch.randn(8, 3, 40), torch.randint(4, (8,))
        with torch.autocast("cpu", dtype=torch.float16):
            logits = net(x)
        loss = nn.functional.cross_entropy(logits.float(), y) / accumulate
        scaler.scale(loss).backward()
        if micro == 0:
            scaler.unscale_(opt)
            norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    scaler.step(opt)
    scaler.update()
    print(f"window {window} first norm {norm.item():.4f} loss {loss.item() * accumulate:.4f}")
