# Negative sampling written as log(sigmoid(x)) and log(1 - sigmoid(x)) in half: saturates once the model is confident.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

words, contexts = nn.Embedding(60, 24), nn.Embedding(60, 24)
opt = torch.optim.SGD([*words.parameters(), *contexts.parameters()], lr=2.0)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(120):
    w = torch.randint(60, (256,))
    near, far = (w + 1) % 60, torch.randint(60, (256,))
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        pos = (words(w).half() * contexts(near).half()).sum(1)
        neg = (words(w).half() * contexts(far).half()).sum(1)
        loss = -(torch.sigmoid(pos).log() + (1 - torch.sigmoid(neg)).log()).mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
