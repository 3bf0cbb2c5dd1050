"""Whether overlays have lost a class, or cost more answers than they gained: evidence that adds up over looks.

A test by betting: capital of 1 is laid on the guess that a member of the line of overlays is at fault. As long as none
is, the capital is a supermartingale, so it ever reaches 1/LEVEL with a chance of at most LEVEL, however often one looks
(Ville). The members are the classes and, with half of the capital, all of them together.

- A class is at fault if more of its samples are got right by the release and missed by the overlay than are got right
  by the overlay.
- All are at fault if more samples are lost by the overlay than gained, of those where only one of the two is right.

A look is one bet, on the share of losses in it: samples of a look may depend on each other in any way, as windows of
one recording do. (Sample by sample, runs of four alike gave 55 % false finds in 100 looks, where this gives none.) What
is not laid yet is laid bit by bit, a share of 1/(t (t + 1)) at a member's look t: evidence of a good time does not hide
a fault that comes later.

Source: Ville 1939; Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting. Laying
capital over time is the mixture over the time of a change.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.training.evaluation import Scores

LEVEL = 0.01
"""The chance that a line of overlays without fault is ever found at fault, at most."""
BETS = np.array([0.2, 0.4, 0.6, 0.8, 0.95])
"""Shares of the capital that are staked at even odds; the capital is laid on all evenly."""
ALL = -1
"""In the place of a class: all of them together."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a line's looks have come to; nothing is changed in place.

    Attributes:
        capital: (classes + 1, bets) float64, what stands on each member; the last row is of all together.
        looks: (classes + 1,) int64, those that told something of a member.
    """

    capital: NDArray[np.float64]
    looks: NDArray[np.int64]

    @classmethod
    def none(cls, classes: int) -> "Evidence":
        """At the begin of a line."""
        return cls(np.zeros((classes + 1, len(BETS))), np.zeros(classes + 1, np.int64))

    def look(self, labels: NDArray[Any], release: Scores, overlay: Scores) -> "Evidence":
        """With samples that had not been looked at before.

        Args:
            labels: (n,) class numbers; the overlay was trained on none of these samples.
            release, overlay: of the same samples; with ``right``.
        """
        if release.right is None or overlay.right is None:
            return self
        classes = len(self.looks) - 1
        lost, gained = release.right & ~overlay.right, ~release.right & overlay.right
        losses = np.append(np.bincount(labels[lost], minlength=classes), lost.sum())
        others = np.append(np.bincount(labels[overlay.right], minlength=classes), gained.sum())
        told = losses + others > 0
        looks = self.looks + told
        share = losses / np.maximum(losses + others, 1)
        laid = np.append(np.full(classes, 0.5 / classes), 0.5) / np.maximum(looks * (looks + 1), 1) / len(BETS)
        grown = (self.capital + laid[:, None]) * (1 + BETS * (2 * share[:, None] - 1))
        return Evidence(np.where(told[:, None], grown, self.capital), looks)

    @property
    def fault(self) -> int | None:
        """The class that is lost, or ``ALL``; None: nothing is shown."""
        if self.capital.sum() < 1 / LEVEL:
            return None
        member = int(self.capital.sum(axis=1).argmax())
        return ALL if member == len(self.looks) - 1 else member

    def to_json(self) -> dict[str, Any]:
        """As JSON values; bit for bit."""
        return {"looks": self.looks.tolist(), "capital": self.capital.tolist()}

    @classmethod
    def from_json(cls, stored: Any, classes: int) -> "Evidence":
        """From :meth:`to_json`.

        Raises:
            DataError: it is no evidence of so many classes.
        """
        try:
            capital, looks = np.array(stored["capital"], np.float64), np.array(stored["looks"], np.int64)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"the overlay's evidence cannot be read ({error})") from None
        if capital.shape != (classes + 1, len(BETS)) or looks.shape != (classes + 1,) or not np.isfinite(capital).all():
            raise DataError(f"the overlay's evidence has shape {capital.shape}, or is not finite")
        return cls(capital, looks)
