"""A small convolutional network trained in mixed precision on scikit-learn's handwritten digits.

    python examples/digits_cnn.py --steps 120 --dtype fp16

The 1797 real images ship inside scikit-learn, so nothing is downloaded. Prints one line per step and, at the
end, the accuracy on held-out images; no times: two runs with one seed and one thread count print the same
bytes.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
HELD_OUT = 297


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (1500, 1, 8, 8) in [-1, 1] and labels, then the same for the held-out rest."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
    labels = torch.tensor(data.target)
    return images[:-HELD_OUT], labels[:-HELD_OUT], images[-HELD_OUT:], labels[-HELD_OUT:]


def build(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(2 * width * 16, 64),
        nn.ReLU(inplace=True),
        nn.Linear(64, 10),
    )


def pick_device(name: str) -> torch.device:
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small CNN on handwritten digits.")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="fp16", help="fp32 is without autocast")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    device, dtype = pick_device(args.device), DTYPES[args.dtype]
    torch.manual_seed(args.seed)
    sampler = torch.Generator().manual_seed(args.seed)
    images, labels, test_images, test_labels = (part.to(device) for part in digits())

    model = build(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype is torch.float16)
    mixed = dtype is not torch.float32

    for step in range(args.steps):
        chosen = torch.randint(len(images), (args.batch,), generator=sampler).to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=dtype, enabled=mixed):
            logits = model(images[chosen])
        loss = F.cross_entropy(logits.float(), labels[chosen])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        scaler.step(optimizer)
        scaler.update()
        print(f"step {step} loss {loss.item():.6f}", flush=True)

    model.eval()
    with torch.no_grad(), torch.autocast(device.type, dtype=dtype, enabled=mixed):
        right = int((model(test_images).argmax(dim=1) == test_labels).sum())
    print(f"held-out accuracy {right / len(test_labels):.4f}")


if __name__ == "__main__":
    main()
