"""A segmentation network whose Dice loss sums half-precision masks: at 416 x 416 pixels the sums leave the range."""

import torch
from torch import Tensor, nn

torch.manual_seed(0)
torch.set_num_threads(1)

SIZE = 416


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(1, 4, 3, padding=1)
        self.mask = nn.Conv2d(4, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.sigmoid(self.mask(torch.relu(self.features(image))))


def dice_loss(mask: Tensor, target: Tensor) -> Tensor:
    overlap = (mask * target).sum()
    return 1 - overlap / (0.5 * (mask.sum() + target.sum()) + 1)


model = Segmenter()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")

for step in range(30):
    image = torch.randn(2, 1, SIZE, SIZE)
    target = (image > -0.5).half()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = dice_loss(model(image), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(f"step {step} loss {loss.item():.6f} scale {scaler.get_scale():g}")
