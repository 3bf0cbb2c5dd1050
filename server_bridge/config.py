"""The bridge's settings: ``bridge.toml``."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from edge_agent.errors import ConfigError
from edge_agent.link.settings import BrokerSettings, TlsSettings
from edge_agent.wire.topics import is_identifier

MIB = 1024 * 1024
CONFIG_CAP_BYTES = 1024 * 1024

Port = Annotated[int, Field(ge=1, le=65_535)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Natural = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BridgeSection(Section):
    """Which fleet, and where things are; relative paths start at the settings file's folder."""

    fleet: str
    data_dir: Path = Path()
    store: str | None = None
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _identifier(self) -> Self:
        if not is_identifier(self.fleet):
            raise ValueError(f"fleet {self.fleet!r} must be 1 to 64 of A-Z a-z 0-9 _ -")
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


class StrategySection(Section):
    """Which strategy; ``learning_rate``, ``beta_1``, ``beta_2`` and ``tau`` are FedAdam's."""

    name: Literal["clma", "clma-paper", "fedavg", "fedadam"] = "clma"
    cut: Annotated[float, Field(ge=-1, le=1)] = 0.35
    merge_threshold: NotNegative | None = None
    algorithm2: bool = False
    gamma: Positive = 0.1
    learning_rate: Positive = 0.1
    beta_1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Positive = 1e-3
    min_nodes: Natural = 1


class TriggerSection(Section):
    """When flags start an adaptation."""

    min_flags: Natural = 1
    max_age_s: Positive = 3600.0
    settle_s: NotNegative = 60.0
    min_samples: Annotated[int, Field(ge=0)] = 200
    min_samples_cap_s: NotNegative = 600.0
    cooldown_s: NotNegative = 300.0


class RoundSection(Section):
    """What every round asks of the gateways."""

    rounds: Natural = 8
    timeout_s: Positive = 600.0
    attempts: Natural = 3
    training_graph: str = "adam"
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.003
    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 32
    min_samples: Natural = 64
    max_samples: Natural = 5000
    coding: Literal["fp32", "fp16", "int8"] = "fp16"
    seed: Annotated[int, Field(ge=0)] = 0


class ReleaseSection(Section):
    """Releases and what the broker keeps for them."""

    retained_budget_bytes: Annotated[int, Field(ge=MIB)] = 256 * MIB


class BridgeSettings(Section):
    """Everything an operator can set."""

    bridge: BridgeSection
    broker: BrokerSection = BrokerSection()
    strategy: StrategySection = StrategySection()
    trigger: TriggerSection = TriggerSection()
    round: RoundSection = RoundSection()
    release: ReleaseSection = ReleaseSection()


def load_settings(path: Path) -> BridgeSettings:
    """Read and check a settings file; its paths become absolute.

    Raises:
        ConfigError: absent, unreadable, no TOML, or a key unknown or wrong (named, with its value and the fix).
    """
    try:
        if path.stat().st_size > CONFIG_CAP_BYTES:
            raise ConfigError(f"settings file {path} is larger than {CONFIG_CAP_BYTES} bytes")
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"settings file {path} does not exist", "give its path with -c, or run `server-bridge init`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"settings file {path} is not TOML: {error}") from None
    folder = path.resolve().parent
    try:
        return BridgeSettings.model_validate(_absolute(raw, folder))
    except ValidationError as error:
        raise ConfigError(f"settings file {path}: {_describe(error)}", _hint(error)) from None


_PATH_KEYS = ("data_dir", "ca", "certificate", "key")


def _absolute(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    made = {name: dict(table) if isinstance(table, dict) else table for name, table in raw.items()}
    if isinstance(made.get("bridge"), dict):
        made["bridge"].setdefault("data_dir", ".")
    for table in made.values():
        if isinstance(table, dict):
            table.update({key: str(folder / table[key]) for key in _PATH_KEYS if isinstance(table.get(key), str)})
    return made


def _describe(error: ValidationError) -> str:
    details = error.errors(include_url=False, include_context=False)
    return "; ".join(f"{_place(detail)} = {detail['input']!r}: {detail['msg']}"[:300] for detail in details)


def _place(detail: ErrorDetails) -> str:
    parts = [str(part) for part in detail["loc"]]
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
    parts = [str(part) for part in detail["loc"]]
    names = list(BridgeSettings.model_fields)
    if len(parts) > 1:
        section = BridgeSettings.model_fields[parts[0]].annotation
        names = list(section.model_fields) if isinstance(section, type) and issubclass(section, BaseModel) else []
    near = difflib.get_close_matches(parts[-1], names, n=1)
    return f"did you mean {near[0]!r}?" if near else "remove the key"
