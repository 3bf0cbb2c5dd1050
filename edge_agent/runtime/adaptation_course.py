"""When what follows the stream may be laid on the release, and when it is taken off: no clock, file or thread.

    release alone --laid--> overlay serves --laid (swap)--> overlay serves --taken off--> release alone

It is taken off because labels found it worse (``worse``), none judged it in time (``unjudged``), a number was not
finite (``not-finite``), its file was damaged (``damaged``) or it failed its trial (``unfit``); an activation ends it
without that. After all but ``unjudged`` the stream is left alone for a while, twice as long each time in a row; after
``unjudged`` nothing is laid that labels have not judged first.
"""

from collections import deque
from dataclasses import dataclass, field

HOUR_S = 3600.0
LONGEST_REST_S = 24 * HOUR_S
MOST_DOUBLED = 16


@dataclass(frozen=True, slots=True)
class CourseLimits:
    """The operator's; see `AdaptationSection`."""

    max_swaps_per_hour: int
    judge_within_s: float


@dataclass(slots=True)
class Course:
    """Where following stands; every time is of one clock that never goes back.

    Attributes:
        judged_s: when labels judged last that what is followed is no worse, or when an overlay was laid on the bare
            release; None: neither.
        rests_until_s: nothing is followed before.
        proof_first: whether labels must judge before anything is laid.
        is_proven: whether labels have judged what is followed now, since the release serves or it was begun anew.
        swaps: of the last hour.
        laid, dropped: since the start; how often an overlay was laid, and what took it off.
    """

    limits: CourseLimits
    judged_s: float | None = None
    rests_until_s: float = float("-inf")
    proof_first: bool = False
    is_proven: bool = False
    found_worse: int = 0
    swaps: deque[float] = field(default_factory=deque)
    laid: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def released(self) -> None:
        """Another release serves: what was found of overlays on the one before says nothing of it."""
        self.judged_s, self.is_proven, self.proof_first = None, False, False
        self.rests_until_s, self.found_worse = float("-inf"), 0

    def rests(self, now_s: float) -> bool:
        """Whether the stream is left alone for now."""
        return now_s < self.rests_until_s

    def judged(self, now_s: float) -> None:
        """Labels that had not judged before found what is followed no worse than the release."""
        self.judged_s, self.is_proven, self.found_worse = now_s, True, 0

    def barred(self, now_s: float) -> str | None:
        """Why nothing may be laid now: ``rests``, ``unproven``, ``swaps``; None: it may."""
        while self.swaps and self.swaps[0] <= now_s - HOUR_S:
            self.swaps.popleft()
        if self.rests(now_s):
            return "rests"
        if self.proof_first and not self.is_proven:
            return "unproven"
        return "swaps" if len(self.swaps) >= self.limits.max_swaps_per_hour else None

    def begin(self, now_s: float) -> None:
        """An overlay was laid on the bare release."""
        self.judged_s = now_s
        self.swap(now_s)

    def swap(self, now_s: float) -> None:
        """An overlay was laid in the place of another."""
        self.swaps.append(now_s)
        self.laid += 1

    def is_overdue(self, now_s: float) -> bool:
        """Whether what serves has gone unjudged for too long."""
        return self.judged_s is not None and now_s - self.judged_s > self.limits.judge_within_s

    def take_off(self, reason: str, now_s: float) -> None:
        """What is followed is given up; the release serves alone."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.judged_s, self.is_proven = None, False
        if reason == "unjudged":
            self.proof_first = True
            return
        doubled = 2.0 ** min(self.found_worse, MOST_DOUBLED)
        self.found_worse += 1
        self.rests_until_s = now_s + min(LONGEST_REST_S, self.limits.judge_within_s * doubled)
