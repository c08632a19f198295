# Two independent faults: clipping before unscale_, and a warm-up schedule that runs through many skipped steps.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.01, 1.0, total_iters=12)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for step in range(40):
    x = torch.randn(48, 30)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1), reduction="sum")
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    scaler.step(opt)
    scaler.update()
    warm.step()
    if step % 8 == 0:
        print(f"{step} {loss.item() / 48:.4f} lr {warm.get_last_lr()[0]:.4f} scale {scaler.get_scale():g}")
