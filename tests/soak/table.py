"""What came of the kills, for people."""

import statistics
from collections.abc import Sequence

from tests.soak.episode import Episode
from tests.soak.victims import KINDS


def line(episode: Episode) -> str:
    """One fleet: its kills in order, those that missed marked, and how it ended."""
    kinds = " ".join(kill.kind if kill.hit else f"{kill.kind}(missed)" for kill in episode.kills)
    verdict = "; ".join(episode.problems) or "well"
    return f"seed {episode.seed}: {kinds}: closed after {episode.recovery_s:.1f} s: {verdict}"


def table(episodes: Sequence[Episode], in_all_s: float) -> str:
    """A row a kind, then the fleets and the times."""
    kills = [kill for episode in episodes for kill in episode.kills]
    rows = [f"{'killed':<22}{'kills':>7}{'hit':>6}"]
    for kind in (*KINDS, "all"):
        hits = [kill.hit for kill in kills if kind in (kill.kind, "all")]
        rows.append(f"{kind:<22}{len(hits):>7}{sum(hits):>6}")
    times = [episode.recovery_s for episode in episodes]
    rows += [
        f"fleets {len(episodes)}, of which well {sum(episode.well for episode in episodes)}",
        f"last kill to closed loop: median {statistics.median(times):.1f} s, worst {max(times):.1f} s",
        f"in all: {in_all_s / 60:.1f} min",
    ]
    return "\n".join(rows)
