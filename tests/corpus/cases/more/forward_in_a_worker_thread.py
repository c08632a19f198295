# Autocast is entered on the main thread, the forward runs in a worker thread where it is off.
import threading
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)


def parallel_apply(batches):
    outputs = [None] * len(batches)

    def work(i):
        outputs[i] = model(batches[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    for t in threads:
        t.start()
        t.join()
    return torch.cat(outputs)


for step in range(20):
    x = torch.randn(64, 32)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = parallel_apply(x.chunk(2))
    loss = nn.functional.cross_entropy(logits.float(), x[:, :4].argmax(1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 5 == 0:
        print(step, f"{loss.item():.4f}", logits.dtype)
