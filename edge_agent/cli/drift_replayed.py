"""What a replay gave, for people, programs and the picture."""

from dataclasses import dataclass, field

from edge_agent.cli.drift_trace import Trace
from edge_agent.drift.finding import Attribution

ATTRIBUTIONS_SAID = 4


@dataclass(slots=True)
class MonitorRun:
    """One monitor over the whole recording.

    Attributes:
        name: in the manifest.
        sees: ``labelled`` or ``served`` samples.
        batch_size: samples.
        promised: false alarms a batch; None: nothing is promised.
        promise: the same in the operator's words.
        batches, warnings, above: judged, above the warning threshold, and above the threshold.
        alarms: what is promised about: batches above the threshold, those within a calm of each other as one.
        unjudged: could not be judged.
        ratio: statistic over threshold.
        highest: the largest of it.
    """

    name: str
    sees: str
    batch_size: int
    promised: float | None
    promise: str
    batches: int = 0
    warnings: int = 0
    above: int = 0
    alarms: int = 0
    unjudged: int = 0
    ratio: Trace = field(default_factory=Trace)
    highest: float = 0.0


@dataclass(frozen=True, slots=True)
class Fired:
    """A flag that the gateway would have raised.

    Attributes:
        row: samples that had been served.
        sample, time_s: the last one judged.
        first_sample, first_time_s: the first that is taken for drifted.
        monitor: that alarmed.
        severity, severity_of: how bad, 0 to 1, and by what.
        tests: each monitor's name, latest statistic and threshold.
    """

    row: int
    sample: str
    time_s: float
    monitor: str
    statistic: float
    threshold: float
    first_sample: str
    first_time_s: float
    shift: str
    severity: float
    severity_of: str
    attributions: tuple[Attribution, ...]
    tests: tuple[tuple[str, float, float], ...]

    @property
    def why(self) -> str:
        """The alarm in words."""
        return f"statistic {self.statistic:.4g} above {self.threshold:.4g}"


@dataclass(slots=True)
class Episode:
    """A monitor above its threshold, flagged or not: from its first alarm to the last before a longer calm.

    Attributes:
        monitor: its name.
        first_sample, first_time_s: the last sample of the first batch that alarmed.
        last_sample, last_time_s: of the last such batch.
        batches: that alarmed.
        highest: statistic over threshold, at most.
        shift, attributions: as the monitor said them there.
    """

    monitor: str
    first_row: int
    first_sample: str
    first_time_s: float
    last_row: int
    last_sample: str
    last_time_s: float
    batches: int
    highest: float
    shift: str
    attributions: tuple[Attribution, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Another verdict, from so many served samples on."""

    row: int
    time_s: float
    sample: str
    verdict: str
    why: str


@dataclass(slots=True)
class FaultRun:
    """A sensor that is taken for broken.

    Attributes:
        feature: the sensor.
        fault: what is wrong, in a word.
        value: its first broken reading, in ``unit``; None: there is none.
        first_row, first_time_s: where it began.
        last_row, last_time_s: where it ended; None: it lasts to the end.
    """

    feature: str
    fault: str
    unit: str
    value: float | None
    first_row: int
    first_time_s: float
    last_row: int | None = None
    last_time_s: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Estimated accuracy (or loss) of a window, beside the true one where its labels are there."""

    row: int
    quantity: str
    estimate: float | None
    low: float | None
    high: float | None
    true: float | None
    refused: str = ""
    rows: int = 0


@dataclass(slots=True)
class Replayed:
    """All of it.

    Attributes:
        data, bundle: what was replayed, by which bundle.
        rows, labelled: samples served, and with a label that came.
        passed_over: repeated ids, and what the model could not take.
        first_time_s, last_time_s: of the samples.
        timed: whether the recording has times.
        verdict: at the end.
        loss: mean of each batch of labelled samples.
        fault_readings: how many were set aside.
    """

    data: str
    bundle: str
    rows: int = 0
    labelled: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    first_time_s: float = 0.0
    last_time_s: float = 0.0
    timed: bool = False
    verdict: str = "none"
    why: str = ""
    monitors: dict[str, MonitorRun] = field(default_factory=dict)
    fired: list[Fired] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    faults: list[FaultRun] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    loss: Trace = field(default_factory=Trace)
    labels: str = ""
    notes: list[str] = field(default_factory=list)


def attribution_words(one: Attribution) -> str:
    """A quantity that changed, in its own unit."""
    unit = f" {one.unit}" if one.unit else ""
    return f"{one.name} {one.before:.4g} -> {one.now:.4g}{unit} ({one.weight:.0%})"
