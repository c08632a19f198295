# Contrastive loss whose inverse temperature is annealed upwards in half: exp leaves the range at 11.09.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

left, right = nn.Linear(20, 16), nn.Linear(20, 16)
opt = torch.optim.SGD([*left.parameters(), *right.parameters()], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for step in range(30):
    x = torch.randn(32, 20)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        a = nn.functional.normalize(left(x), dim=1)
        b = nn.functional.normalize(right(x + 0.1 * torch.randn_like(x)), dim=1)
        sharpness = torch.full((1,), 8.0 + 0.2 * step, dtype=torch.float16).exp()
        logits = (a @ b.t()).half() * sharpness
    loss = nn.functional.cross_entropy(logits.float(), torch.arange(32))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(f"step {step} loss {loss.item():.3f} scale {scaler.get_scale():g}")
