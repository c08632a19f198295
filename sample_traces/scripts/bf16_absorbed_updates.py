"""Fine-tuning a classifier whose weights are stored in bfloat16: steps of 2e-5 round away."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4)).bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1e-6)
centres = torch.randn(4, 32)

for step in range(60):
    labels = torch.randint(4, (64,))
    inputs = centres[labels] + torch.randn(64, 32)
    optimizer.zero_grad(set_to_none=True)
    logits = model(inputs.bfloat16())
    loss = nn.functional.cross_entropy(logits.float(), labels)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
