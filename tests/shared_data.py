"""Where public research data lies: beside the repository, or where ``EDGE_DATA`` says."""

import os
from pathlib import Path

DATA = Path(os.environ.get("EDGE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
