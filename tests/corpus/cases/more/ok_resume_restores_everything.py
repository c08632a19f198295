# Healthy near-miss: three restarts from checkpoints that hold the model, the optimizer and the scaler.
import io
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

w = torch.randn(10, 3)


def train(steps, blob=None):
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu")
    if blob is not None:
        state = torch.load(io.BytesIO(blob))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
    skipped = 0
    for _ in range(steps):
        x = torch.randn(64, 10)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        loss = nn.functional.mse_loss(out.float(), x @ w, reduction="sum") / 16
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
    out = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, out)
    print(f"loss {loss.item():.4f} scale {scaler.get_scale():g} skipped {skipped}")
    return out.getvalue()


saved = None
for restart in range(4):
    saved = train(40, saved)
