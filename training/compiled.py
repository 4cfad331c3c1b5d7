"""torch.compile for the pieces of a model that all mechanisms and windows share."""

import torch

from . import model as model_module
from .model import Layer, Llama, RMSNorm


def compile_pieces() -> None:
    """Compiles them in place, once for each shape, when each is first called."""
    # Windows, numbers of heads, dimensions, with and without gradients.
    torch._dynamo.config.recompile_limit = 64
    for owner, name in (
        (Layer, "feed_forward"),
        (Llama, "cross_entropy"),
        (Llama, "distillation"),
        (RMSNorm, "forward"),
        (model_module, "rotate"),
        (model_module, "taylorshift_windowed"),
        (model_module, "principal_keys_attention"),
    ):
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))
