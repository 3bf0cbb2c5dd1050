"""The agent's settings: ``agent.toml``, overridden by ``EDGE_AGENT__SECTION__KEY`` variables."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from edge_agent.link.mqtt_topic import is_topic, is_topic_filter
from edge_agent.link.settings_file import BrokerSection, Section, read_toml, settings_error
from edge_agent.wire.topics import is_identifier

ENVIRONMENT_PREFIX = "EDGE_AGENT__"
DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
MIB = 1024 * 1024
TIB = 1024 * 1024 * MIB
MOST_SAMPLES = 100_000_000
MOST_BATCHES = 1_000_000
LARGEST_RATE = 10.0
"""Of learning: what an order may ask, too; an overlay's length is bounded apart from that."""

Share = Annotated[float, Field(ge=0, lt=1)]
Span = Annotated[float, Field(ge=1e-3, le=10 * YEAR_S)]
"""Seconds, of something that is waited for or kept."""
Duration = Annotated[float, Field(ge=0.1, le=7 * DAY_S)]
"""Seconds that a worker may run; an order's timeout is as long at most."""


def _identifier(text: str) -> str:
    if not is_identifier(text):
        raise ValueError("it must be 1 to 64 of A-Z a-z 0-9 _ -")
    return text


def _topic(text: str) -> str:
    if not is_topic(text):
        raise ValueError("it must be an MQTT topic: not empty, and without + and #")
    return text


def _topic_filter(text: str) -> str:
    if not is_topic_filter(text):
        raise ValueError("it must be an MQTT topic filter: not empty, + a whole level, # only as the last")
    return text


Identifier = Annotated[str, AfterValidator(_identifier)]
Topic = Annotated[str, AfterValidator(_topic)]
TopicFilter = Annotated[str, AfterValidator(_topic_filter)]


class GatewaySection(Section):
    """Who this is and where its files are; relative paths start at the settings file's folder."""

    id: Identifier
    fleet: Identifier
    data_dir: Path = Path("data")
    bundle: Path = Path("bundle")
    root: Path = Path("root.json")
    floors: Path = Path("floors.json")


class ReplaySourceSection(Section):
    """Recorded data, played at a rate.

    ``features`` (input to columns) and ``columns`` (``label``, ``id`` ... to column) are for CSV files
    whose header does not already say it.
    """

    kind: Literal["replay"]
    path: Path
    rate_hz: Annotated[float, Field(ge=1e-6, le=1e6)] = 10.0
    loop: bool = False
    loop_from_row: Annotated[int, Field(ge=0, le=10_000_000_000)] = 0
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 8
    delay_s: Annotated[float, Field(ge=0, le=YEAR_S)] = 0.0
    features: dict[str, list[str]] = {}
    columns: dict[Literal["label", "group", "holdout", "delay", "time", "id", "task"], str] = {}


class MqttSourceSection(BrokerSection):
    """Live plant data as JSON, from a broker of its own."""

    kind: Literal["mqtt"]
    samples_topic: TopicFilter
    labels_topic: TopicFilter
    client_id: str | None = None


SourceSection = Annotated[ReplaySourceSection | MqttSourceSection, Field(discriminator="kind")]


class NoSinkSection(Section):
    """Predictions are not passed on."""

    kind: Literal["none"] = "none"


class JsonLinesSinkSection(Section):
    """Predictions as JSON lines in a file that is rotated at its size."""

    kind: Literal["jsonl"]
    path: Path
    max_bytes: Annotated[int, Field(ge=1024, le=TIB)] = 16 * MIB


class MqttSinkSection(BrokerSection):
    """Predictions as JSON to a broker."""

    kind: Literal["mqtt"]
    topic: Topic
    client_id: str | None = None


SinkSection = Annotated[NoSinkSection | JsonLinesSinkSection | MqttSinkSection, Field(discriminator="kind")]


class MonitorSection(Section):
    """The drift monitors, and what follows from what they say (`docs/drift.md`, Policy).

    `rule` is the labelled monitor that decides: `default` (or, as it was called before, `calibrated`) takes the
    bundle's, `loss-level` and `loss-rise` name one, `published` is CLMA's Algorithm 4 with `gamma`. `baseline`: what is
    normal is what the bundle's reference says, or what the first batches on this gateway say. `label_free`: an
    alarm of the monitor without labels raises a flag where labels are scarce (`unlabelled`), `always`, `never`, or that
    monitor does not run (`off`). Labels are scarce when for `label_rows` served samples no batch of labelled ones was
    judged, or a tenth of the labels takes longer than `label_delay_s`. `calm_batches` end a warning, for
    `cooldown_batches` after an alarm no new flag is raised. `season` judges losses by what is usual at that hour, day,
    or part of `season_period_s`. `sensor_faults`: broken readings are told apart from drift, and not trained on.
    """

    rule: Literal["default", "calibrated", "loss-level", "loss-rise", "published"] = "default"
    gamma: Annotated[float, Field(gt=0, le=1000)] = 0.1
    baseline: Literal["bundle", "gateway"] = "bundle"
    bucket_s: Annotated[float, Field(ge=0.1, le=DAY_S)] = 60.0
    label_free: Literal["unlabelled", "always", "never", "off"] = "unlabelled"
    label_rows: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 2000
    label_delay_s: Span = 3600.0
    calm_batches: Annotated[int, Field(ge=1, le=MOST_BATCHES)] = 8
    cooldown_batches: Annotated[int, Field(ge=0, le=MOST_BATCHES)] = 8
    season: Literal["none", "hour-of-day", "day-of-week", "period"] = "none"
    season_period_s: Annotated[float, Field(ge=1, le=10 * YEAR_S)] = DAY_S
    season_parts: Annotated[int, Field(ge=1, le=168)] = 24
    season_offset_s: Annotated[float, Field(ge=-10 * YEAR_S, le=10 * YEAR_S)] = 0.0
    sensor_faults: bool = True


class TrainingSection(Section):
    """Local fine-tuning; the operator's limits hold whatever the bridge asks.

    A round whose training set has fewer than `min_classes` different labels is refused. `rehearsal_share` of a
    training set comes from the reservoir, and `balanced` takes every class alike, where the round does not say.
    `error_feedback` adds what the coding of an update lost to the next of the same adaptation and cohort.
    `scheduling`: `idle` trains when nothing else wants the processor, `batch` and `normal` by the share of `nice`.
    """

    enabled: bool = True
    min_samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 32
    max_rounds_per_hour: Annotated[int, Field(ge=1, le=3600)] = 120
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    memory_bytes: Annotated[int, Field(ge=64 * MIB, le=TIB)] = 1024 * MIB
    max_duration_s: Duration = 3600.0
    min_classes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    rehearsal_share: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    balanced: bool = False
    error_feedback: bool = True
    scheduling: Literal["idle", "batch", "normal"] = "batch"


class AdaptationSection(Section):
    """Following the stream without labels between rounds (`docs/training.md`, Between rounds); off unless `online`.

    Every `interval_s` a worker, confined as that of `[training]`, makes `steps` on each batch of `batch_size`
    unlabelled samples that came since (the newest `max_samples`), at a rate from `eta_min` to `eta_max` by how far the
    batch has shifted; `graph` is one of the bundle's that takes no labels. What comes of it is laid on the release: at
    most `max_swaps_per_hour` times an hour, no farther from it than `farthest` times the release's length, and only as
    long as labelled samples have judged it within `judge_within_s`; where they find it worse, or are not there, the
    release serves alone. `label_shift` estimates the classes' shares from the samples, else they are the bundle's.
    """

    online: bool = False
    graph: str = "entropy-sgd"
    eta_min: Annotated[float, Field(ge=0, le=LARGEST_RATE)] = 0.0
    eta_max: Annotated[float, Field(gt=0, le=LARGEST_RATE)] = 0.05
    steps: Annotated[int, Field(ge=1, le=100)] = 1
    batch_size: Annotated[int, Field(ge=8, le=4096)] = 64
    max_samples: Annotated[int, Field(ge=8, le=MOST_SAMPLES)] = 2048
    interval_s: Annotated[float, Field(ge=1, le=30 * DAY_S)] = 300.0
    max_swaps_per_hour: Annotated[int, Field(ge=1, le=3600)] = 12
    farthest: Annotated[float, Field(gt=0, le=1)] = 0.2
    judge_within_s: Annotated[float, Field(ge=1, le=YEAR_S)] = 3600.0
    label_shift: bool = False
    max_duration_s: Duration = 120.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.eta_min > self.eta_max:
            raise ValueError(f"eta_min {self.eta_min:g} is above eta_max {self.eta_max:g}")
        if self.batch_size > self.max_samples:
            raise ValueError(f"batch_size {self.batch_size} is above max_samples {self.max_samples}")
        if self.online and self.judge_within_s < self.interval_s:
            raise ValueError(
                f"judge_within_s {self.judge_within_s:g} is below interval_s {self.interval_s:g}:"
                " no overlay would be looked at again in time"
            )
        return self


class SamplesSection(Section):
    """The label join and the replay store.

    `max_samples` are the newest; `reservoir_samples` of the older labelled ones are kept, drawn uniformly in each
    class, and `unlabelled_samples` whose label did not come within `label_wait_s` of running time. `max_bytes` bounds
    the file, about: where it would not do, each of the three holds less.
    """

    max_samples: Annotated[int, Field(ge=100, le=MOST_SAMPLES)] = 20_000
    reservoir_samples: Annotated[int, Field(ge=0, le=MOST_SAMPLES)] = 2_000
    unlabelled_samples: Annotated[int, Field(ge=0, le=MOST_SAMPLES)] = 2_000
    max_bytes: Annotated[int, Field(ge=MIB, le=TIB)] = 256 * MIB
    proof_share: Share = 0.1
    label_wait_s: Span = DAY_S


class OutboxSection(Section):
    """What is kept for the bridge while it is away."""

    max_bytes: Annotated[int, Field(ge=64 * 1024, le=TIB)] = 32 * MIB
    max_age_s: Span = 30 * DAY_S


class ReportSection(Section):
    """How often state and counts are reported."""

    state_interval_s: Annotated[float, Field(ge=0.5, le=3600)] = 30.0


class LogSection(Section):
    """Log lines are JSON on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class AgentSettings(BaseModel):
    """Everything an operator can set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gateway: GatewaySection
    source: SourceSection
    broker: BrokerSection = BrokerSection()
    sink: SinkSection = NoSinkSection()
    monitor: MonitorSection = MonitorSection()
    training: TrainingSection = TrainingSection()
    adaptation: AdaptationSection = AdaptationSection()
    samples: SamplesSection = SamplesSection()
    outbox: OutboxSection = OutboxSection()
    report: ReportSection = ReportSection()
    log: LogSection = LogSection()


def load_settings(path: Path) -> AgentSettings:
    """Read and check a settings file; its paths become absolute.

    Raises:
        ConfigError: absent, unreadable, no TOML, or a key unknown or wrong (named, with its value and the fix).
    """
    raw = read_toml(path, path_keys=(), absent_hint="give its path with -c")
    try:
        settings = _with_variables(raw)
    except ValidationError as error:
        raise settings_error(path, AgentSettings, error) from None
    return _anchored(settings, path.resolve().parent)


def _with_variables(raw: dict[str, Any]) -> AgentSettings:
    """What reads variables is loaded where there are any: that takes a tenth of the agent's start (measured)."""
    if not any(name.upper().startswith(ENVIRONMENT_PREFIX) for name in os.environ):
        return AgentSettings(**raw)
    from edge_agent.link.settings_variables import overridden

    return overridden(AgentSettings, raw, ENVIRONMENT_PREFIX)


def _anchored(settings: AgentSettings, folder: Path) -> AgentSettings:
    """Relative paths, given or not, from the file or a variable, start at the file's folder."""
    sections: dict[str, Section] = {name: getattr(settings, name) for name in AgentSettings.model_fields}
    return settings.model_copy(
        update={
            name: section.model_copy(update={key: folder / value for key, value in section if isinstance(value, Path)})
            for name, section in sections.items()
        }
    )
