"""Muon for the layers' matrices, AdamW for embeddings and norms.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/): momentum whose singular
values are all moved towards one by a Newton-Schulz iteration. It needs far fewer tokens than
AdamW here, and its products cost little beside those of a batch of some thousand tokens.
"""

from concurrent.futures import Executor

import torch
from torch import Tensor

# Quintic coefficients of the Muon post: steepest at zero, singular values end within [0.7, 1.2].
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalize(matrix: Tensor, n_iterations: int = 5) -> Tensor:
    a, b, c = NEWTON_SCHULZ
    x = matrix.mT if matrix.shape[-2] > matrix.shape[-1] else matrix
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(n_iterations):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if matrix.shape[-2] > matrix.shape[-1] else x


class Muon(torch.optim.Optimizer):
    """Every parameter is a matrix [n_out, n_in], updated on the pool's threads.

    Weight decay is decoupled.
    """

    def __init__(self, params, pool: Executor, lr: float, weight_decay: float):
        super().__init__(params, {"lr": lr, "momentum": 0.95, "weight_decay": weight_decay})
        self.pool = pool

    @torch.no_grad()
    def step(self, closure=None) -> None:
        assert closure is None
        for group in self.param_groups:
            list(self.pool.map(lambda weight: self.update(weight, group), group["params"]))

    @torch.no_grad()
    def update(self, weight: Tensor, group: dict) -> None:
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        average = state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
        nesterov = weight.grad.lerp(average, group["momentum"])
        # A matrix with more outputs than inputs gets a longer step, so that the change of an
        # output coordinate is alike for all shapes.
        scale = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(orthogonalize(nesterov), alpha=-group["lr"] * scale)


def make_optimizers(model: torch.nn.Module, pool: Executor, muon_lr: float, adam_lr: float):
    """Returns the optimizers; each group remembers its full rate as `peak_lr`."""
    matrices, others = [], []
    for name, weight in model.named_parameters():
        (matrices if name.startswith("layers.") and weight.dim() == 2 else others).append(weight)
    optimizers = [
        Muon(matrices, pool, lr=muon_lr, weight_decay=0.1),
        torch.optim.AdamW(others, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers
