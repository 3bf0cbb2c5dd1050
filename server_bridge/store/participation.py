"""What became of gateways' updates in a round, in words."""

from collections.abc import Mapping
from dataclasses import dataclass

from server_bridge.aggregation.screening import STEP_BACK
from server_bridge.store.adaptations import RoundRecord

NAMED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Participation:
    """One gateway's part in a round.

    Attributes:
        counted: whether its update went into its cohort's mean.
        why: why it did not, or not as it came; ``None`` where there is nothing to say.
    """

    adaptation: str
    round: int
    counted: bool
    why: str | None

    def words(self) -> str:
        """For people."""
        ended = "counted" if self.counted else "left out"
        return f"[{self.adaptation}, round {self.round}] {ended}{f': {self.why}' if self.why else ''}"


def participation(record: RoundRecord, gateway: str) -> Participation | None:
    """A gateway's part in a round; ``None`` if it was not asked."""
    if gateway in record.failed:
        return Participation(record.adaptation, record.round, False, record.failed[gateway])
    if gateway in record.replied:
        why = record.noted.get(gateway)
        return Participation(record.adaptation, record.round, _reason(why or "") != STEP_BACK, why)
    return None


def left_out_words(failed: Mapping[str, str], noted: Mapping[str, str]) -> str:
    """Who was left out of a round and of whom something is noted, by reason; empty if nobody was."""
    kinds = [f"{_by_reason(failed)} left out"] if failed else []
    kinds += [f"{_by_reason(noted)} noted"] if noted else []
    return "; ".join(kinds)


def _by_reason(told: Mapping[str, str]) -> str:
    groups: dict[str, list[str]] = {}
    for gateway, why in sorted(told.items()):
        groups.setdefault(_reason(why), []).append(gateway)
    return ", ".join(f"{_some(gateways)} ({reason})" for reason, gateways in sorted(groups.items()))


def _reason(why: str) -> str:
    return why.partition(":")[0]


def _some(gateways: list[str]) -> str:
    more = len(gateways) - NAMED_AT_MOST
    return ", ".join(gateways[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
