# Self-distillation: the teacher is a half-precision moving average whose increments of 0.1 % round away.
import copy
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

student = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
teacher = copy.deepcopy(student).bfloat16().requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)

for step in range(80):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = student(x + 0.1 * torch.randn_like(x))
    with torch.no_grad():
        goal = teacher(x.bfloat16()).float()
    loss = nn.functional.mse_loss(guess.float(), goal) + guess.float().var(0).sub(1).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters()):
            slow.lerp_(fast.to(slow.dtype), 0.001)
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
