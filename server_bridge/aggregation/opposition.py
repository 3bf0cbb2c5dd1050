"""Who works against the rest of its cohort: evidence over rounds, and a name for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server_bridge.aggregation.lengths import change_length
from server_bridge.aggregation.means import Tensors
from server_bridge.aggregation.robust import HOSTILE_SHARE, hostile_count
from server_bridge.aggregation.screening import Refusal

BLOCK_VALUES = 2**16
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bearing:
    """How the changes of a cohort lie to each other.

    Attributes:
        cosines: (n,) of each change with the mean direction of the others.
        errors: (n,) standard deviation of that by chance: if the signs of all coordinates were drawn anew.
        agreement: (n,) mean cosine of the others among themselves.
    """

    cosines: Vector
    errors: Vector
    agreement: Vector


@dataclass(frozen=True, slots=True)
class OppositionRule:
    """When a client is held to work against its cohort.

    A round is evidence as far as the others agree: where honest clients have learned what they
    share, each pulls to its own optimum, and against the rest, which tells nothing. Evidence adds
    up over the rounds of an adaptation, since a hostile client whose updates do not count meets a
    cohort that it no longer disturbs, and is harder to see from then on.

    Direction alone cannot tell a turned sign from an honest client that drifted and did not flag:
    both work against the others (cosines of -0.08 to -0.18 and of -0.04 to -0.17 in round 1 on the
    motion-sensor task). So nobody is judged by it: who opposes is parted from the cohort, as if it had
    flagged, and left out only where the adaptation has regrouped it before.

    Attributes:
        hostile_share: at most this share of a cohort opposes it, rounded up, and always a minority.
        floor: opposing from this sum of evidence downwards.
        full: the others' agreement from which on a round counts whole.
        deviations: a cosine within so many of its chance errors is no evidence.
        best, worst: bounds of the sum, so that neither trust nor distrust is without end.
    """

    hostile_share: float = HOSTILE_SHARE
    floor: float = -0.05
    full: float = 0.1
    deviations: float = 3.0
    best: float = 0.3
    worst: float = -0.5

    def judge(
        self, clients: Sequence[int], bearing: Bearing, evidence: Mapping[int, float]
    ) -> tuple[dict[int, float], dict[int, Refusal]]:
        """The evidence after a round, and who opposes.

        Args:
            clients: of one cohort, at least three; fewer have no majority.
            bearing: of their changes, in the same order.
            evidence: the sums of the rounds before; 0 for those it lacks.
        """
        weights = np.clip(bearing.agreement / self.full, 0.0, 1.0)
        told = np.abs(bearing.cosines) > self.deviations * bearing.errors
        steps = np.where(told, weights * bearing.cosines, 0.0)
        sums = {
            client: float(np.clip(evidence.get(client, 0.0) + step, self.worst, self.best))
            for client, step in zip(clients, steps, strict=True)
        }
        most = hostile_count(len(clients), self.hostile_share)
        worst = sorted((client for client in clients if sums[client] <= self.floor), key=lambda c: (sums[c], c))[:most]
        cosines = dict(zip(clients, bearing.cosines, strict=True))
        return sums, {client: _words(cosines[client], sums[client], self.floor) for client in worst}


def bearing_of(models: Sequence[Tensors], bases: Sequence[Tensors]) -> Bearing:
    """How the changes ``models - bases`` lie to each other; a change of zero has no direction.

    Args:
        models: at least three, of the same names and shapes, finite.
        bases: what each began from; may be shared objects.

    Source: the sign-randomisation variance of a cosine is sum x_k^2 y_k^2 for unit vectors.
    Cost: O(n d) time, one model in float64 and a block beside the input.
    """
    inverse = _inverse_lengths(models, bases)
    count = len(models)
    dots, squares, chance = np.zeros(count), np.zeros(count), np.zeros(count)
    for name in models[0]:
        flat = [(model[name].reshape(-1), base[name].reshape(-1)) for model, base in zip(models, bases, strict=True)]
        for start in range(0, flat[0][0].size, BLOCK_VALUES):
            place = slice(start, start + BLOCK_VALUES)
            total = np.zeros(len(flat[0][0][place]))
            for (model, base), scale in zip(flat, inverse, strict=True):
                total += scale * np.subtract(model[place], base[place], dtype=np.float64)
            for row, ((model, base), scale) in enumerate(zip(flat, inverse, strict=True)):
                own = scale * np.subtract(model[place], base[place], dtype=np.float64)
                rest = total - own
                dots[row] += own @ rest
                squares[row] += rest @ rest
                chance[row] += np.square(own) @ np.square(rest)
    lengths = np.sqrt(squares)
    safe = np.where(lengths > 0, lengths, 1.0)
    others = np.count_nonzero(inverse) - (inverse > 0)
    pairs = np.maximum(others * (others - 1), 1)
    return Bearing(dots / safe, np.sqrt(chance) / safe, (squares - others) / pairs)


def _inverse_lengths(models: Sequence[Tensors], bases: Sequence[Tensors]) -> Vector:
    lengths = np.array([change_length(model, base) for model, base in zip(models, bases, strict=True)])
    return np.asarray(np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0))


def _words(cosine: float, total: float, floor: float) -> Refusal:
    return Refusal(
        "opposing-update",
        f"works against the others of its cohort (cosine {cosine:.2f} in this round; evidence {total:.2f}, "
        f"limit {floor:g}): hostile, or drifted without a flag",
    )
