"""Which trainable tensors of a bundle are personal."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from edge_agent.errors import DataError


def personal_names(trainable: Sequence[str], patterns: Sequence[str]) -> frozenset[str]:
    """The trainable tensors whose values every gateway has for itself.

    Args:
        trainable: the bundle's, running statistics among them.
        patterns: shell patterns.

    Raises:
        DataError: a pattern matches none, or nothing would be left to share.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in trainable):
            raise DataError(f"no trainable tensor matches {pattern!r}", f"there are: {', '.join(trainable)}")
    chosen = frozenset(name for name in trainable if any(fnmatchcase(name, pattern) for pattern in patterns))
    if len(chosen) == len(trainable):
        raise DataError("every trainable tensor is personal", "leave one to share: rounds average what is shared")
    return chosen
