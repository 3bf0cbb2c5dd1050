"""The bridge's settings: ``bridge.toml``."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from edge_agent.link.settings_file import BrokerSection, Section, read_toml, settings_error
from edge_agent.wire.codec import Identifier
from edge_agent.wire.topics import is_identifier

MIB = 1024 * 1024
TIB = 1024 * 1024 * MIB
DAY_S = 86_400.0
YEAR_S = 365 * DAY_S

MOST_ROUNDS, MOST_SAMPLES, MOST_GATEWAYS = 10_000, 1_000_000_000, 1_000_000
Gateways = Annotated[int, Field(ge=1, le=MOST_GATEWAYS)]
Wait = Annotated[float, Field(ge=0, le=YEAR_S)]
Samples = Annotated[int, Field(ge=1, le=MOST_SAMPLES)]
_NAMED = 4
"""Gateways that an error names."""


class BridgeSection(Section):
    """Which fleet, and where things are; relative paths start at the settings file's folder.

    The store is copied every `store_copy_interval_s`, after each release and after a gateway is registered; a damaged
    one is restored from the newest sound copy. Two are kept, in `store-copies`. A `store` that is not SQLite has its
    own backups.
    """

    fleet: str
    data_dir: Path = Path()
    store: str | None = None
    store_copy_interval_s: Annotated[float, Field(ge=0.1, le=30 * DAY_S)] = 900.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _identifier(self) -> Self:
        if not is_identifier(self.fleet):
            raise ValueError(f"fleet {self.fleet!r} must be 1 to 64 of A-Z a-z 0-9 _ -")
        return self


class StrategySection(Section):
    """Which strategy; ``learning_rate``, ``beta_1``, ``beta_2`` and ``tau`` are FedAdam's.

    `cut` groups by a fixed least mean cosine inside a cohort (`clma`); left out: by the evidence (`docs/cohorting.md`).
    `aggregation` forms each cohort's mean (`clma`, `clma-paper`); but for `mean`, which weighs by example counts, a
    minority of hostile gateways cannot move it far. `trimmed-mean` and `krum` withstand `hostile_share` of a cohort.
    A gateway that works against the others of its cohort is regrouped as if it had flagged, and left out of the mean
    where it was regrouped before, if most members found their cohort's weights worse than those before; with
    `part_opposing` in every cohort (`clma`). `part_mixed` regroups a cohort whose members' updates agree in groups and
    cancel each other, round after round, though nobody flagged (`clma`; `docs/cohorts.md`).
    `merge_threshold` is the cosine distance of two cohorts' changes from the root's weights at which they merge; left
    out: never. `return_rounds` is for how many rounds in a row a small cohort that split off must agree with another to
    go back (`clma`); 0: never.
    `recognition` sends drifted gateways to the cohort that their changed weights point to (`clma`). With `candidates`
    a flagged gateway first evaluates the models of at most so many other cohorts and trains in the best, if its loss is
    at most `candidate_delta` above what that model has on its own members' data (`clma`, `clma-paper`); 0: none.
    With `best_start` gateways of one cohort for whose drift none of these is good enough train, in the round that
    regroups them, from the one with clearly the least loss on their samples; from the root's if all of these are above
    `chance_loss`, the loss of a model that knows nothing (ln of the classes for cross-entropy; left out: not asked).
    """

    name: Literal["clma", "clma-paper", "fedavg", "fedadam"] = "clma"
    cut: Annotated[float, Field(ge=-1, le=1)] | None = None
    merge_threshold: Annotated[float, Field(ge=0, le=2)] | None = None
    algorithm2: bool = False
    gamma: Annotated[float, Field(gt=0, le=1000)] = 0.1
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.1
    beta_1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta_2: Annotated[float, Field(ge=0, lt=1)] = 0.99
    tau: Annotated[float, Field(ge=1e-12, le=10)] = 1e-3
    min_nodes: Gateways = 1
    aggregation: Literal["mean", "trimmed-mean", "median", "krum"] = "mean"
    hostile_share: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    part_opposing: bool = False
    part_mixed: bool = True
    return_rounds: Annotated[int, Field(ge=0, le=MOST_ROUNDS)] = 2
    recognition: bool = True
    candidates: Annotated[int, Field(ge=0, le=16)] = 0
    candidate_delta: Annotated[float, Field(ge=0, le=1000)] = 0.1
    best_start: bool = False
    chance_loss: Annotated[float, Field(gt=0, le=1000)] | None = None


class TriggerSection(Section):
    """When flags start an adaptation."""

    min_flags: Gateways = 1
    max_age_s: Annotated[float, Field(ge=1e-3, le=YEAR_S)] = 3600.0
    settle_s: Wait = 60.0
    min_samples: Annotated[int, Field(ge=0, le=MOST_SAMPLES)] = 200
    min_samples_cap_s: Wait = 600.0
    cooldown_s: Wait = 300.0

    @model_validator(mode="after")
    def _cap_before_age(self) -> Self:
        if self.min_samples_cap_s >= self.max_age_s:
            raise ValueError(
                f"min_samples_cap_s = {self.min_samples_cap_s:g} must be less than max_age_s = {self.max_age_s:g}:"
                " flags would be too old before they are acted on"
            )
        return self


class RoundSection(Section):
    """What every round asks of the gateways.

    `first_learning_rate` holds in round 1, where cohorts are told apart by the direction of the changes: small steps
    keep it. Left out: as `learning_rate`. `evaluate_timeout_s` is for each candidate that a gateway evaluates.
    With `schedule = "fed-ade"` a gateway's rate moves between `learning_rate_min` and `learning_rate`, by how far its
    data moves (`docs/training.md`). `label_shift` is for a `training_graph` without labels: the shares of the classes
    in a gateway's data are estimated; else they are taken to be those of the bundle. `send_worse`: also an update
    that made its gateway's held-out loss worse is sent; else such a gateway sits the round out and the log says so.
    `gateway_graphs` (gateway id to training graph) lets gateways work on different tasks in the same rounds: each
    tensor is averaged over the gateways that train it (`fedavg`, `fedadam`). `scalars` sets others of the training
    graph than its learning rate, such as `{ momentum = 0.95, clip_norm = 1.0 }`; those left out have its defaults.
    """

    rounds: Annotated[int, Field(ge=1, le=MOST_ROUNDS)] = 8
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86_400)] = 600.0
    evaluate_timeout_s: Annotated[float, Field(gt=0, le=7 * 86_400)] = 120.0
    attempts: Annotated[int, Field(ge=1, le=1000)] = 3
    training_graph: str = "adam"
    gateway_graphs: dict[Identifier, str] = {}
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.003
    first_learning_rate: Annotated[float, Field(gt=0, le=10)] | None = None
    schedule: Literal["constant", "fed-ade"] = "constant"
    learning_rate_min: Annotated[float, Field(ge=0, le=10)] = 0.0
    label_shift: bool = False
    send_worse: bool = False
    scalars: Annotated[dict[str, Annotated[float, Field(ge=-1e6, le=1e6)]], Field(max_length=64)] = {}
    epochs: Annotated[int, Field(ge=1, le=1000)] = 3
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 32
    min_samples: Samples = 64
    max_samples: Samples = 5000
    coding: Literal["fp32", "fp16", "int8"] = "fp16"
    seed: Annotated[int, Field(ge=0, le=2**53)] = 0

    @model_validator(mode="after")
    def _least_before_most(self) -> Self:
        if self.min_samples > self.max_samples:
            raise ValueError(
                f"min_samples = {self.min_samples} must be at most max_samples = {self.max_samples}:"
                " no gateway could train"
            )
        return self

    @model_validator(mode="after")
    def _least_rate_before_most(self) -> Self:
        most = min(rate for rate in (self.learning_rate, self.first_learning_rate) if rate is not None)
        if self.learning_rate_min > most:
            raise ValueError(f"learning_rate_min = {self.learning_rate_min:g} must be at most the rate {most:g}")
        if self.learning_rate_min > 0 and self.schedule == "constant":
            raise ValueError(
                'learning_rate_min is of no use with schedule = "constant": take "fed-ade", or leave it out'
            )
        return self


class ReleaseSection(Section):
    """Releases and what the broker keeps for them."""

    retained_budget_bytes: Annotated[int, Field(ge=MIB, le=TIB)] = 256 * MIB


class BridgeSettings(Section):
    """Everything an operator can set."""

    bridge: BridgeSection
    broker: BrokerSection = BrokerSection()
    strategy: StrategySection = StrategySection()
    trigger: TriggerSection = TriggerSection()
    round: RoundSection = RoundSection()
    release: ReleaseSection = ReleaseSection()

    @model_validator(mode="after")
    def _cohorts_are_of_one_graph(self) -> Self:
        usual, compared = self.round.training_graph, self.strategy.name not in ("fedavg", "fedadam")
        others = [f"{name} {graph!r}" for name, graph in self.round.gateway_graphs.items() if graph != usual]
        if others and compared:
            raise ValueError(
                f"[round] gateway_graphs: {', '.join(others[:_NAMED])}{' ...' if others[_NAMED:] else ''} where the"
                f" others train {usual!r}; name = {self.strategy.name!r} compares gateways by what they trained, so all"
                ' must train the same task: take [strategy] name = "fedavg", or leave gateway_graphs out'
            )
        return self


def load_settings(path: Path) -> BridgeSettings:
    """Read and check a settings file; its paths become absolute.

    Raises:
        ConfigError: absent, unreadable, no TOML, or a key unknown or wrong (named, with its value and the fix).
    """
    hint = "give its path with -c, or run `server-bridge init`"
    raw = read_toml(path, path_keys=_PATH_KEYS, absent_hint=hint)
    if isinstance(raw.get("bridge"), dict):
        raw["bridge"].setdefault("data_dir", str(path.resolve().parent))
    try:
        return BridgeSettings.model_validate(raw)
    except ValidationError as error:
        raise settings_error(path, BridgeSettings, error) from None


_PATH_KEYS = frozenset({"data_dir", "credentials", "ca", "certificate", "key"})
