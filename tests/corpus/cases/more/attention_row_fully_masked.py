# Padding masks of -inf: one sequence of the batch is empty, so its softmax row is 0/0.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def attend(q, k, v, valid):
    scores = q @ k.transpose(1, 2) / k.shape[-1] ** 0.5
    scores = scores.masked_fill(~valid[:, None, :], float("-inf"))
    return scores.softmax(dim=-1) @ v


proj = nn.Linear(12, 36)
head = nn.Linear(12, 2)
opt = torch.optim.Adam([*proj.parameters(), *head.parameters()], lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for step in range(24):
    x = torch.randn(8, 10, 12)
    lengths = torch.randint(1, 11, (8,))
    if step >= 9:
        lengths[2] = 0
    valid = torch.arange(10) < lengths[:, None]
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        q, k, v = proj(x).chunk(3, dim=-1)
        logits = head(attend(q, k, v, valid).mean(1))
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0, 0] > 0).long())
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(f"step {step} loss {loss.item():.4f}")
