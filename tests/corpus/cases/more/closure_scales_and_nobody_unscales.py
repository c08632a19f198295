# A closure that is given to optimizer.step scales its loss; the step takes the scaled gradients.
import torch
from torch import nn

torch.manual_seed(2)
torch.set_num_threads(1)


class Problem:
    def __init__(self, net, opt, scaler, target):
        self.net, self.opt, self.scaler, self.target = net, opt, scaler, target

    def __call__(self):
        x = torch.randn(64, 9)
        self.opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = self.net(x)
        loss = (out.float() - x @ self.target).abs().mean()
        self.scaler.scale(loss).backward()
        return loss


net = nn.Sequential(nn.Linear(9, 50), nn.Softsign(), nn.Linear(50, 1))
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
problem = Problem(net, opt, torch.amp.GradScaler("cpu", init_scale=1024.0), torch.randn(9, 1))
for it in range(40):
    loss = opt.step(problem)
    if it % 8 == 0:
        print(it, loss.item())
