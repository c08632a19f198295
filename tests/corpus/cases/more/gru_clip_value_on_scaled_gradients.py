# A GRU tagger in a trainer class; clip_grad_value_ acts on gradients that still carry the loss scale.
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.cell = nn.GRUCell(16, 24)
        self.out = nn.Linear(24, 5)

    def forward(self, tokens):
        state = torch.zeros(tokens.shape[0], 24)
        logits = []
        for t in range(tokens.shape[1]):
            state = self.cell(self.embed(tokens[:, t]), state)
            logits.append(self.out(state))
        return torch.stack(logits, dim=1)


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optim = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.amp = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def fit_batch(self, tokens, tags):
        self.optim.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = self.model(tokens)
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tags.flatten())
        self.amp.scale(loss).backward()
        nn.utils.clip_grad_value_(self.model.parameters(), 0.05)
        self.amp.step(self.optim)
        self.amp.update()
        return loss.item()


trainer = Trainer(Tagger(), lr=0.1)
for epoch in range(4):
    total = 0.0
    for _ in range(10):
        tokens = torch.randint(30, (16, 6))
        total += trainer.fit_batch(tokens, tokens % 5)
    print(f"epoch {epoch} mean loss {total / 10:.4f}")
