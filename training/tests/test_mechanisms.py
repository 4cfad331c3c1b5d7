"""Mechanisms against plain formulas in double precision."""

import unittest

import torch

from ..mechanisms import (
    CHUNK_TOKENS,
    orthogonal_iteration,
    principal_approximation,
    principal_keys_attention,
    rotate,
    softmax_attention,
    taylor,
    taylor_features,
    taylorshift_direct,
    taylorshift_windowed,
)
from ..model import Llama, ModelConfig


def heads(n_heads: int, n_tokens: int, dim: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, n_heads, n_tokens, dim, dtype=torch.float64, generator=generator)


def windowed_by_pairs(q, k, v, tau, tau_window, window_tokens):
    n_tokens = q.shape[2]
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    cosines = q @ k.mT
    chunk = torch.arange(n_tokens) // CHUNK_TOKENS
    near = chunk >= chunk[:, None] - window_tokens // CHUNK_TOKENS
    far_weights = taylor(tau[:, None, None] * cosines)
    weights = torch.tril(
        torch.where(near, torch.exp(tau_window[:, None, None] * cosines), far_weights)
    )
    return weights @ v / weights.sum(-1, keepdim=True)


class TaylorShift(unittest.TestCase):
    def test_features_give_the_polynomial(self):
        a, b = heads(2, 5, 8, 1), heads(2, 5, 8, 2)
        torch.testing.assert_close(taylor_features(a) @ taylor_features(b).mT, taylor(a @ b.mT))

    def test_window_and_state_equal_the_sum_over_pairs(self):
        tau = torch.tensor([3.0, 8.0, 15.0])
        tau_window = torch.tensor([10.0, 2.0, 25.0])
        for n_tokens in (1, 63, 64, 200, 449):
            for window in (0, 64, 128):
                q, k, v = (
                    heads(3, n_tokens, 8, 1),
                    heads(3, n_tokens, 8, 2),
                    heads(3, n_tokens, 16, 3),
                )
                wanted = windowed_by_pairs(q, k, v, tau, tau_window, window)
                got = taylorshift_windowed(q, k, v, tau, tau_window, window)
                torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-4)

    def test_a_later_token_changes_nothing_before_it(self):
        q, k, v = (heads(2, 300, 8, seed) for seed in (1, 2, 3))
        tau = torch.tensor([5.0, 9.0])
        before = taylorshift_windowed(q, k, v, tau, tau, 64)
        k[:, :, 250:], v[:, :, 250:] = 7.0, -7.0
        torch.testing.assert_close(
            taylorshift_windowed(q, k, v, tau, tau, 64)[:, :, :250], before[:, :, :250]
        )

    def test_heads_that_share_keys_equal_heads_with_copies(self):
        q, k, v = heads(6, 300, 8, 1), heads(2, 300, 8, 2), heads(2, 300, 16, 3)
        tau, tau_window = torch.linspace(3, 12, 6), torch.linspace(20, 2, 6)
        shared = taylorshift_windowed(q, k, v, tau, tau_window, 64)
        copies = (x.repeat_interleave(3, dim=1) for x in (k, v))
        torch.testing.assert_close(taylorshift_windowed(q, *copies, tau, tau_window, 64), shared)

    def test_scores_of_fewer_dimensions_start_with_pairs_that_turn_alike(self):
        shape = {"hidden_dim": 64, "n_heads": 2, "n_kv_heads": 1, "head_dim": 32, "ffn_dim": 32}
        model = Llama(ModelConfig(
            **shape, n_layers=1, vocab_size=8, score_dim=8, mechanisms=("standard", "taylorshift")
        ))  # fmt: skip
        own, standard = (model.layers[0].attention[m] for m in ("taylorshift", "standard"))
        torch.nn.init.normal_(standard.wo)
        model.start_from_standard("taylorshift")
        torch.testing.assert_close(own.wo, standard.wo)
        x = heads(1, 20, 64, 1)[0, 0].float()
        chosen = [*range(0, 16, 4), *range(16, 32, 4)]
        for name in ("wq", "wk"):
            few, all_dims = (
                rotate(part.heads(x, name, (1, 20), dim), *model.rope[dim][:, :20])
                for part, dim in ((own, 8), (standard, 32))
            )
            torch.testing.assert_close(few, all_dims[..., chosen])

    def test_direct_scales_with_the_visible_tokens(self):
        q, k, v = (heads(1, 9, 4, seed) for seed in (1, 2, 3))
        out = taylorshift_direct(q, k, v, torch.tensor([2.0]))
        torch.testing.assert_close(out[0, 0, 0].double(), v[0, 0, 0] / 2, atol=1e-6, rtol=1e-6)


def principal_keys_by_pairs(q, k, v, rank, block, sinks, window):
    """Every score of every row, and which of the two keys it is of."""
    n_tokens = q.shape[2]
    n_closed = n_tokens // block
    far_k, far_v = k.clone(), v.clone()
    cut = n_closed * block
    blocks = (x[:, :, :cut].unflatten(2, (n_closed, block)) for x in (k, v))
    for far, approximate in zip(
        (far_k, far_v), principal_approximation(*blocks, rank, sinks), strict=True
    ):
        far[:, :, :cut] = approximate.flatten(2, 3)
    k, v, far_k, far_v = (
        x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v, far_k, far_v)
    )
    token = torch.arange(n_tokens)
    is_far = (token // block < token[:, None] // block - window) & (token >= sinks)
    scores = torch.where(is_far, q @ far_k.mT, q @ k.mT) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(token > token[:, None], -torch.inf).softmax(-1)
    return (weights * is_far) @ far_v + (weights * ~is_far) @ v


class PrincipalKeys(unittest.TestCase):
    def test_has_the_weights_of_every_pair(self):
        q, k, v = (heads(n, 100, 8, i).float() for i, n in enumerate((4, 2, 2)))
        for sinks, window in ((0, 0), (3, 0), (9, 0), (3, 1), (9, 2), (3, 9)):
            options = {"rank": 3, "block": 16, "sinks": sinks, "window": window}
            got = principal_keys_attention(q, k, v, **options)
            wanted = principal_keys_by_pairs(q, k, v, **options)
            torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4, msg=str(options))

    def test_full_rank_is_softmax_attention(self):
        q, k, v = heads(4, 100, 8, 1), heads(2, 100, 8, 2), heads(2, 100, 8, 3)
        got = principal_keys_attention(q, k, v, rank=16, block=16, sinks=0, window=0)
        wanted = softmax_attention(q, *(x.repeat_interleave(2, dim=1) for x in (k, v)))
        torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-4)

    def test_a_lower_rank_is_further_away(self):
        q, k, v = heads(2, 128, 8, 1), heads(2, 128, 8, 2), heads(2, 128, 8, 3)
        wanted = softmax_attention(q, k, v).float()
        errors = [
            (principal_keys_attention(q, k, v, rank, 32, 2, 1) - wanted).norm()
            for rank in (1, 4, 16)
        ]
        self.assertGreater(errors[0], errors[1])
        self.assertGreater(errors[1], errors[2])

    def test_iteration_finds_what_the_eigensolver_finds(self):
        columns = heads(3, 64, 96, 1)[0] * torch.linspace(3, 0, 96).exp()
        gram = columns @ columns.mT
        basis = orthogonal_iteration(gram, rank=16)
        unit = torch.eye(16, dtype=torch.float64).expand(3, 16, 16)
        torch.testing.assert_close(basis.mT @ basis, unit, atol=1e-9, rtol=0)
        held = (basis.mT @ gram @ basis).diagonal(dim1=-2, dim2=-1).sum(-1)
        most = torch.linalg.eigvalsh(gram)[..., -16:].sum(-1)
        self.assertTrue(bool((held > 0.99 * most).all()), held / most)
        nothing = orthogonal_iteration(torch.zeros_like(gram), rank=16)
        self.assertTrue(bool((nothing == 0).all()))


if __name__ == "__main__":
    unittest.main()
