"""Host names, as people type them."""

import re

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
_CHARS = 253
"""Source: RFC 1123, 2.1, with the underscore that plants' names do hold."""


def is_host_name(text: str) -> bool:
    """Whether it can name a host; an address in digits and points can, too."""
    return len(text) <= _CHARS and _NAME.fullmatch(text) is not None
