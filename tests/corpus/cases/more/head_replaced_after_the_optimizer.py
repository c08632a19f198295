# Fine-tuning: the classifier is replaced after the optimizer was built, which still holds the old one.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
model = nn.Sequential(body, nn.Linear(32, 1000))
body.requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
model[1] = nn.Linear(32, 5)

for step in range(30):
    x = torch.randn(64, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), x[:, :5].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
