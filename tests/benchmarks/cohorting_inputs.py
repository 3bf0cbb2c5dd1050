"""Weights of clients that drifted: plain, and in three forms that are hard on a count or on a sort."""

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Form = Literal["gaussian", "changes of 1e-4", "heavy tails (t2)", "8-bit ties"]
FORMS: tuple[Form, ...] = get_args(Form)
SCALE = np.float32(0.05)
STEP = np.float32(0.2 / 127)  # of weights clipped at four standard deviations
Row = NDArray[np.float32]


def rows(form: Form, clients: int, parameters: int, seed: int = 0) -> Iterator[Row]:
    """The reference's weights, then each client's: float32, one after the other."""
    rng = np.random.default_rng(seed)
    base = _draw(form, parameters, rng)
    yield base
    for _ in range(clients):
        if form == "changes of 1e-4":
            yield base * (1 + np.float32(1e-4) * rng.standard_normal(parameters, np.float32))
        else:
            yield _draw(form, parameters, rng)


def fleet(form: Form, clients: int, parameters: int) -> tuple[NDArray[np.float32], Row]:
    """A matrix of clients and the reference."""
    drawn = rows(form, clients, parameters)
    reference = next(drawn)
    matrix = np.empty((clients, parameters), np.float32)
    for row, weights in zip(matrix, drawn, strict=True):
        row[:] = weights
    return matrix, reference


def _draw(form: Form, parameters: int, rng: np.random.Generator) -> Row:
    normal = SCALE * rng.standard_normal(parameters, np.float32)
    if form == "heavy tails (t2)":
        chi_square = np.maximum(rng.standard_exponential(parameters, np.float32), np.float32(1e-9))
        return np.asarray(normal / np.sqrt(chi_square), np.float32)
    if form == "8-bit ties":
        return np.asarray(STEP * np.clip(np.rint(normal / STEP), -127, 127), np.float32)
    return np.asarray(normal, np.float32)
