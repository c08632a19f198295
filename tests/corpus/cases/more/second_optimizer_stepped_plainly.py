# Two optimizers in a recommender: the dense one goes through the scaler, the one of the embeddings does not.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

users, items = nn.Embedding(200, 16), nn.Embedding(300, 16)
tower = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
opt_tables = torch.optim.SGD([*users.parameters(), *items.parameters()], lr=1e-4)
opt_tower = torch.optim.AdamW(tower.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
taste = torch.randn(200, 300)


def train_step():
    u, v = torch.randint(200, (128,)), torch.randint(300, (128,))
    liked = (taste[u, v] > 0).float()
    opt_tables.zero_grad()
    opt_tower.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logit = tower(torch.cat([users(u), items(v)], dim=1)).squeeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(logit.float(), liked)
    scaler.scale(loss).backward()
    scaler.step(opt_tower)
    opt_tables.step()
    scaler.update()
    return loss.item()


for step in range(60):
    value = train_step()
    if step % 15 == 0:
        print(f"{step:3d} {value:.4f}")
