"""Errors by who must act.

EdgeError
├── ConfigError      the operator: change a setting, a file or the machine
├── TransientError   nobody: try again later, with full jitter
├── RejectedUpdate   nobody: this update is barred by cohort and version
├── StorageError     the agent: shed load or recover; the operator if it lasts
└── DataError        whoever supplies the samples or the bundle
WireError            nobody: the bytes are dropped and counted (``edge_agent.wire``)
"""

from edge_agent.wire.errors import WireError

__all__ = [
    "ConfigError",
    "DataError",
    "EdgeError",
    "RejectedUpdate",
    "StorageError",
    "TransientError",
    "WireError",
]


class EdgeError(Exception):
    """A named problem, and the way out.

    Args:
        problem: what is wrong, naming the thing and the place.
        hint: what to do about it; may be empty.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem} ({hint})" if hint else problem)


class ConfigError(EdgeError):
    """A setting, or what it points at, is wrong; restarting does not help."""


class TransientError(EdgeError):
    """It may work later: the broker is away, a chunk is absent."""


class RejectedUpdate(EdgeError):
    """A release, bundle or weights file is refused.

    Args:
        reason: a stable word for machines (``bad_signature``, ``rollback``, ``fork`` ...).
        problem: the same for people.
        hint: what to do about it; may be empty.
    """

    def __init__(self, reason: str, problem: str, hint: str = "") -> None:
        self.reason = reason
        super().__init__(problem, hint)


class StorageError(EdgeError):
    """A file or database cannot be read or written."""


class DataError(EdgeError):
    """Samples, labels, weights or a bundle cannot be used as they are."""
