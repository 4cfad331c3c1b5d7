"""Makes deploy/ray importable."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(ROOT / "deploy" / "ray")

sys.path.insert(0, PACKAGE)
