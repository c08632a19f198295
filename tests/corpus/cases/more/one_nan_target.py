# One target of 640 is NaN. No input of the model is bad, and only one step is skipped.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
from torch.utils.data import DataLoader, TensorDataset

X = torch.randn(640, 10)
Y = X.sum(1, keepdim=True)
Y[391] = float("nan")
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for x, y in DataLoader(TensorDataset(X, Y), batch_size=32):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x).float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    print(loss.item())
