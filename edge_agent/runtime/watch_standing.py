"""Where the drift monitors stand, and the rows that keep it."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import structlog

from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.loss_rise import MONITOR_NAME as LOSS_RISE
from edge_agent.drift.loss_rise import LossRiseState
from edge_agent.drift.policy.catalogue import MonitorState
from edge_agent.drift.policy.labels import LabelFacts
from edge_agent.drift.policy.rise import RiseState
from edge_agent.drift.policy.season import SeasonState
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Held, PolicyState, Role
from edge_agent.errors import DataError, WireError
from edge_agent.link.database import Database, Row
from edge_agent.runtime.packing import decoded, encoded
from edge_agent.runtime.watch_answer import Asked
from edge_agent.runtime.watch_rules import Watched, WatchRules
from edge_agent.wire.messages import FlagEvent

TABLES = (
    """CREATE TABLE watch (
        name TEXT PRIMARY KEY,
        place TEXT NOT NULL,
        state TEXT NOT NULL
    )""",
)
WATCH, SEASON = "watch", "season"
"""Rows beside those of the monitors: of the policy, and of the seasonal baseline."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the watch stands in what it sees, and the flag that stands.

    Attributes:
        epoch: random per database; with the firing number it makes a flag's id.
        weights: the digest of the weights the states are about.
        cursor: arrival number of the last labelled sample judged or passed over.
        drifted_from: id of the first drifted sample of the latest flag; training starts there.
        open_flag: whether no activation has followed that flag yet.
        flag: that flag as JSON, as long as it is open: a bridge that lost it gets it again.
        overlay: digest of what lies on these weights; "": nothing.
        overlays: digests of what has lain on them, the latest last, but for what labels have shown to be worse.
        overlaid_at: batches of the label-free monitor when that changed last, or at the activation.
        asked: the flag that these weights have still to answer.
        renewed: flags in a row that said anew what an activation had not answered.
    """

    epoch: str
    weights: str
    cursor: int = 0
    drifted_from: str | None = None
    open_flag: bool = False
    flag: str | None = None
    overlay: str = ""
    overlays: tuple[str, ...] = ()
    overlaid_at: int = 0
    asked: Asked | None = None
    renewed: int = 0

    def judges(self, weights: str) -> bool:
        """Whether what these weights predicted tells of the release that serves, or of what lay on it."""
        return weights == self.weights or weights in self.overlays


@dataclass(frozen=True, slots=True)
class Standing:
    """Where everything stands; replaced as a whole.

    Attributes:
        states: of each monitor, by its name.
        findings: the latest of each monitor on these weights.
        batches: judged by each monitor, over all weights.
        facts: of the labels.
        events: flags raised since the last commit.
        touched: rows to be written at the next.
    """

    place: Place
    policy: PolicyState
    states: Mapping[str, MonitorState]
    findings: Mapping[str, Finding] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    facts: LabelFacts = field(default_factory=LabelFacts)
    season: SeasonState | None = None
    events: tuple[FlagEvent, ...] = ()
    touched: frozenset[str] = frozenset()

    def with_state(self, name: str, state: MonitorState) -> "Standing":
        """After a monitor's step."""
        return replace(self, states={**self.states, name: state}, touched=self.touched | {name})

    def settled(self) -> "Standing":
        """After the commit."""
        return replace(self, events=(), touched=frozenset())


class StandingTable:
    """The standing in the agent's database: a row a monitor, one for the policy.

    Args:
        database: the outbox must use the same one.
    """

    def __init__(self, database: Database) -> None:
        database.define("watch", TABLES)
        self._database = database

    def load(self, rules: WatchRules) -> Standing:
        """What was committed last; anew, under another epoch, where it cannot be read.

        A monitor that was not there, had other constants, or whose state is of an earlier version, begins as after an
        activation; with it the policy.

        Raises:
            StorageError: the database cannot be read.
        """
        rows = {row[0]: row for row in self._database.query("SELECT name, place, state FROM watch")}
        try:
            if WATCH in rows:
                return self._restored(rows, rules)
            if LOSS_RISE in rows:
                return _of_before(rows[LOSS_RISE], rules)
        except (DataError, WireError, ValueError, TypeError, KeyError, AttributeError) as error:
            _log.error("monitor_state_unreadable", problem=str(error))
        return begun(rules)

    def save(self, standing: Standing, rules: WatchRules) -> None:
        """Write what was touched; inside the caller's transaction.

        Raises:
            StorageError: the database refuses.
        """
        for one in rules.every:
            if one.monitor.name in standing.touched:
                state = standing.states[one.monitor.name]
                self._put(one.monitor.name, json.dumps({"rule": one.rule}), encoded(state.to_arrays()))
        if SEASON in standing.touched and standing.season is not None:
            self._put(SEASON, json.dumps(None), encoded(standing.season.to_arrays()))
        document = {
            "policy": standing.policy.to_document(),
            "findings": {name: _told(finding) for name, finding in standing.findings.items()},
            "batches": dict(standing.batches),
            "facts": _fields(standing.facts),
        }
        self._put(WATCH, json.dumps(_fields(standing.place)), json.dumps(document))

    def _put(self, name: str, place: str, state: str | bytes) -> None:
        self._database.execute(
            "INSERT INTO watch VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET place = excluded.place, state = excluded.state",
            (name, place, state),
        )

    def _restored(self, rows: Mapping[str, Row], rules: WatchRules) -> Standing:
        place = _place(json.loads(rows[WATCH][1]))
        document = json.loads(rows[WATCH][2])
        standing = Standing(
            place,
            PolicyState.from_document(document["policy"]),
            {},
            {name: _finding(told) for name, told in document["findings"].items()},
            {name: int(count) for name, count in document["batches"].items()},
            LabelFacts(**document["facts"]),
        )
        for one in rules.every:
            standing = _with_stored(standing, rules, one, rows.get(one.monitor.name))
        return replace(standing, season=_season(rows.get(SEASON), rules))


def begun(rules: WatchRules) -> Standing:
    """Nothing seen yet."""
    return Standing(
        Place(secrets.token_hex(8), ""),
        PolicyState(),
        {one.monitor.name: one.monitor.start() for one in rules.every},
        season=None if rules.season is None else SeasonState.start(rules.season),
        touched=frozenset(one.monitor.name for one in rules.every),
    )


def _with_stored(standing: Standing, rules: WatchRules, one: Watched, row: Row | None) -> Standing:
    """The monitor's own state; it begins anew if it was not there, has had other constants or cannot be read."""
    name = one.monitor.name
    stored = _stored(one, row)
    if stored is not None:
        return replace(standing, states={**standing.states, name: stored})
    fresh = one.monitor.start()
    weights = standing.place.weights
    fresh = rules.rebaselined(one, fresh, weights) if weights else fresh
    findings = {other: finding for other, finding in standing.findings.items() if other != name}
    policy = standing.policy
    if one.monitor.role is not None:
        held = {role: level for role, level in policy.held.items() if role is not one.monitor.role}
        holds = any(level.level is policy.verdict for level in held.values())
        policy = replace(policy, held=held, verdict=policy.verdict if holds else Verdict.NONE)
    return replace(standing, policy=policy, findings=findings).with_state(name, fresh)


def _stored(one: Watched, row: Row | None) -> MonitorState | None:
    """As it was written; None: it was not, with these constants, or this version cannot read it."""
    if row is None or json.loads(row[1])["rule"] != one.rule:
        return None
    try:
        return one.monitor.restored(decoded(row[2]))
    except (DataError, WireError) as error:
        _log.error("monitor_begins_anew", monitor=one.monitor.name, problem=str(error))
        return None


def _of_before(row: Row, rules: WatchRules) -> Standing:
    """The one monitor's row of earlier versions."""
    told: dict[str, Any] = json.loads(row[1])
    rule = str(told.pop("rule", ""))
    place = _place(told)
    before = LossRiseState.from_json(row[2])
    held = {Role.LABELLED: Held(Verdict.ALARM, before.quiet)} if before.held_loss is not None else {}
    verdict = Verdict.ALARM if held else Verdict.NONE
    policy = PolicyState(verdict, held, flags=before.firings)
    standing = Standing(place, policy, {}, batches={LOSS_RISE: before.batches})
    for one in rules.every:
        if one.monitor.name == LOSS_RISE and one.rule == rule:
            standing = standing.with_state(LOSS_RISE, RiseState(one.monitor.params, before))
        else:
            standing = _with_stored(standing, rules, one, None)
    return replace(standing, season=_season(None, rules))


def _place(told: dict[str, Any]) -> Place:
    waiting = told.get("asked")
    lists = {"overlays": tuple(told.get("overlays", ())), "asked": None if waiting is None else Asked.read(waiting)}
    place = Place(**{**told, **lists})
    if place.flag is not None:
        FlagEvent.model_validate_json(place.flag)
    return place


def _told(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "attributions": [_fields(one) for one in finding.attributions]}


def _fields(one: Attribution | LabelFacts | Place) -> dict[str, Any]:
    """By name; ``asdict`` copies what never changes."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _finding(told: dict[str, Any]) -> Finding:
    return Finding(**{**told, "attributions": tuple(Attribution(**one) for one in told["attributions"])})


def _season(row: Row | None, rules: WatchRules) -> SeasonState | None:
    if rules.season is None:
        return None
    try:
        return (
            SeasonState.start(rules.season) if row is None else SeasonState.from_arrays(rules.season, decoded(row[2]))
        )
    except DataError as error:
        _log.warning("seasonal_baseline_begins_anew", problem=error.problem)
        return SeasonState.start(rules.season)
