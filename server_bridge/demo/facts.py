"""What a run of the demo saw, as plain values: the scenario collects them, verdict and report read them.

Every moment is in seconds since its arm's first gateway was started, unless it says otherwise.
"""

from dataclasses import dataclass, field

from server_bridge.demo.plan import Family

CLMA = "clma"
FEDAVG = "fedavg"
ARMS = (CLMA, FEDAVG)


@dataclass(frozen=True, slots=True)
class Tally:
    """Right among labelled holdout windows."""

    labelled: int = 0
    right: int = 0

    @property
    def accuracy(self) -> float | None:
        """Share of right ones; ``None`` where nothing was labelled."""
        return self.right / self.labelled if self.labelled else None

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.labelled + other.labelled, self.right + other.right)


@dataclass(frozen=True, slots=True)
class Point:
    """Holdout counts of one span of time under one model version."""

    start_s: float
    end_s: float
    version: int
    cohort: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class Flag:
    """A monitor fired.

    Attributes:
        at_s: when the gateway raised it.
        expected: after the remount, and judged on the weights of before the adaptation.
    """

    at_s: float
    expected: bool


@dataclass(frozen=True, slots=True)
class GatewayFacts:
    """One gateway in one arm.

    Attributes:
        remount_s: when its second pass began; the remount, where it has one.
        before, drifted, final: base weights on the clean pass, base weights on the second
            pass, the released weights on whole passes after the activation.
    """

    id: str
    family: Family
    subject: int
    remount_s: float
    flags: tuple[Flag, ...]
    cohort: str
    version: int
    activated_s: float | None
    before: Tally
    drifted: Tally
    final: Tally
    points: tuple[Point, ...]
    peak_rss_bytes: int

    @property
    def drifts(self) -> bool:
        """Whether its sensor was remounted."""
        return self.family is not Family.STATIONARY

    @property
    def flagged_s(self) -> float | None:
        """When the drift was flagged first."""
        return min((flag.at_s for flag in self.flags if flag.expected), default=None)


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """One send-train-collect-aggregate pass."""

    number: int
    began_s: float
    ended_s: float
    replies: int
    failed: int


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One run of the fleet with one strategy."""

    strategy: str
    gateways: tuple[GatewayFacts, ...]
    rounds: tuple[RoundFacts, ...]
    released_s: float | None
    wall_s: float
    phases: tuple[tuple[str, float], ...]
    bytes_up: int
    bytes_down_published: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A gateway's own report that it refused a release map."""

    gateway: str
    reason: str
    at_s: float


@dataclass(frozen=True, slots=True)
class BadRelease:
    """A release map that a hostile client published, and who refused it."""

    title: str
    version: int
    map_digest: str
    published_s: float
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class DemoFacts:
    """Everything the report is made of."""

    seed: int
    broker: str
    arms: dict[str, ArmFacts]
    bad_releases: tuple[BadRelease, ...]
    reasserted: bool
    wall_s: float
    setup_s: float
    notes: tuple[str, ...] = field(default=())
