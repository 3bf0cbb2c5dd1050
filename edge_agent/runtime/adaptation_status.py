"""What is told of following the stream between rounds: in the status file, and by ``edge-agent status``."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ADAPTATION_KEY = "adaptation"


@dataclass(frozen=True, slots=True)
class AdaptationStatus:
    """Where it stands.

    Attributes:
        state: ``off``, ``follows`` (the release serves alone), ``overlaid``, ``rests`` or ``unsuited``.
        why: what keeps it from following or from laying; "": nothing.
        overlay, batches: digest of the overlay that serves, and the batches that made it; "" and 0: none.
        distance: of what is followed from the release, over the release's length.
        rate: mean of the latest steps'.
        judged: the latest judgement in words; "": there was none on this release.
        laid, dropped: overlays since the start, and what took them off.
        problem: why the worker came to nothing the last time; "": it did not.
    """

    state: str = "off"
    why: str = ""
    overlay: str = ""
    batches: int = 0
    distance: float = 0.0
    rate: float = 0.0
    judged: str = ""
    laid: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""

    def to_document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def adaptation_lines(stored: Mapping[str, Any]) -> Iterator[str]:
    """What a status file says of it, for people; nothing where it is off."""
    told = stored.get(ADAPTATION_KEY)
    if not isinstance(told, dict) or told.get("state", "off") == "off":
        return
    why = f": {told['why']}" if told.get("why") else ""
    yield f"adaptation: {told['state']}{why}"
    if told.get("overlay"):
        figures = f"{told['batches']} batches, {told['distance']:.4g} of the release's length from it"
        yield f"overlay {told['overlay'][:12]}: {figures}"
    if told.get("judged"):
        yield f"judged by labels: {told['judged']}"
    dropped = ", ".join(f"{reason} {count}" for reason, count in sorted(told.get("dropped", {}).items()))
    yield f"overlays laid: {told.get('laid', 0)}{f'; taken off: {dropped}' if dropped else ''}"
    if told.get("problem"):
        yield f"adaptation failed: {told['problem']}"
