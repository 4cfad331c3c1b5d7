"""The attention mechanisms, in PyTorch and differentiable.

Every function maps queries, keys and values [n_seqs, n_heads, n_tokens, dim] to outputs of the
values' shape, and is causal. Keys and values have as many heads as queries, groups repeated,
unless a function says that they are those of the KV heads. docs/atp.md, docs/taylorshift.md and
docs/bundles.md have the formulas, and the tests under tests/engine/attention compare the server
with the same in double precision.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

# A chunk of TaylorShift: its state stands for whole chunks of this many tokens.
CHUNK_TOKENS = 64
# Rows that taylorshift_direct weighs at once: their weights stay in a core's cache.
DIRECT_ROWS = 128

# The projections that a mechanism has: the others' places are taken by slices of its input.
PROJECTIONS = {
    "standard": ("wq", "wk", "wv", "wo"),
    "atp": ("wq", "wk", "wv", "wo"),
    "optimised": ("wq", "wk", "wo"),
    "efficient": ("wq", "wo"),
    "super": ("wq", "wo"),
    "taylorshift": ("wq", "wk", "wv", "wo"),
}
MECHANISMS = tuple(PROJECTIONS)


def rope_table(head_dim: int, base: float, n_tokens: int) -> tuple[Tensor, Tensor]:
    """Returns cosines and sines, each [n_tokens, head_dim], the halves repeated."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.outer(torch.arange(n_tokens, dtype=torch.float64), base**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x [n_seqs, n_heads, n_tokens, head_dim] by its positions' angles."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def align(alignment: Tensor, v: Tensor) -> Tensor:
    """Super Attention's V' = tril(W_A) V; alignment is [l, l], l at least the tokens."""
    n_tokens = v.shape[2]
    if n_tokens > alignment.shape[0]:
        raise ValueError(f"super: {n_tokens} tokens, W_A holds {alignment.shape[0]}")
    return torch.tril(alignment[:n_tokens, :n_tokens]) @ v


def taylor(s: Tensor) -> Tensor:
    return 1 + s + 0.5 * s * s


def taylor_features(x: Tensor) -> Tensor:
    """phi with phi(a) . phi(b) = 1 + a.b + (a.b)^2 / 2; its length is 1 + d + d d.

    Both orders of a pair are kept: choosing one of them costs a gather, whose gradient is slow.
    """
    pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) * 0.5**0.5
    return torch.cat((torch.ones_like(x[..., :1]), x, pairs), dim=-1)


def taylorshift_direct(q, k, v, tau: Tensor) -> Tensor:
    """The paper's order-2 Taylor softmax, causal. tau [n_heads].

    q and k become unit vectors, s = tau q.k, and outputs are scaled by sqrt(visible tokens / d).
    """
    n_tokens, d = v.shape[2], v.shape[3]
    q = F.normalize(q.float(), dim=-1) * tau[:, None, None]
    k = F.normalize(k.float(), dim=-1).mT
    values = F.pad(v.float(), (0, 1), value=1.0)
    parts = []
    for start in range(0, n_tokens, DIRECT_ROWS):
        end = min(start + DIRECT_ROWS, n_tokens)
        weights = torch.tril(taylor(q[:, :, start:end] @ k[..., :end]), diagonal=start)
        parts.append(weights @ values[:, :, :end])
    out = torch.cat(parts, dim=2)
    visible = torch.arange(1, n_tokens + 1, device=v.device)[:, None]
    return out[..., :-1] / out[..., -1:] * torch.sqrt(visible / d)


def chunked(x: Tensor) -> Tensor:
    """[n_seqs, n_heads, n_tokens, d] -> [n_seqs, n_heads, n_chunks, CHUNK_TOKENS, d]."""
    return x.unflatten(2, (-1, CHUNK_TOKENS))


def by_kv_head(x: Tensor, n_kv_heads: int) -> Tensor:
    """Puts the rows of all heads that share a KV head together, head after head.

    [n_seqs, n_heads, n_chunks, C, d] -> [n_seqs, n_kv_heads, n_chunks, n_groups C, d].
    """
    return x.unflatten(1, (n_kv_heads, -1)).transpose(2, 3).flatten(3, 4)


def near_view(x: Tensor, n_window_chunks: int) -> Tensor:
    """For each chunk its own tokens after those of the chunks of the window before it.

    [.., n_chunks, C, d] -> [.., n_chunks, (n_window_chunks + 1) C, d]; zeros before the first.
    """
    n_chunks = x.shape[2]
    padded = F.pad(x, (0, 0, 0, 0, n_window_chunks, 0))
    parts = [padded[:, :, i : i + n_chunks] for i in range(n_window_chunks + 1)]
    return torch.cat(parts, dim=3)


def near_mask(n_chunks: int, n_window_chunks: int, device) -> Tensor:
    """[n_chunks, C, (n_window_chunks + 1) C]: which tokens of near_view a row sees."""
    row = torch.arange(CHUNK_TOKENS, device=device)[:, None]
    column = torch.arange((n_window_chunks + 1) * CHUNK_TOKENS, device=device)
    seen = column <= n_window_chunks * CHUNK_TOKENS + row
    chunk = torch.arange(n_chunks, device=device)[:, None, None]
    return seen & (column >= (n_window_chunks - chunk) * CHUNK_TOKENS)


def taylorshift_windowed(q, k, v, tau: Tensor, tau_window: Tensor, window_tokens: int) -> Tensor:
    """TaylorShift with an exact window: exp of near scores, their polynomial for far tokens.

    Near a row are the tokens of its own chunk and of the window_tokens / CHUNK_TOKENS chunks
    before it; near scores are tau_window q.k of unit vectors, far ones tau q.k. tau and tau_window
    are [n_heads]; k and v are those of the KV heads. Far tokens are read through the state, so the
    cost is linear in n_tokens.
    """
    (n_heads, n_tokens), n_kv_heads = q.shape[1:3], k.shape[1]
    padding = -n_tokens % CHUNK_TOKENS
    if padding:
        q, k, v = (F.pad(x, (0, 0, 0, padding)) for x in (q, k, v))
    n_window = window_tokens // CHUNK_TOKENS
    dtype = v.dtype
    q = chunked(F.normalize(q.float(), dim=-1))
    k = chunked(F.normalize(k.float(), dim=-1))
    v = chunked(v)
    n_chunks = v.shape[2]

    near_q = by_kv_head(q * tau_window[:, None, None, None], n_kv_heads).to(dtype)
    scores = near_q @ near_view(k.to(dtype), n_window).mT
    mask = near_mask(n_chunks, n_window, q.device).repeat(1, n_heads // n_kv_heads, 1)
    scores = scores.float().masked_fill(~mask, -torch.inf)
    top = scores.amax(-1, keepdim=True).clamp_min(0).detach()
    weights = torch.exp(scores - top)
    out = (weights.to(dtype) @ near_view(v, n_window)).float()
    total = weights.sum(-1, keepdim=True)

    n_far = n_chunks - n_window - 1
    if n_far > 0:
        ones = torch.ones_like(v[..., :1])
        values = torch.cat((v, ones), dim=-1)[:, :, :n_far].float()
        with torch.autocast(device_type=v.device.type, enabled=False):
            state = torch.cumsum(taylor_features(k[:, :, :n_far]).mT @ values, dim=2)
            far_q = q[:, :, n_window + 1 :] * tau[:, None, None, None]
            far = taylor_features(by_kv_head(far_q, n_kv_heads)) @ state
        far = F.pad(far * torch.exp(-top[:, :, n_window + 1 :]), (0, 0, 0, 0, n_window + 1, 0))
        out = out + far[..., :-1]
        total = total + far[..., -1:]
    # [n_seqs, n_kv_heads, n_chunks, n_groups C, d] -> [n_seqs, n_heads, n_tokens, d]
    out = (out / total).to(dtype).unflatten(3, (-1, CHUNK_TOKENS)).transpose(2, 3)
    return out.flatten(1, 2).flatten(2, 3)[:, :, :n_tokens]


def orthogonal_iteration(gram: Tensor, rank: int, n_iterations: int = 8) -> Tensor:
    """Approaches leading_basis by products alone, for many matrices at once.

    Where eigenvalues are close to each other, the columns span others than the leading vectors, and
    hold nearly as much (Golub and Van Loan, Matrix Computations, 8.2.4).
    """
    n = gram.shape[-1]
    gram = gram.double()
    generator = torch.Generator().manual_seed(1)
    basis = torch.randn(n, rank, dtype=gram.dtype, generator=generator).to(gram.device)
    unit = torch.eye(rank, dtype=gram.dtype, device=gram.device)
    for _ in range(n_iterations):
        y = gram @ basis
        inner = y.mT @ y
        # A matrix of a lower rank leaves columns that are nearly zero.
        floor = 1e-14 * inner.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] + 1e-300
        triangle = torch.linalg.cholesky_ex(inner + floor * unit).L
        basis = torch.linalg.solve_triangular(triangle.mT, y, upper=True, left=False)
    return basis


@torch.compiler.disable
def leading_basis(gram: Tensor, rank: int) -> Tensor:
    """Returns the `rank` leading eigenvectors [.., n, rank] of gram [.., n, n], in any order.

    On a GPU they are approached: its eigensolver takes one matrix after the other, 2 ms each.
    """
    if gram.device.type == "cpu":
        return torch.linalg.eigh(gram).eigenvectors[..., -rank:]
    return orthogonal_iteration(gram, rank).to(gram.dtype)


def principal_approximation(k: Tensor, v: Tensor, rank: int, sinks: int) -> tuple[Tensor, Tensor]:
    """k and v [n_seqs, n_kv_heads, n_blocks, block, d] of `rank` principal keys and values a block.

    The first `sinks` tokens of the first block take no part.

    All KV heads of a block share one basis: the first left singular vectors of their centered keys
    and values, each scaled to one norm (ATP, Section 3; docs/atp.md). No gradient passes the basis.
    """
    held = torch.ones(k.shape[2:4], device=k.device, dtype=k.dtype)
    held[0, :sinks] = 0
    held = held[..., None]
    k_mean, v_mean = ((x * held).sum(3, keepdim=True) / held.sum(1, keepdim=True) for x in (k, v))
    k, v = (k - k_mean) * held, (v - v_mean) * held
    with torch.no_grad(), torch.autocast(k.device.type, enabled=False):
        scaled = [x / x.norm(dim=(3, 4), keepdim=True).clamp_min(1e-12) for x in (k, v)]
        columns = torch.cat(scaled, dim=-1)
        # [n_seqs, n_blocks, block, n_kv_heads * 2d]
        columns = columns.permute(0, 2, 3, 1, 4).flatten(3)
        gram = columns @ columns.mT
        basis = leading_basis(gram, rank)[:, None]
    project = basis @ basis.mT
    return k_mean + project @ k, v_mean + project @ v


def principal_keys_attention(q, k, v, rank: int, block: int, sinks: int, window: int) -> Tensor:
    """ATP with its compressed cache in the loop: far tokens are read through principal keys.

    Far from a row are the whole blocks older than its own and the `window` blocks before it, less
    the first `sinks` tokens. k and v are those of the KV heads; queries may have more heads.
    """
    n_tokens, n_groups = q.shape[2], q.shape[1] // k.shape[1]
    n_closed = n_tokens // block
    near = [x.float() for x in (k, v)]
    far = near
    if n_closed > window:
        blocks = [x[:, :, : n_closed * block].unflatten(2, (n_closed, block)) for x in near]
        far = [x.flatten(2, 3) for x in principal_approximation(*blocks, rank, sinks)]
    near, far = ([x.repeat_interleave(n_groups, dim=1) for x in pair] for pair in (near, far))
    parts = []
    for first in range(0, n_tokens, block):
        end = min(first + block, n_tokens)
        first_near = max(first - window * block, 0)
        first_far = min(sinks, first_near)
        cuts = (slice(first_far), slice(first_far, first_near), slice(first_near, end))
        read = [
            torch.cat([x[:, :, cuts[0]], y[:, :, cuts[1]], x[:, :, cuts[2]]], dim=2)
            for x, y in zip(near, far)
        ]
        seen = torch.ones(end - first, end, dtype=torch.bool, device=q.device).tril(first)
        parts.append(
            F.scaled_dot_product_attention(q[:, :, first:end].float(), *read, attn_mask=seen)
        )
    return torch.cat(parts, dim=2)
