"""The models to serve, and on what: the JSON file of `start.py --config`."""

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Model:
    """One model: a deployment of its own, whose replicas run one `lowkey serve` each."""

    name: str  # the name that the server gives the model: its folder's or file's
    path: str  # the same on every machine: a folder, a GGUF file, or hf:OWNER/NAME
    aliases: tuple[str, ...] = ()  # further names of the model over HTTP
    min_replicas: int = 1
    max_replicas: int = 1
    # Running and waiting requests of a replica that the autoscaler aims at.
    target_requests: float = 16.0
    upscale_delay_s: float = 30.0  # how long more replicas must be called for
    downscale_delay_s: float = 600.0
    threads: int = 1  # compute threads, and the processor cores that Ray sets aside
    device: str = ""  # for `lowkey serve --device`; Ray then sets a GPU aside
    flags: tuple[str, ...] = ()  # further flags of `lowkey serve`
    binary: str = ""  # the lowkey to run; empty: build/lowkey of this tree, or the one in PATH
    # With --tokens among the flags: a file that holds a token with the right "read", for Stats.
    token_file: str = ""
    start_timeout_s: float = 600.0
    grace_s: float = 30.0  # how long requests may go on once a replica is to end

    def command(self) -> list[str]:
        """Returns the command line of one server, on a free port that only its machine reaches."""
        options = ["--device", self.device] if self.device else []
        for alias in self.aliases:
            options += ["--model-alias", alias]
        return [self.binary or default_binary(), "serve", "--json", "--host", "127.0.0.1",
                "--port", "0", "--model", self.path, "--threads", str(self.threads),
                "--grace", f"{self.grace_s:g}s", *options, *self.flags]

    @staticmethod
    def read(values: dict[str, Any]) -> "Model":
        """Returns the model of a JSON object. ValueError names a field that is not known."""
        known = {field.name for field in fields(Model)}
        for name in values:
            if name not in known:
                raise ValueError(f"{name}: not a field of a model, expected one of "
                                 f"{', '.join(sorted(known))}")
        for name in ("name", "path"):
            if not isinstance(values.get(name), str) or not values[name]:
                raise ValueError(f"{name}: {values.get(name)!r}, expected a text")
        lists = {name: tuple(values.get(name, ())) for name in ("aliases", "flags")}
        return Model(**{**values, **lists})


def default_binary() -> str:
    built = ROOT / "build" / "lowkey"
    return str(built) if built.exists() else shutil.which("lowkey") or "lowkey"


def demo() -> Model:
    return Model(name="tales", path=str(ROOT / "models" / "tales"), max_replicas=2)


def read_file(path: str) -> list[Model]:
    """Reads {"models": [{"name": ..., "path": ...}, ...]}."""
    content = json.loads(Path(path).read_text())
    if not isinstance(content, dict) or not isinstance(content.get("models"), list):
        raise ValueError('expected an object with an array "models"')
    models = [Model.read(values) for values in content["models"]]
    names = [model.name for model in models]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"models: {names}, expected one or more, each with its own name")
    return models
