"""Bytes that somebody else might send: arbitrary ones, and valid ones with something changed."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

LONGEST_BYTES = 600_000
ODD_TOKENS = (
    b"null", b"true", b"-1", b"1e999", b"-0", b"NaN", b"Infinity", b"9" * 400, b'"\\u0000"', b'"\\ud800"', b"[", b"{",
    b"[" * 3000, b'{"a":' * 800, b"\xff\xfe", b"\x00" * 64, b'"' + b"x" * 5000 + b'"', b",", b"]", b"}", b"[]", b"{}",
    b"\x28\xb5\x2f\xfd", b"\xff" * 8, b"\x00\x00\x00\x00\x00\x00\x00\x80", b'"schema":2', b"'''", b"../../etc/passwd",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**53, 2**63, 2**64, -(2**70), 1e308, -1e-308, 0.5,
    "", "\x00", "x" * 3000, "../x", "é" * 70,
    [], {}, [[]] * 50, {"": None}, ["a" * 64] * 70, [[1, 0]], {"kind": "train"}, list(range(600)),
)  # fmt: skip

Mutate = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def arbitrary(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """Bytes of no form; seldom many of them."""
    return rng.randbytes(rng.choice((0, 1, 8, 60, 400, 4000) if rng.random() < 0.98 else (70_000, LONGEST_BYTES)))


def flipped(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """A few bits are not what they were."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """It ends too early."""
    return seed[: rng.randrange(len(seed) + 1)]


def inserted(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """An odd token stands somewhere, perhaps instead of something."""
    at = rng.randrange(len(seed) + 1)
    return seed[:at] + rng.choice(ODD_TOKENS) + seed[at + rng.choice((0, 0, 1, 4, 20)) :]


def repeated(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """A slice comes again and again."""
    start = rng.randrange(len(seed) + 1)
    piece = seed[start : start + rng.randrange(1, 80)]
    times = rng.choice((1, 2, 10, 100)) if rng.random() < 0.99 else LONGEST_BYTES // (len(piece) or 1)
    return (seed[:start] + piece * times + seed[start:])[:LONGEST_BYTES]


def spliced(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """The head of one and the tail of another."""
    other = rng.choice(others)
    return seed[: rng.randrange(len(seed) + 1)] + other[rng.randrange(len(other) + 1) :]


def restructured(rng: random.Random, seed: bytes, others: Sequence[bytes]) -> bytes:
    """JSON with a value replaced, removed, or under another name; other bytes are flipped."""
    try:
        value = json.loads(seed)
    except (ValueError, RecursionError):
        return flipped(rng, seed, others)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _changed(rng, value)
    return json.dumps(value).encode()


MUTATIONS: tuple[Mutate, ...] = (arbitrary, flipped, cut, inserted, repeated, spliced, restructured, restructured)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One input."""
    return rng.choice(MUTATIONS)(rng, rng.choice(seeds), seeds)


def _changed(rng: random.Random, value: Any) -> Any:
    """A copy of a JSON value that differs in one place."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        rest = {name: item for name, item in value.items() if name != key}
        way = rng.random()
        if way < 0.1:
            return rest
        if way < 0.2:
            return rest | {key + rng.choice(("", "x", "\x00")): value[key], "": rng.choice(ODD_VALUES)}
        return rest | {key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [*value[:place], _changed(rng, value[place]), *value[place + rng.choice((0, 1, 1)) :]]
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 0.5, 2**31, -(2**53), 2**53))
    return rng.choice(ODD_VALUES)
