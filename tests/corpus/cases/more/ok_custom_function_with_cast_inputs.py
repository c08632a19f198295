# Healthy near-miss: a custom autograd function, decorated with custom_fwd(cast_inputs=float32) and custom_bwd.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class LogCosh(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - 0.6931472

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.tanh(x)


net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1))
opt = torch.optim.RAdam(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
w = torch.randn(8, 1)
for step in range(60):
    x = torch.randn(64, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = LogCosh.apply(net(x) - x @ w).mean()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    opt.zero_grad()
    if step % 15 == 0:
        print(f"{step} {loss.item():.4f}")
