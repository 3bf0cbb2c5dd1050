"""Open flags as the trigger policy sees them."""

from collections.abc import Callable
from dataclasses import dataclass

from server_bridge.rounds.trigger import Flagged, Standing, standing
from server_bridge.store.flags import StoredFlag
from server_bridge.store.gateways import KnownPresence, KnownState


@dataclass(frozen=True, slots=True)
class OpenFlags:
    """Open flags of one moment: about running weights, and about weights that run no longer."""

    current: tuple[Flagged, ...]
    superseded: tuple[StoredFlag, ...]

    @property
    def gateways(self) -> set[str]:
        """Who has an open flag about running weights."""
        return {flag.gateway for flag in self.current}


def sort_flags(
    flags: list[StoredFlag],
    states: dict[str, KnownState],
    presences: dict[str, KnownPresence],
    released: Callable[[str], str | None],
) -> OpenFlags:
    """Sort open flags by whether they still say something.

    Args:
        flags: open ones of one bundle.
        states: last state by gateway.
        presences: last presence by gateway.
        released: digest of the weights that a gateway should run.
    """
    current, superseded = [], []
    for flag in flags:
        known = states.get(flag.gateway)
        verdict = standing(flag.event, None if known is None else known.state, released(flag.gateway))
        if verdict is Standing.SUPERSEDED:
            superseded.append(flag)
        elif verdict is Standing.CURRENT:
            samples = _trainable(flag, known)
            presence = presences.get(flag.gateway)
            online = presence is None or presence.online
            current.append(Flagged(flag.event.flag_id, flag.gateway, flag.received_s, samples, online))
    return OpenFlags(tuple(current), tuple(superseded))


def _trainable(flag: StoredFlag, known: KnownState | None) -> int:
    """The flag's own count, or that of a state that came after it: an older one counts other samples."""
    if known is None or known.received_s < flag.received_s or known.state.weights != flag.event.weights:
        return flag.event.trainable_samples
    return max(known.state.trainable_samples, flag.event.trainable_samples)
