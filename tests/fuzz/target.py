"""What is fed, and what may come of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Target:
    """One place where bytes from outside arrive.

    Attributes:
        name: part and place, ``bridge/event``.
        seeds: valid inputs.
        feed: takes an input; a word that it returns, or what it raises, is counted.
        errors: what it may raise.
        check: after every so many inputs: the part still lives; may raise anything.
    """

    name: str
    seeds: Sequence[bytes]
    feed: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    check: Callable[[], None] = field(default=lambda: None)
