"""What "Mixed Precision Training" (Micikevicius et al., ICLR 2018) shows, measured on a small detector.

    python examples/paper_underflow.py --steps 150

A convolutional single-shot detector learns to find rectangles, discs and crosses that are drawn on the fly, in
float32 on the CPU. Then: how many of its activation gradients float16 would flush to zero at each loss scale;
what becomes of its updates when the weights are stored in float16; what a sum in float16 loses. Prints one line
per figure; the figures of the paper stand beside them in docs/paper.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ampscope.numerics import ExponentHistogram, compare_update, exponent_histogram, what_if

CLASSES = 4
"""Background and three shapes."""

ANCHORS = 3
SIZE = 96
SCALES = (1, 8, 64, 512, 4096, 32768)


class Detector(nn.Module):
    """Backbone of five convolutions; per cell of a 12x12 grid and per anchor: class scores and a box."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.scores = nn.Conv2d(4 * width, ANCHORS * CLASSES, 3, padding=1)
        self.boxes = nn.Conv2d(4 * width, ANCHORS * 4, 3, padding=1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (N, 1, 96, 96) to class scores (N, A, 4) and box offsets (N, A, 4), A = 432 anchors."""
        features = self.backbone(images)
        n = len(images)
        scores = self.scores(features).view(n, ANCHORS, CLASSES, -1).transpose(2, 3).reshape(n, -1, CLASSES)
        boxes = self.boxes(features).view(n, ANCHORS, 4, -1).transpose(2, 3).reshape(n, -1, 4)
        return scores, boxes


def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """n images with one to three shapes each, the class of every anchor (N, A) and its box target (N, A, 4)."""
    images = 0.1 * torch.randn(n, 1, SIZE, SIZE, generator=generator)
    cells = SIZE // 8
    classes = torch.zeros(n, ANCHORS, cells, cells, dtype=torch.long)
    targets = torch.zeros(n, ANCHORS, cells, cells, 4)
    ys, xs = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    for i in range(n):
        for _ in range(int(torch.randint(1, 4, (), generator=generator))):
            kind, anchor = (int(torch.randint(0, 3, (), generator=generator)) for _ in range(2))
            radius = 6 + 5 * anchor
            y, x = (int(torch.randint(radius, SIZE - radius, (), generator=generator)) for _ in range(2))
            dy, dx = (ys - y).abs(), (xs - x).abs()
            inside = [
                (dy <= radius) & (dx <= radius),
                dy**2 + dx**2 <= radius**2,
                ((dy <= 2) | (dx <= 2)) & (dy <= radius) & (dx <= radius),
            ][kind]
            images[i, 0][inside] += 1.0
            classes[i, anchor, y // 8, x // 8] = kind + 1
            offset = torch.tensor([y % 8 / 8, x % 8 / 8, radius / 16, radius / 16])
            targets[i, anchor, y // 8, x // 8] = offset
    return images, classes.reshape(n, -1), targets.reshape(n, -1, 4)


def detection_loss(scores: Tensor, boxes: Tensor, classes: Tensor, targets: Tensor) -> Tensor:
    """The single-shot detector's loss (Liu et al., ECCV 2016, section 2.2): classification of the matched anchors
    and of three times as many of the hardest others, and a smooth-L1 box loss on the matched ones. Averaged over
    all anchors of the batch, which gives a small network the small gradients of a large one."""
    matched = classes > 0
    each = F.cross_entropy(scores.flatten(0, 1), classes.flatten(), reduction="none").view_as(classes)
    others = each.detach().masked_fill(matched, -1.0)
    hardest = others.flatten().topk(3 * int(matched.sum())).indices
    keep = matched.flatten().clone()
    keep[hardest] = True
    wrong_class = each.flatten()[keep].sum()
    wrong_box = F.smooth_l1_loss(boxes[matched], targets[matched], reduction="sum")
    return (wrong_class + wrong_box) / classes.numel()


def train(
    model: nn.Module, steps: int, lr: float, seed: int, after_backward: Callable[[], None] | None = None
) -> list[float]:
    """Losses of `steps` SGD steps on fresh images."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        images, classes, targets = draw(8, generator)
        dtype = next(model.parameters()).dtype
        scores, boxes = model(images.to(dtype))
        loss = detection_loss(scores.float(), boxes.float(), classes, targets)
        optimizer.zero_grad()
        loss.backward()
        if after_backward is not None:
            after_backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def activation_gradients(
    model: Detector, steps: int, lr: float, seed: int
) -> tuple[ExponentHistogram, list[float]]:
    """The histogram of all gradients of module outputs over a float32 training run, and its losses."""
    total: list[ExponentHistogram] = []

    def add(gradient: Tensor) -> None:
        one = exponent_histogram(gradient)
        total[:] = [total[0].merge(one)] if total else [one]

    def watch(module: nn.Module, args: object, output: Tensor) -> None:
        output.register_hook(add)

    leaves = [m for m in model.modules() if not list(m.children())]
    handles = [m.register_forward_hook(watch) for m in leaves]
    losses = train(model, steps, lr, seed)
    for handle in handles:
        handle.remove()
    return total[0], losses


def report_gradients(h: ExponentHistogram) -> None:
    print(f"activation gradients read: {h.numel}")
    print(f"zero in float32: {h.zeros / h.numel:.1%} of all values")
    for scale in SCALES:
        w = what_if(h, "fp16", float(scale))
        print(
            f"loss scale {scale:6d}: {w.flushed / h.numel:8.3%} of all values become zero in float16, "
            f"{(h.nonzero - w.flushed) / h.numel:.1%} stay nonzero, {w.subnormal / h.numel:.1%} are subnormal, "
            f"{w.overflow} overflow"
        )


def report_updates(steps: int, lr: float, seed: int) -> None:
    """Train the same network at a fine-tuning rate with float16 weights, and with float32 weights."""
    generator = torch.Generator().manual_seed(seed)
    images, classes, targets = draw(64, generator)

    def final_loss(model: Detector) -> float:
        with torch.no_grad():
            scores, boxes = model(images.to(next(model.parameters()).dtype))
            return float(detection_loss(scores.float(), boxes.float(), classes, targets))

    torch.manual_seed(seed)
    master = Detector()
    train(master, steps, 2.0, seed)
    half = Detector()
    half.load_state_dict(master.state_dict())
    half = half.half()
    before = final_loss(master)
    snapshot = {n: p.detach().clone() for n, p in half.named_parameters()}
    lost = asked = 0

    def count() -> None:
        nonlocal snapshot, lost, asked
        for name, param in half.named_parameters():
            u = compare_update(snapshot[name], param.detach(), param.grad, lr)
            lost += u.unchanged or 0
            asked += u.grad_nonzero or 0
        snapshot = {n: p.detach().clone() for n, p in half.named_parameters()}

    train(master, steps, lr, seed + 1)
    train(half, steps, lr, seed + 1, after_backward=count)
    print(
        f"fine-tuning at lr {lr:g}: {lost / max(1, asked):.1%} of the updates to float16 weights are absorbed"
    )
    after, after_half = final_loss(master), final_loss(half)
    print(
        f"loss before {before:.6f}, after with float32 weights {after:.6f}, with float16 weights {after_half:.6f}"
    )
    kept = (before - after_half) / (before - after) if before != after else float("nan")
    print(f"float16 weights keep {kept:.0%} of the progress that float32 master weights make")


def report_update_ratio(seed: int) -> None:
    """The rule of the paper's section 3.1: an update 2048 times smaller than its weight rounds away."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.rand(100_000, generator=generator) + 1.0
    for power in (9, 10, 11, 12, 13):
        update = weight * 2.0**-power
        u = compare_update(weight, weight + update)
        print(f"update / weight = 2^-{power}: {u.absorbed_fp16 / u.moved:.1%} absorbed in float16")


def report_accumulation(seed: int) -> None:
    """Dot products of half inputs: partial sums kept in float16 against float32."""
    generator = torch.Generator().manual_seed(seed)
    for length in (64, 1024, 16384):
        a = torch.rand(256, length, generator=generator).half()
        b = torch.rand(256, length, generator=generator).half()
        exact = (a.double() * b.double()).sum(1)
        in_half = torch.zeros(256, dtype=torch.float16)
        in_float = torch.zeros(256)
        for k in range(length):
            product = a[:, k].float() * b[:, k].float()
            in_half = (in_half.float() + product).half()
            in_float = in_float + product
        half_error = ((in_half.double() - exact).abs() / exact).mean()
        float_error = ((in_float.half().double() - exact).abs() / exact).mean()
        print(
            f"dot product of {length:5d}: mean relative error {half_error:.2e} with float16 partial sums, "
            f"{float_error:.2e} with float32 partial sums stored as float16"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    h, losses = activation_gradients(Detector(), args.steps, 2.0, args.seed)
    print(
        f"detector: loss {losses[0]:.4f} at the first step, {sum(losses[-10:]) / len(losses[-10:]):.4f} at the end"
    )
    report_gradients(h)
    report_update_ratio(args.seed)
    report_updates(args.steps, 5e-3, args.seed)
    report_accumulation(args.seed)


if __name__ == "__main__":
    main()
