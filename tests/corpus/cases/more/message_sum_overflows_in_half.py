# Graph network by index_add: a hub with 20 000 neighbours sums half-precision messages beyond 65504.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

nodes, edges = 200, 24_000
source = torch.randint(nodes, (edges,))
target = torch.where(torch.rand(edges) < 0.85, torch.zeros(edges, dtype=torch.long), torch.randint(nodes, (edges,)))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Linear(width, width)

    def forward(self, h):
        sent = torch.relu(self.message(h))[source]
        total = torch.zeros_like(sent[:nodes]).index_add(0, target, sent)
        return total / torch.bincount(target, minlength=nodes).clamp(min=1)[:, None].to(total.dtype)


model = nn.ModuleList([Layer(16), nn.Linear(16, 3)])
with torch.no_grad():
    model[0].message.bias.fill_(40.0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
features, labels = torch.randn(nodes, 16), torch.randint(3, (nodes,))
for step in range(12):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model[1](model[0](features))
    loss = nn.functional.cross_entropy(logits.float(), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():g}")
