# Policy gradient: the running reward is a half tensor that stops growing at 2048, since 2048 + 1 rounds back.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
total = torch.zeros((), dtype=torch.float16)
for episode in range(60):
    state = torch.randn(128, 4)
    dist = torch.distributions.Categorical(logits=policy(state))
    action = dist.sample()
    reward = (action == (state[:, 0] > 0)).float()
    loss = -(dist.log_prob(action) * (reward - 0.5)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    for r in reward:
        total += r.half()
    if episode % 15 == 0:
        print(f"episode {episode} loss {loss.item():.4f} total reward {total.item():.0f}")
