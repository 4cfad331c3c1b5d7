"""The environment of Ray's processes; to be prepared before Ray is imported."""

import os
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]


def prepare() -> None:
    """Sets what ray.env has, unless it is set, and where workers and proxies find this package."""
    for line in (HERE / "ray.env").read_text().splitlines():
        name, is_setting, value = line.partition("=")
        if is_setting and not line.startswith("#"):
            os.environ.setdefault(name, value)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        part for part in (str(HERE), os.environ.get("PYTHONPATH")) if part)
