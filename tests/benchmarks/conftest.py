"""Benchmarks beside torch are collected where that is; in CI it must be."""

import os
from importlib.util import find_spec

BESIDE_TORCH = ["test_agent_loop.py", "test_learning_quality.py", "test_training_step.py"]
collect_ignore = [] if find_spec("torch") or os.environ.get("CI") else BESIDE_TORCH
