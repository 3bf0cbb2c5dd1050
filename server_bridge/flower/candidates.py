"""Before a drifted client trains: is one of the known cohorts' models good for it already?"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from server_bridge.cohorts.candidate_choice import CandidateRule, Choice, Score, choose
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId, CohortRegistry
from server_bridge.flower.records import (
    ARRAYS_KEY,
    CANDIDATE_KEY,
    COHORT_KEY,
    CONFIG_KEY,
    EXAMPLES_KEY,
    ROUND_KEY,
    cohort_number,
    to_record,
)

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Who is asked about which cohorts.

    Attributes:
        server_round: the round that they are about to train in.
        cohorts: client to the cohorts whose models it evaluates, its own first.
        levels: cohort to the loss that its model has on its own members' data, where known.
        numbered: whether clients are told a cohort's number instead of its name.
    """

    server_round: int
    cohorts: Mapping[ClientId, Sequence[CohortId]]
    levels: Mapping[CohortId, float]
    numbered: bool


def short_list(
    registry: CohortRegistry, client: ClientId, most: int, always: Sequence[CohortId] = ()
) -> list[CohortId]:
    """The client's own cohort, and at most so many others that it may have returned to.

    Cohorts that it has been in come first, the latest of them before all, then the largest, then
    the youngest. Those of ``always`` that are not among them come last, beyond the number.
    """
    own = registry.cohort_of(client)
    been = {move.source: place for place, move in enumerate(registry.lineage) if move.client == client}
    living = [cohort for cohort in registry.cohort_ids if registry.params(cohort) and cohort != own]
    age = {cohort: place for place, cohort in enumerate(living)}
    sizes = {cohort: len(registry.members(cohort)) for cohort in living}
    ranked = sorted(living, key=lambda cohort: (-been.get(cohort, -1), -sizes[cohort], -age[cohort]))
    return [own, *ranked[:most], *(cohort for cohort in ranked[most:] if cohort in always)]


def inquire(
    grid: Grid, rule: CandidateRule, inquiry: Inquiry, params: Callable[[CohortId], Mapping[str, NDArray[Any]]]
) -> dict[ClientId, Choice]:
    """Let every client evaluate its cohorts, one after the other; who fails once is not asked again.

    Args:
        grid: takes evaluate messages, one a node at a time.
        rule: how the best is judged.
        inquiry: who evaluates what.
        params: a cohort's weights.

    Returns:
        The choice for each client that has evaluated its own model and at least one other.
    """
    scores: dict[ClientId, dict[CohortId, Score]] = {client: {} for client in inquiry.cohorts}
    records: dict[CohortId, ArrayRecord] = {}
    waiting = {client: list(cohorts) for client, cohorts in inquiry.cohorts.items() if len(cohorts) > 1}
    while waiting:
        asked = {client: cohorts.pop(0) for client, cohorts in sorted(waiting.items())}
        for cohort in set(asked.values()) - records.keys():
            records[cohort] = to_record(params(cohort))
        messages = [_message(client, cohort, records[cohort], inquiry) for client, cohort in asked.items()]
        answers = _answers(grid.send_and_receive(messages))
        for client, score in answers.items():
            scores[client][asked[client]] = score
        waiting = {client: cohorts for client, cohorts in waiting.items() if cohorts and client in answers}
    return {
        client: choose(rule, inquiry.cohorts[client][0], mine, inquiry.levels)
        for client, mine in scores.items()
        if len(mine) > 1
    }


def _message(client: ClientId, cohort: CohortId, record: ArrayRecord, inquiry: Inquiry) -> Message:
    name = cohort_number(cohort) if inquiry.numbered else cohort
    config = ConfigRecord({ROUND_KEY: inquiry.server_round, COHORT_KEY: name, CANDIDATE_KEY: True})
    return Message(RecordDict({ARRAYS_KEY: record, CONFIG_KEY: config}), client, MessageType.EVALUATE)


def _answers(replies: Iterable[Message]) -> dict[ClientId, Score]:
    found: dict[ClientId, Score] = {}
    for reply in replies:
        client = reply.metadata.src_node_id
        score = None if reply.has_error() else _score(reply)
        if score is None:
            logger.warning("candidate_not_evaluated", node=client)
        else:
            found[client] = score
    return found


def _score(reply: Message) -> Score | None:
    metrics: list[MetricRecord] = list(reply.content.metric_records.values())
    moved_aside: list[ConfigRecord] = list(reply.content.config_records.values())
    values: dict[str, object] = {}
    for metric in metrics:
        values.update(metric.items())
    for config in moved_aside:
        values.update(config.items())
    loss, count, error = (_number(values.get(key)) for key in ("loss", EXAMPLES_KEY, "loss-error"))
    if loss is None or count is None or count < 1:
        return None
    return Score.guessed(loss, count) if error is None else Score(loss, count, error)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None
