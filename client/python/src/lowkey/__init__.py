"""A client of lowkey, the server for language models whose requests choose their attention.

    import lowkey

    with lowkey.Client("127.0.0.1:50051") as client:
        print(client.generate("Once upon a time", attention="taylorshift").text)

`AsyncClient` has the same methods for asyncio. `lowkey.v1` holds the generated
messages and stubs.
"""

import importlib.metadata

from .aio import AsyncClient, AsyncStream
from .client import Client, Stream
from .errors import (AlreadyExistsError, DeadlineExceededError, FailedPreconditionError,
                     InternalError, InvalidArgumentError, LowkeyError, NotFoundError,
                     OutOfRangeError, PermissionDeniedError, RequestCancelledError,
                     ResourceExhaustedError, UnauthenticatedError, UnavailableError,
                     UnimplementedError)
from .options import (Attention, ChatOptions, GenerateOptions, Message, MessageLike,
                      RequestOptions, ResponseFormat, Tls, ToolCall)
from .results import (Architecture, AttentionReport, Choice, Crossover, Defaults, Delta,
                      FinishReason, Generation, Limits, MeasuredQuality, MeasuredShare, Mechanism,
                      ModelInfo, PerplexityRatio, PromptToken, Sampling, Score, Scores, Stats,
                      Timings, Token, Tokenization, TokenLogprob, Usage)

__version__ = importlib.metadata.version("lowkey-client")

__all__ = [
    "AlreadyExistsError", "Architecture", "AsyncClient", "AsyncStream", "Attention",
    "AttentionReport", "ChatOptions", "Choice", "Client", "Crossover", "DeadlineExceededError",
    "Defaults", "Delta", "FailedPreconditionError", "FinishReason", "GenerateOptions",
    "Generation", "InternalError", "InvalidArgumentError", "Limits", "LowkeyError",
    "MeasuredQuality", "MeasuredShare", "Mechanism", "Message", "MessageLike", "ModelInfo",
    "NotFoundError", "OutOfRangeError", "PermissionDeniedError", "PerplexityRatio", "PromptToken",
    "RequestCancelledError", "RequestOptions", "ResourceExhaustedError", "ResponseFormat", "Sampling", "Score", "Scores",
    "Stats", "Stream", "Timings", "Tls", "Token", "TokenLogprob", "Tokenization", "ToolCall",
    "UnauthenticatedError", "UnavailableError", "UnimplementedError", "Usage", "__version__",
]
