"""Makes deploy/ray importable, here and in the processes that tests start."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(ROOT / "deploy" / "ray")

sys.path.insert(0, PACKAGE)
os.environ["PYTHONPATH"] = os.pathsep.join(
    part for part in (PACKAGE, os.environ.get("PYTHONPATH")) if part)
