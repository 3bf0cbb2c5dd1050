"""The agent's settings: ``agent.toml``, overridden by ``EDGE_AGENT__SECTION__KEY`` variables."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from edge_agent.errors import ConfigError
from edge_agent.link.settings import BrokerSettings, TlsSettings
from edge_agent.wire.topics import is_identifier

ENVIRONMENT_PREFIX = "EDGE_AGENT__"
DAY_S = 86_400.0
MIB = 1024 * 1024

Port = Annotated[int, Field(ge=1, le=65_535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GatewaySection(Section):
    """Who this is and where its files are; relative paths start at the settings file's folder."""

    id: str
    fleet: str
    data_dir: Path = Path("data")
    bundle: Path = Path("bundle")
    root: Path = Path("root.json")
    floors: Path = Path("floors.json")

    @model_validator(mode="after")
    def _identifiers(self) -> Self:
        for name, value in (("id", self.id), ("fleet", self.fleet)):
            if not is_identifier(value):
                raise ValueError(f"{name} {value!r} must be 1 to 64 of A-Z a-z 0-9 _ -")
        return self


class BrokerSection(Section):
    """The fleet's broker; TLS when ``ca`` is given."""

    host: str = "127.0.0.1"
    port: Port = 1883
    keepalive_s: Annotated[int, Field(ge=5, le=3600)] = 30
    username: str | None = None
    password: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @model_validator(mode="after")
    def _tls_whole(self) -> Self:
        given = [name for name in ("ca", "certificate", "key") if getattr(self, name) is not None]
        if given and len(given) < 3:
            raise ValueError("ca, certificate and key go together: give all three or none")
        return self

    def settings(self) -> BrokerSettings:
        """The link's form of this section."""
        tls = None
        if self.ca is not None and self.certificate is not None and self.key is not None:
            tls = TlsSettings(ca=self.ca, certificate=self.certificate, key=self.key)
        return BrokerSettings(
            host=self.host,
            port=self.port,
            keepalive_s=self.keepalive_s,
            username=self.username,
            password=self.password,
            tls=tls,
        )


class ReplaySourceSection(Section):
    """Recorded data, played at a rate.

    ``features`` (input to columns) and ``columns`` (``label``, ``id`` ... to column) are for CSV files
    whose header does not already say it.
    """

    kind: Literal["replay"]
    path: Path
    rate_hz: Positive = 10.0
    loop: bool = False
    loop_from_row: Annotated[int, Field(ge=0)] = 0
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 8
    delay_s: Annotated[float, Field(ge=0)] = 0.0
    features: dict[str, list[str]] = {}
    columns: dict[Literal["label", "group", "holdout", "delay", "time", "id"], str] = {}


class MqttSourceSection(BrokerSection):
    """Live plant data as JSON, from a broker of its own."""

    kind: Literal["mqtt"]
    samples_topic: str
    labels_topic: str
    client_id: str | None = None


SourceSection = Annotated[ReplaySourceSection | MqttSourceSection, Field(discriminator="kind")]


class NoSinkSection(Section):
    """Predictions are not passed on."""

    kind: Literal["none"] = "none"


class JsonLinesSinkSection(Section):
    """Predictions as JSON lines in a file that is rotated at its size."""

    kind: Literal["jsonl"]
    path: Path
    max_bytes: Annotated[int, Field(ge=1024)] = 16 * MIB


class MqttSinkSection(BrokerSection):
    """Predictions as JSON to a broker."""

    kind: Literal["mqtt"]
    topic: str
    client_id: str | None = None


SinkSection = Annotated[NoSinkSection | JsonLinesSinkSection | MqttSinkSection, Field(discriminator="kind")]


class MonitorSection(Section):
    """The drift monitor: the bundle's calibrated rule, or the published one with its ``gamma``."""

    rule: Literal["calibrated", "published"] = "calibrated"
    gamma: Positive = 0.1
    bucket_s: Positive = 60.0


class TrainingSection(Section):
    """Local fine-tuning; the operator's limits hold whatever the bridge asks."""

    enabled: bool = True
    min_samples: Annotated[int, Field(ge=1)] = 32
    max_rounds_per_hour: Annotated[int, Field(ge=1)] = 120
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    memory_bytes: Annotated[int, Field(ge=64 * MIB)] = 3072 * MIB
    max_duration_s: Positive = 3600.0


class SamplesSection(Section):
    """The label join and the replay store."""

    max_samples: Annotated[int, Field(ge=100)] = 20_000
    proof_share: Share = 0.1
    label_wait_s: Positive = DAY_S


class OutboxSection(Section):
    """What is kept for the bridge while it is away."""

    max_bytes: Annotated[int, Field(ge=64 * 1024)] = 32 * MIB
    max_age_s: Positive = 30 * DAY_S


class ReportSection(Section):
    """How often state and counts are reported."""

    state_interval_s: Annotated[float, Field(ge=0.5, le=3600)] = 30.0


class LogSection(Section):
    """Log lines are JSON on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class AgentSettings(BaseSettings):
    """Everything an operator can set."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__"
    )

    gateway: GatewaySection
    source: SourceSection
    broker: BrokerSection = BrokerSection()
    sink: SinkSection = NoSinkSection()
    monitor: MonitorSection = MonitorSection()
    training: TrainingSection = TrainingSection()
    samples: SamplesSection = SamplesSection()
    outbox: OutboxSection = OutboxSection()
    report: ReportSection = ReportSection()
    log: LogSection = LogSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment variables win over the file."""
        return env_settings, init_settings


def load_settings(path: Path) -> AgentSettings:
    """Read and check a settings file; its paths become absolute.

    Raises:
        ConfigError: absent, unreadable, no TOML, or a key unknown or wrong (named, with its value).
    """
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"settings file {path} does not exist", "give its path with -c") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"settings file {path} is not TOML: {error}") from None
    try:
        return AgentSettings(**_absolute(raw, path.resolve().parent))
    except ValidationError as error:
        raise ConfigError(f"settings file {path}: {_describe(error)}", _hint(error)) from None


_PATH_KEYS = frozenset({"data_dir", "bundle", "root", "floors", "ca", "certificate", "key", "path"})


def _absolute(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {
        section: {
            key: str(folder / value) if key in _PATH_KEYS and isinstance(value, str) else value
            for key, value in table.items()
        }
        if isinstance(table, dict)
        else table
        for section, table in raw.items()
    }


def _describe(error: ValidationError) -> str:
    lines = []
    for detail in error.errors(include_url=False, include_context=False):
        lines.append(f"{_place(detail)} = {detail['input']!r}: {detail['msg']}"[:300])
    return "; ".join(lines)


def _place(detail: ErrorDetails) -> str:
    parts = [str(part) for part in detail["loc"] if part not in ("replay", "mqtt", "jsonl", "none")]
    if len(parts) < 2:
        return f"[{parts[0]}]" if parts else "the file"
    return f"[{parts[0]}] {'.'.join(parts[1:])}"


def _hint(error: ValidationError) -> str:
    for detail in error.errors(include_url=False, include_context=False):
        if detail["type"] == "extra_forbidden":
            return _suggest(detail)
        if detail["type"] == "missing":
            return f"add {_place(detail)}"
    return "correct the value and start again"


def _suggest(detail: ErrorDetails) -> str:
    names = {"": list(AgentSettings.model_fields)}
    for name, field in AgentSettings.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            names[name] = list(annotation.model_fields)
    parts = [str(part) for part in detail["loc"]]
    known = names.get(parts[0] if len(parts) > 1 else "", [])
    near = difflib.get_close_matches(parts[-1], known, n=1)
    return f"did you mean {near[0]!r}?" if near else "remove the key"
