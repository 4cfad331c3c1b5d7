"""A Llama decoder in plain PyTorch, small enough to train on a CPU.

Parameter names follow Hugging Face's LlamaForCausalLM, so that exporting is a copy. Head vectors
are rotated in halves, as there: dimension i turns with dimension i + head_dim / 2.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int = 4096
    hidden_dim: int = 256
    n_layers: int = 6
    n_heads: int = 8
    n_kv_heads: int = 4
    head_dim: int = 32
    ffn_dim: int = 768
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_tokens: int = 2048


def rope_table(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines, each [max_tokens, head_dim], the halves repeated."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.outer(
        torch.arange(config.max_tokens, dtype=torch.float64), config.rope_theta**-exponents
    )
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x [n_seqs, n_heads, n_tokens, head_dim] by its positions' angles."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.n_groups = config.n_heads // config.n_kv_heads
        self.head_dim = config.head_dim
        q_dim = config.n_heads * config.head_dim
        kv_dim = config.n_kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_dim, q_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden_dim, kv_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden_dim, kv_dim, bias=False)
        self.o_proj = nn.Linear(q_dim, config.hidden_dim, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        n_seqs, n_tokens, _ = x.shape
        return x.view(n_seqs, n_tokens, -1, self.head_dim).transpose(1, 2)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q = rotate(self.heads(self.q_proj(x)), cos, sin)
        k = rotate(self.heads(self.k_proj(x)), cos, sin).repeat_interleave(self.n_groups, dim=1)
        v = self.heads(self.v_proj(x)).repeat_interleave(self.n_groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_dim, config.ffn_dim, bias=False)
        self.up_proj = nn.Linear(config.hidden_dim, config.ffn_dim, bias=False)
        self.down_proj = nn.Linear(config.ffn_dim, config.hidden_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_dim, config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_dim, config.norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The output matrix is the embedding matrix."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.norm = RMSNorm(config.hidden_dim, config.norm_eps)
        cos, sin = rope_table(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.initialize()

    def initialize(self) -> None:
        """Layers start as the identity: what writes to the residual stream starts at zero."""
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for name, weight in self.layers.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Maps tokens [n_seqs, n_tokens] to logits [n_seqs, n_tokens, vocab_size]."""
        n_tokens = tokens.shape[1]
        cos, sin = self.cos[:n_tokens], self.sin[:n_tokens]
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross entropy in nats per token."""
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())
