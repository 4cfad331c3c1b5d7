"""Muon for the layers' matrices, AdamW for everything else.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose singular
values are all moved towards one by a Newton-Schulz iteration. It needs far fewer tokens than
AdamW here, and its products cost little beside those of a batch of some thousand tokens.
"""

from collections import defaultdict

import torch
from torch import Tensor

# Quintic coefficients of the Muon post: steepest at zero, singular values end within [0.7, 1.2].
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrices: Tensor, n_iterations: int = 5) -> Tensor:
    """Moves the singular values of matrices [n, n_out, n_in] towards one, in bfloat16."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if tall else matrices).bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(n_iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    """Every parameter is a matrix [n_out, n_in]; those of one shape are updated together.

    A matrix without a gradient stays as it is. Weight decay is decoupled.
    """

    def __init__(self, params, lr: float, weight_decay: float):
        super().__init__(params, {"lr": lr, "momentum": 0.95, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        assert closure is None
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[weight.shape].append(weight)
            for weights in by_shape.values():
                self.update(weights, group)

    def update(self, weights: list[Tensor], group: dict) -> None:
        directions = []
        for weight in weights:
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            average = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
            directions.append(weight.grad.lerp(average, group["momentum"]))
        # A matrix with more outputs than inputs gets a longer step, so that the change of an
        # output coordinate is alike for all shapes.
        n_out, n_in = weights[0].shape
        rate = group["lr"] * max(1.0, n_out / n_in) ** 0.5
        for weight, step in zip(weights, orthogonalize(torch.stack(directions)), strict=True):
            weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(step, alpha=-rate)


def kind_of(name: str, weight: Tensor) -> str:
    """Returns which rate a parameter has: matrix, temperature, alignment or other."""
    if ".tau" in name:
        return "temperature"
    if name.endswith(".wa"):
        return "alignment"
    return "matrix" if name.startswith("layers.") and weight.dim() == 2 else "other"


def make_optimizers(model: torch.nn.Module, rates: dict[str, float], weight_decay: float = 0.1):
    """Returns Muon and AdamW over the parameters that need gradients.

    rates has one peak rate for each kind of kind_of; each group remembers its own as `peak_lr`.
    """
    by_kind = defaultdict(list)
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            by_kind[kind_of(name, weight)].append(weight)
    matrices = by_kind.pop("matrix", [])
    optimizers = []
    if matrices:
        optimizers.append(Muon(matrices, lr=rates["matrix"], weight_decay=weight_decay))
    if by_kind:
        groups = [{"params": weights, "lr": rates[kind]} for kind, weights in by_kind.items()]
        optimizers.append(torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers
