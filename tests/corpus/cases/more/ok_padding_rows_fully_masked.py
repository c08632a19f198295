# Healthy near-miss: rows of padding are masked throughout; SDPA gives zeros, the loss leaves them out.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
qkv, o = nn.Linear(16, 48), nn.Linear(16, 4)
opt = torch.optim.Adam([*qkv.parameters(), *o.parameters()], 3e-3)
for it in range(30):
    x = torch.randn(8, 6, 16)
    n = torch.randint(1, 7, (8, 1))
    ok = torch.arange(6) < n
    m = ok[:, :, None] & ok[:, None, :]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        q, k, v = qkv(x).chunk(3, -1)
        h = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=m[:, None])[:, 0]
        lo = o(h)
        loss = F.cross_entropy(lo[ok].float(), x[ok][:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
