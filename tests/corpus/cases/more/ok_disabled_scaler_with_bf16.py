# Healthy near-miss: one code path for all precisions; with bf16 the scaler is there and disabled.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

dtype = torch.bfloat16
enc = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
head = nn.Linear(16, 5)
params = [*enc.parameters(), *head.parameters()]
opt = torch.optim.AdamW(params, lr=2e-3)
scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
table = nn.Embedding(5, 16).requires_grad_(False)
for step in range(50):
    ids = torch.randint(5, (16, 8))
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=dtype):
        logits = head(enc(table(ids)))
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids.roll(1, 1).flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(params, 1.0)
    scaler.step(opt)
    scaler.update()
    if step % 10 == 0:
        print(f"{step} {loss.item():.4f}")
