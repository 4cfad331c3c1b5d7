"""Addresses, credentials and methods, which both clients share."""

from __future__ import annotations

import ipaddress
import pathlib
from typing import Any

import grpc

from .options import Tls
from .v1 import admin_pb2, generation_pb2, models_pb2


# Path, request and response of each method.
GENERATE = ("/lowkey.v1.Generation/Generate", generation_pb2.GenerateRequest,
            generation_pb2.GenerateResponse)
STREAM = ("/lowkey.v1.Generation/GenerateStream", generation_pb2.GenerateRequest,
          generation_pb2.GenerateEvent)
SCORE = ("/lowkey.v1.Generation/Score", generation_pb2.ScoreRequest, generation_pb2.ScoreResponse)
TOKENIZE = ("/lowkey.v1.Generation/Tokenize", generation_pb2.TokenizeRequest,
            generation_pb2.TokenizeResponse)
DETOKENIZE = ("/lowkey.v1.Generation/Detokenize", generation_pb2.DetokenizeRequest,
              generation_pb2.DetokenizeResponse)
LIST_MODELS = ("/lowkey.v1.Models/ListModels", models_pb2.ListModelsRequest,
               models_pb2.ListModelsResponse)
GET_MODEL = ("/lowkey.v1.Models/GetModel", models_pb2.GetModelRequest, models_pb2.Model)
STATS = ("/lowkey.v1.Admin/Stats", admin_pb2.StatsRequest, admin_pb2.StatsResponse)
DRAIN = ("/lowkey.v1.Admin/Drain", admin_pb2.DrainRequest, admin_pb2.DrainResponse)


def options_of(address: str) -> tuple[tuple[str, Any], ...]:
    """Returns the options of a channel."""
    # Tokenize may answer with more than gRPC's 4 MiB.
    options: tuple[tuple[str, Any], ...] = (("grpc.max_receive_message_length", -1),)
    # A proxy of the environment is for other machines.
    return (*options, ("grpc.enable_http_proxy", 0)) if _is_loopback(address) else options


def metadata_of(address: str, token: str | None,
                tls: Tls | None) -> tuple[tuple[str, str], ...]:
    """Returns what every call carries. ValueError: the token would travel in clear to another
    machine."""
    if token is None:
        return ()
    if tls is None and not _is_loopback(address):
        raise ValueError(f"token: {address} is another machine, expected tls=lowkey.Tls(...)")
    return (("authorization", f"Bearer {token}"),)


def credentials_of(tls: Tls) -> grpc.ChannelCredentials:
    """Reads the files. OSError: one of them cannot be read."""
    return grpc.ssl_channel_credentials(root_certificates=_pem(tls.authority),
                                        private_key=_pem(tls.key),
                                        certificate_chain=_pem(tls.certificate))


def _pem(source: bytes | str | None) -> bytes | None:
    return pathlib.Path(source).read_bytes() if isinstance(source, str) else source


def _is_loopback(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]") or address
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
