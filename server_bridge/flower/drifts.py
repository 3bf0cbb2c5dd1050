"""Who has drifted in a round: as flagged, as clients say, or by the rise of their losses."""

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from server_bridge.cohorts.cohorter import ClientId
from server_bridge.flower.updates import ClientUpdate

Flagged = Callable[[int], Set[ClientId]]


class DriftBook:
    """What one adaptation knows of drifts.

    Args:
        flagged: round to the clients that drifted; ``None``: the clients say so themselves.
        loss_gamma: the rise of a client's loss that counts as drift; ``None`` for none does.

    Source: N L et al. 2024, Algorithm 2, for the rise.
    """

    def __init__(self, flagged: Flagged | None, loss_gamma: float | None) -> None:
        self._flagged = flagged
        self._loss_gamma = loss_gamma
        self._losses: dict[ClientId, float] = {}
        self._regrouped: set[ClientId] = set()

    @property
    def regrouped(self) -> set[ClientId]:
        """Clients that this adaptation has regrouped."""
        return set(self._regrouped)

    def announced(self, server_round: int) -> set[ClientId]:
        """Clients known to have drifted before the round; none where the clients say so themselves."""
        return set() if self._flagged is None else set(self._flagged(server_round))

    def drifted(self, server_round: int, updates: Sequence[ClientUpdate]) -> set[ClientId]:
        """Those of the round's clients that drifted; their losses are remembered."""
        said = {update.client for update in updates if update.drifted}
        replied = {update.client for update in updates}
        drifted = said if self._flagged is None else replied & self.announced(server_round)
        if self._loss_gamma is not None:
            rises = {u.client for u in updates if u.loss is not None and self._rises(u.client, u.loss)}
            drifted |= rises - self._regrouped
        self._losses.update({u.client: u.loss for u in updates if u.loss is not None})
        return drifted

    def _rises(self, client: ClientId, loss: float) -> bool:
        return loss > self._losses.get(client, np.inf) + (self._loss_gamma or 0.0)

    def regroup(self, clients: Set[ClientId]) -> None:
        """These have been regrouped."""
        self._regrouped |= clients

    def clear(self) -> None:
        """The adaptation is over."""
        self._losses.clear()
        self._regrouped.clear()

    def export(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "losses": [[client, loss] for client, loss in sorted(self._losses.items())],
            "regrouped": sorted(self._regrouped),
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        losses = {int(client): float(loss) for client, loss in document["losses"]}
        self._regrouped = {int(client) for client in document["regrouped"]}
        self._losses = losses
