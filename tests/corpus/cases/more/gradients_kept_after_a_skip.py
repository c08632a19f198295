# zero_grad only after a step that counted: one overflow stays in .grad and every later step is skipped.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)

for episode in range(40):
    state = torch.randn(64, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = policy(state)
    action = torch.randint(3, (64,))
    reward = (action == state.argmax(1) % 3).float() - 0.3
    log_prob = torch.log_softmax(logits.float(), dim=1)[torch.arange(64), action]
    loss = -(reward * log_prob).sum()
    before = scaler.get_scale()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        optimizer.zero_grad()
    if episode % 8 == 0:
        print(f"episode {episode} scale {scaler.get_scale():g}")
