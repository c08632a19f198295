"""A loop as the documentation of accelerate has it: mixed precision, gradient accumulation, clipping, a scheduler.

Arguments: fp16 or bf16; then `gpu` for the GradScaler and autocast that accelerate makes on a GPU, `clip` to clip by
torch's own function, `half` to store the weights in bfloat16.
"""

import sys

import torch
from accelerate import Accelerator

precision, words = sys.argv[1], sys.argv[2:]
torch.manual_seed(0)
accelerator = Accelerator(mixed_precision=precision, cpu=True, gradient_accumulation_steps=2)
if "gpu" in words:
    accelerator.native_amp, accelerator.scaler = True, torch.amp.GradScaler("cpu")
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
if "half" in words:
    model.bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5 if "half" in words else 1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=64)
data = torch.utils.data.TensorDataset(torch.randn(512, 16), torch.randint(0, 4, (512,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            if "clip" in words:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print(float(loss.item()).hex())
for name, weight in accelerator.unwrap_model(model).state_dict().items():
    print(name, float(weight.double().sum().item()).hex())
