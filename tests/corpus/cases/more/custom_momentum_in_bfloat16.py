# A hand-written optimizer keeps its second moment in bfloat16 with decay 0.999: it does not move once it is set.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class LeanAdam(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-6})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = (p.grad * p.grad).bfloat16()
                state["step"] += 1
                state["exp_avg"].lerp_(p.grad, 1 - group["betas"][0])
                square = (p.grad * p.grad).bfloat16()
                state["exp_avg_sq"].mul_(group["betas"][1]).add_(square, alpha=1 - group["betas"][1])
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].float().sqrt() + group["eps"], value=-group["lr"])


net = nn.Sequential(nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 4))
opt = LeanAdam(net.parameters(), lr=1e-3)
for step in range(80):
    x = torch.randn(64, 16)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), x[:, :4].argmax(1))
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"{step} {loss.item():.4f}")
