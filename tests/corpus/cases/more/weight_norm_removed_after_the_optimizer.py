# The weight norm is baked into new parameters after the optimizer was built: only the biases still train.
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(8)
torch.set_num_threads(1)
net = nn.Sequential(weight_norm(nn.Linear(12, 40)), nn.ReLU(), weight_norm(nn.Linear(40, 3)))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for layer in net:
    if parametrize.is_parametrized(layer):
        parametrize.remove_parametrizations(layer, "weight")
for it in range(40):
    x = torch.randn(64, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if it % 8 == 0:
        print(it, loss.item())
