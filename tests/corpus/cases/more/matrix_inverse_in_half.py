# A whitening layer of a model in half precision inverts a covariance: there is no half-precision kernel for that.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Whiten(nn.Module):
    def forward(self, x):
        centred = x - x.mean(0)
        cov = centred.t() @ centred / len(x) + 0.1 * torch.eye(x.shape[1], dtype=x.dtype)
        return centred @ torch.linalg.inv(cov)


net = nn.Sequential(nn.Linear(12, 8), Whiten(), nn.Linear(8, 2)).half()
opt = torch.optim.Adam(net.parameters())
for step in range(10):
    x = torch.randn(32, 12)
    logits = net(x.half())
    loss = nn.functional.cross_entropy(logits.float(), (x[:, 0] > 0).long())
    loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, f"{loss.item():.4f}")
