"""A Llama decoder in plain PyTorch whose layers hold the weights of several mechanisms.

One trunk (embedding, norms, feed-forward) serves all mechanisms; each has projections of its own.
Head vectors are rotated in halves, as in Hugging Face's Llama.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .mechanisms import (
    PROJECTIONS,
    align,
    principal_keys_attention,
    rope_table,
    rotate,
    softmax_attention,
    taylorshift_direct,
    taylorshift_windowed,
)


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 4096
    hidden_dim: int = 256
    n_layers: int = 4
    n_heads: int = 8
    n_kv_heads: int = 8
    head_dim: int = 32
    ffn_dim: int = 768
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_tokens: int = 4096
    tied: bool = True
    # The mechanisms that the layers hold weights of.
    mechanisms: tuple[str, ...] = ("standard",)
    # super: l, the longest sequence.
    alignment_tokens: int = 512
    # taylorshift: the dimensions of a score and the exact window; window 0 is the paper's form.
    score_dim: int = 16
    window_tokens: int = 128
    # atp: what its adapters are trained with.
    atp_rank: int = 16
    atp_block: int = 128
    atp_window: int = 1
    # Mechanisms whose projections are the standard's plus low-rank changes of this rank.
    lora_rank: int = 32
    lora_mechanisms: tuple[str, ...] = ("atp",)

    def key_dim(self, mechanism: str) -> int:
        return self.score_dim if mechanism == "taylorshift" else self.head_dim


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


ATP_SINKS = 4  # atp keeps the first tokens exact (docs/atp.md).
# The projections that low-rank changes apply to.
LORA_PROJECTIONS = ("wq", "wk", "wv")


class Attention(nn.Module):
    """The weights of one mechanism in one layer, and its use.

    With a base its projections are the base's, some of them plus a low-rank change.
    """

    def __init__(self, config: ModelConfig, mechanism: str, base: "Attention | None"):
        super().__init__()
        self.config, self.mechanism = config, mechanism
        self.base = [base] if mechanism in config.lora_mechanisms else []  # not a submodule
        key_dim = config.key_dim(mechanism)
        grouped = mechanism in ("standard", "atp", "taylorshift")
        n_kv_heads = config.n_kv_heads if grouped else config.n_heads
        shapes = {
            "wq": (config.n_heads * key_dim, config.hidden_dim),
            "wk": (n_kv_heads * key_dim, config.hidden_dim),
            "wv": (n_kv_heads * config.head_dim, config.hidden_dim),
            "wo": (config.hidden_dim, config.n_heads * config.head_dim),
        }
        for name in PROJECTIONS[mechanism]:
            n_out, n_in = shapes[name]
            if not self.base:
                self.register_parameter(name, nn.Parameter(torch.empty(n_out, n_in)))
            elif name in LORA_PROJECTIONS:
                for part, shape in (
                    ("a", (config.lora_rank, n_in)),
                    ("b", (n_out, config.lora_rank)),
                ):
                    self.register_parameter(f"{name}_lora_{part}", nn.Parameter(torch.empty(shape)))
        if mechanism == "super":
            self.wa = nn.Parameter(torch.eye(config.alignment_tokens))
        if mechanism == "taylorshift":
            self.tau = nn.Parameter(torch.full((config.n_heads,), 10.0))
            if config.window_tokens:
                self.tau_window = nn.Parameter(torch.full((config.n_heads,), 10.0))

    def weight(self, name: str) -> Tensor | None:
        """Returns a projection [n_out, n_in], None where slices of the input take its place."""
        if not self.base:
            return getattr(self, name, None)
        weight = self.base[0].weight(name)
        if name not in LORA_PROJECTIONS:
            return weight
        return weight + getattr(self, f"{name}_lora_b") @ getattr(self, f"{name}_lora_a")

    def heads(self, x: Tensor, name: str, shape: tuple[int, int], head_dim: int) -> Tensor:
        """x [n_rows, hidden_dim] -> [n_seqs, n_heads or n_kv_heads, n_tokens, head_dim]."""
        weight = self.weight(name)
        y = x if weight is None else F.linear(x, weight)
        return y.view(*shape, -1, head_dim).transpose(1, 2)

    def forward(self, x: Tensor, shape: tuple[int, int], rope) -> Tensor:
        """x [n_seqs * n_tokens, hidden_dim] after the norm; shape is (n_seqs, n_tokens)."""
        config, key_dim = self.config, self.config.key_dim(self.mechanism)
        cos, sin = (table[: shape[1]] for table in rope[key_dim])
        q = rotate(self.heads(x, "wq", shape, key_dim), cos, sin)
        k = rotate(self.heads(x, "wk", shape, key_dim), cos, sin)
        v = self.heads(x, "wv", shape, config.head_dim)
        out = self.attend(q, k, v)
        return F.linear(out.transpose(1, 2).reshape(x.shape[0], -1), self.weight("wo"))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        config = self.config
        if self.mechanism == "atp":
            options = (config.atp_rank, config.atp_block, ATP_SINKS, config.atp_window)
            return principal_keys_attention(q, k, v, *options)
        if self.mechanism == "taylorshift" and config.window_tokens:
            return taylorshift_windowed(q, k, v, self.tau, self.tau_window, config.window_tokens)
        if self.mechanism == "super":
            v = align(self.wa, v)
        k, v = (x.repeat_interleave(config.n_heads // x.shape[1], dim=1) for x in (k, v))
        if self.mechanism == "taylorshift":
            return taylorshift_direct(q, k, v, self.tau)
        return softmax_attention(q, k, v)


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate = nn.Parameter(torch.empty(config.ffn_dim, config.hidden_dim))
        self.up = nn.Parameter(torch.empty(config.ffn_dim, config.hidden_dim))
        self.down = nn.Parameter(torch.empty(config.hidden_dim, config.ffn_dim))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


class Layer(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_dim, config.norm_eps)
        self.attention = nn.ModuleDict()
        for mechanism in config.mechanisms:
            base = self.attention["standard"] if "standard" in self.attention else None
            self.attention[mechanism] = Attention(config, mechanism, base)
        self.ffn_norm = RMSNorm(config.hidden_dim, config.norm_eps)
        self.ffn = FeedForward(config)

    def attend(self, x: Tensor, shape: tuple[int, int], rope, mechanism: str) -> Tensor:
        return x + self.attention[mechanism](self.attention_norm(x), shape, rope)

    def feed_forward(self, x: Tensor) -> Tensor:
        return x + self.ffn(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_dim))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.hidden_dim, config.norm_eps)
        self.head = None if config.tied else nn.Parameter(torch.empty_like(self.embedding))
        self.rope_dims = {config.key_dim(m) for m in config.mechanisms}
        for dim in self.rope_dims:
            table = torch.stack(rope_table(dim, config.rope_theta, config.max_tokens))
            self.register_buffer(f"rope_{dim}", table, persistent=False)
        self.initialize()

    def initialize(self) -> None:
        """Layers start as the identity: what writes to the residual stream starts at zero."""
        for name, weight in self.named_parameters():
            if name in ("embedding", "head"):
                nn.init.normal_(weight, std=0.02)
            elif name.endswith((".wo", ".down", "_lora_b")):
                nn.init.zeros_(weight)
            elif weight.dim() == 2 and not name.endswith(".wa"):
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    @torch.no_grad()
    def start_from_standard(self, mechanism: str) -> None:
        """Starts a mechanism's weights from the standard's, where their shapes allow it.

        Key heads that the standard shares are repeated, and scores of fewer dimensions start with
        pairs that turn as theirs do. What has no counterpart stays random, and then the output
        projection stays zero: the mechanism starts as the identity.
        """
        for layer in self.layers:
            own, standard = layer.attention[mechanism], layer.attention["standard"]
            if own.base:
                continue
            copied = True
            for name in PROJECTIONS[mechanism]:
                to, source = getattr(own, name), getattr(standard, name)
                if name in ("wk", "wv") and to.shape[0] > source.shape[0]:
                    heads = source.unflatten(0, (-1, self.config.head_dim))
                    n = to.shape[0] // source.shape[0]
                    source = heads.repeat_interleave(n, dim=0).flatten(0, 1)
                if mechanism == "taylorshift" and name in ("wq", "wk"):
                    source = self.every_nth_rotary_pair(source)
                if to.shape == source.shape and (name != "wo" or copied):
                    to.copy_(source)
                else:
                    copied = False
            if mechanism in ("efficient", "super"):
                own.wo.zero_()

    def every_nth_rotary_pair(self, weight: Tensor) -> Tensor:
        """[n head_dim, hidden_dim] -> [n score_dim, hidden_dim], where score_dim divides head_dim.

        RoPE turns pair i of score_dim dimensions as fast as pair i head_dim / score_dim of all.
        """
        config = self.config
        if config.head_dim % config.score_dim:
            return weight
        pairs = weight.unflatten(0, (-1, 2, config.head_dim // 2))
        return pairs[:, :, :: config.head_dim // config.score_dim].flatten(0, 2)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def rope(self) -> dict[int, Tensor]:
        """Cosines and sines, [2, max_tokens, head_dim], by the dimensions of a key."""
        return {dim: getattr(self, f"rope_{dim}") for dim in self.rope_dims}

    def hidden(self, tokens: Tensor, mechanism: str) -> Tensor:
        """Maps tokens [n_seqs, n_tokens] to what the head reads, [n_seqs * n_tokens, hidden]."""
        x = F.embedding(tokens.flatten(), self.embedding)
        for layer in self.layers:
            x = layer.attend(x, tuple(tokens.shape), self.rope, mechanism)
            x = layer.feed_forward(x)
        return self.norm(x)

    def forward(self, tokens: Tensor, mechanism: str = "standard") -> Tensor:
        """Maps tokens [n_seqs, n_tokens] to logits [n_seqs, n_tokens, vocab_size] in float32."""
        return self.logits(self.hidden(tokens, mechanism)).view(*tokens.shape, -1)

    def logits(self, x: Tensor) -> Tensor:
        return F.linear(x, self.embedding if self.head is None else self.head).float()

    def loss(self, tokens: Tensor, targets: Tensor, mechanism: str) -> Tensor:
        """Returns the mean cross entropy in nats per token."""
        return self.cross_entropy(self.hidden(tokens, mechanism), targets.flatten())

    def cross_entropy(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x), targets)

    def distillation(self, x: Tensor, teacher_x: Tensor, targets: Tensor) -> Tensor:
        """Half the cross entropy, half the distance to the teacher (Kullback-Leibler), in nats.

        x and teacher_x [n_rows, hidden_dim] are what the head reads; the teacher gets no gradient.
        """
        teacher = self.logits(teacher_x).detach().log_softmax(-1)
        logits = self.logits(x)
        distance = F.kl_div(logits.log_softmax(-1), teacher, log_target=True, reduction="batchmean")
        return 0.5 * F.cross_entropy(logits, targets) + 0.5 * distance
