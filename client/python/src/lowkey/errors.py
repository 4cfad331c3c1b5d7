"""The errors of calls, one class for each status that the server uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from .v1 import status_pb2

if TYPE_CHECKING:
    from .results import Generation

_DETAILS = "grpc-status-details-bin"


class LowkeyError(Exception):
    """A call that failed.

    `code` is gRPC's status, `message` names the field, its value and what was expected.
    `retry_after` is the time in seconds after which another try is worth it, where the server
    knows. `partial` is what a stream had come to, where it ended early but was accounted for.
    """

    def __init__(self, message: str, *, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
                 retry_after: float | None = None, partial: Generation | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.retry_after = retry_after
        self.partial = partial

    def __str__(self) -> str:
        after = "" if self.retry_after is None else f" (try again after {self.retry_after:g} s)"
        return f"{self.code.name}: {self.message}{after}"


class InvalidArgumentError(LowkeyError):
    """A field of the request is malformed or out of its range."""


class OutOfRangeError(LowkeyError):
    """Prompt and max_new_tokens pass the context or the whole cache."""


class NotFoundError(LowkeyError):
    """There is no model of this name."""


class AlreadyExistsError(LowkeyError):
    """A request with this request_id is still running."""


class FailedPreconditionError(LowkeyError):
    """The model cannot do this: it has no weights for the mechanism, or no chat template."""


class UnimplementedError(LowkeyError):
    """The server does not know the method or a field."""


class UnauthenticatedError(LowkeyError):
    """The token is missing or unknown."""


class PermissionDeniedError(LowkeyError):
    """The token lacks the right."""


class ResourceExhaustedError(LowkeyError):
    """The queue is full or a quota is used up; `retry_after` may say when to come again."""


class UnavailableError(LowkeyError):
    """The server cannot be reached, or shuts down."""


class DeadlineExceededError(LowkeyError):
    """The call's timeout passed."""


class RequestCancelledError(LowkeyError):
    """The call was cancelled."""


class InternalError(LowkeyError):
    """The server or the connection failed."""


_CLASSES: dict[grpc.StatusCode, type[LowkeyError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRangeError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPreconditionError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.CANCELLED: RequestCancelledError,
    grpc.StatusCode.INTERNAL: InternalError,
}


def error_of(error: Any, partial: Generation | None = None) -> LowkeyError:
    """Returns the error of a grpc.RpcError, whose call has code, details and trailing metadata."""
    code = error.code()
    return _CLASSES.get(code, LowkeyError)(error.details() or "", code=code,
                                           retry_after=_retry_after(error.trailing_metadata()),
                                           partial=partial)


def _retry_after(metadata: Any) -> float | None:
    """Reads google.rpc.RetryInfo, which lowkey.v1.RetryInfo equals on the wire."""
    for key, value in metadata or ():
        if key != _DETAILS:
            continue
        try:
            status = status_pb2.StatusDetails.FromString(value)
            for detail in status.details:
                if detail.type_url == "type.googleapis.com/google.rpc.RetryInfo":
                    delay = status_pb2.RetryInfo.FromString(detail.value).retry_delay
                    return float(delay.seconds) + delay.nanos / 1e9
        except Exception:  # a proxy's details need not be ours
            return None
    return None
