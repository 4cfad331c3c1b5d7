"""What calls return. The names of times and sizes have their units: `ttft_us`, `cache_bytes`."""

from __future__ import annotations

import dataclasses
import enum

from .options import Attention


class FinishReason(str, enum.Enum):
    """Why a choice ended."""

    UNSPECIFIED = "unspecified"
    STOP_TOKEN = "stop_token"
    STOP_TEXT = "stop_text"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """One of the most likely tokens at a position. `logprob` is a natural logarithm."""

    token_id: int
    text: str
    logprob: float


@dataclasses.dataclass(frozen=True)
class Token:
    """A token; `logprob` is None unless log-probabilities were asked for."""

    token_id: int
    logprob: float | None
    top_logprobs: tuple[TokenLogprob, ...] = ()


@dataclasses.dataclass(frozen=True)
class PromptToken:
    """A token of the prompt, from position 1 on."""

    position: int
    token: Token


@dataclasses.dataclass(frozen=True)
class Delta:
    """New text and tokens of one choice. Text may lag behind tokens."""

    choice: int
    text: str
    tokens: tuple[Token, ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of the n answers."""

    index: int
    text: str
    tokens: tuple[Token, ...]
    finish_reason: FinishReason
    stop_text: str | None
    generated_tokens: int


@dataclasses.dataclass(frozen=True)
class Usage:
    """Tokens, over all choices."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    drafted_tokens: int
    accepted_tokens: int


@dataclasses.dataclass(frozen=True)
class Timings:
    """Times in microseconds."""

    queue_us: int
    prefill_us: int
    decode_us: int
    ttft_us: int


@dataclasses.dataclass(frozen=True)
class Crossover:
    """From `prompt_tokens` on, "auto" would choose `to_mechanism`."""

    from_mechanism: str
    to_mechanism: str
    prompt_tokens: int


@dataclasses.dataclass(frozen=True)
class AttentionReport:
    """The mechanism that ran and the memory that it held."""

    mechanism: str
    reason: str
    rank: int | None
    compressed_blocks: int
    cache_bytes: int
    peak_cache_bytes: int
    standard_cache_bytes: int
    approximate: bool
    state_tokens: int
    coded_tokens: int
    options: str
    crossovers: tuple[Crossover, ...] = ()

    @property
    def cache_share(self) -> float:
        """The bytes at the end, over those that mechanism standard would hold."""
        return self.cache_bytes / self.standard_cache_bytes if self.standard_cache_bytes else 0.0


@dataclasses.dataclass(frozen=True)
class Generation:
    """A whole answer."""

    request_id: str
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings
    seed: int
    attention: AttentionReport
    prompt_logprobs: tuple[PromptToken, ...] = ()

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text if self.choices else ""


@dataclasses.dataclass(frozen=True)
class Score:
    """A continuation's log-probability: the sum over its tokens."""

    logprob: float
    tokens: tuple[Token, ...]
    greedy: bool


@dataclasses.dataclass(frozen=True)
class Scores:
    """One score per continuation, in their order; `best` is the index of the highest."""

    scores: tuple[Score, ...]
    best: int
    usage: Usage


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """Token ids with their pieces; `rendered_text` is what the template made of a conversation."""

    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]
    rendered_text: str


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The shape of a model."""

    name: str
    vocab_size: int
    hidden_dim: int
    ffn_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    sliding_window: int | None
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may ask for at most."""

    context_tokens: int
    max_running_seqs: int
    cache_bytes: int
    max_choices: int
    max_stop_texts: int
    max_stop_text_bytes: int
    max_logprobs: int
    max_continuations: int
    max_message_bytes: int


@dataclasses.dataclass(frozen=True)
class PerplexityRatio:
    """Perplexity over standard's in windows of so many tokens."""

    tokens: int
    ratio: float


@dataclasses.dataclass(frozen=True)
class MeasuredShare:
    """A share of what was asked that the model got right, in windows of so many tokens."""

    tokens: int
    share: float


@dataclasses.dataclass(frozen=True)
class MeasuredQuality:
    """How well the model does with a mechanism and its options (`lowkey eval --record`)."""

    options: str
    perplexity_ratios: tuple[PerplexityRatio, ...]
    recalled_digits: tuple[MeasuredShare, ...]
    copied_tokens: tuple[MeasuredShare, ...]
    right_answers: float | None


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A mechanism that a model can be asked for."""

    name: str
    approximate: bool
    max_tokens: int | None
    cache_bytes_per_token: float
    perplexity_ratio: float | None
    perplexity_ratios: tuple[PerplexityRatio, ...] = ()
    measured: tuple[MeasuredQuality, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn where a request does not say."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None


@dataclasses.dataclass(frozen=True)
class Defaults:
    """What fields take that a request leaves out."""

    sampling: Sampling
    attention: Attention
    max_new_tokens: int
    draft: str


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A served model."""

    name: str
    architecture: Architecture
    limits: Limits
    mechanisms: tuple[Mechanism, ...]
    defaults: Defaults
    dtype: str
    weight_bytes: int
    chat_refusal: str

    @property
    def has_chat(self) -> bool:
        """Whether the model takes conversations."""
        return not self.chat_refusal


@dataclasses.dataclass(frozen=True)
class Stats:
    """The server's counters."""

    version: str
    uptime_s: float
    running_requests: int
    waiting_requests: int
    finished_requests: int
    cancelled_requests: int
    prompt_tokens: int
    generated_tokens: int
    steps: int
    cache_bytes_total: int
    cache_bytes_used: int
    weight_bytes: int
    dtype: str
    instruction_set: str
    threads: int
    preemptions: int
    cached_prompt_tokens: int
    cache_bytes_prefix: int
    drafted_tokens: int
    accepted_tokens: int
