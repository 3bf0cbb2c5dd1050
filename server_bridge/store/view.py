"""The fleet at a glance, from the store alone: for people and for machines."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from edge_agent.wire.messages import State
from server_bridge.store.counts import Accuracies
from server_bridge.store.flags import StoredFlag
from server_bridge.store.merges import REFUSED, MergeRequest
from server_bridge.store.participation import Participation, participation
from server_bridge.store.sensor_faults import SENSOR_FAULT, lasting_faults
from server_bridge.store.store import Store

FAULTS_LOOKED_AT = 10_000
"""Events about sensors, the newest; one of before that has not ended is not shown."""


@dataclass(frozen=True, slots=True)
class GatewayView:
    """One gateway's line.

    Attributes:
        flag: what became of its last flag: ``open``, ``consumed`` or ``ignored``.
        lag: signed releases (timestamp versions) that it has not trusted yet.
        dropped: messages of it that were dropped.
        drops: the same by reason.
        ignored: why the bridge does not listen to it, if it does not.
        presence_s: when its presence last changed, wall clock seconds.
        last_round: its part in the last round that was committed, if it was asked.
        flag_event: its last flag with its evidence, as JSON values.
        accuracy: on holdout samples, of the weights before those it runs and of these, if counts tell.
        overlay_batches: that made what lies on its release, and predicts; 0: nothing does. `accuracy` is of that then.
        sensor_faults: those that last, in words, the oldest first.
        merge: what an operator asked of the cohort whose weights it runs: to go into another.
        regression: whether its bundle predicts values, so that its losses tell how it does.
    """

    id: str
    online: bool
    bundle: str | None
    cohort: str | None
    weights_version: int | None
    ota_state: str | None
    flag: str | None
    flag_s: float | None
    trainable_samples: int | None
    training: bool
    lag: int | None
    outbox_depth: int | None
    dropped: int
    drops: dict[str, int]
    ignored: str | None
    presence_s: float | None = None
    last_round: Participation | None = None
    accuracy: Accuracies | None = None
    flag_event: dict[str, Any] | None = None
    regression: bool = False
    sensor_faults: tuple[str, ...] = ()
    overlay_batches: int = 0
    merge: MergeRequest | None = None


def fleet_view(
    store: Store, timestamp_version: int | None, regressions: Container[str] = frozenset()
) -> list[GatewayView]:
    """Every registered gateway, by id.

    Args:
        timestamp_version: of the newest release map; ``None`` if there is none yet.
        regressions: digests of the bundles that predict values.
    """
    presences = store.gateways.presences()
    states = store.gateways.states()
    flags: dict[str, StoredFlag] = {flag.gateway: flag for flag in store.flags.all()}
    drops: dict[str, dict[str, int]] = {}
    for (gateway, reason), count in store.drops.all().items():
        drops.setdefault(gateway, {})[reason] = count
    merges = store.merges.all()
    accuracies, latest = store.counts.accuracies(), store.adaptations.latest_round()
    told = ((row.gateway, row.body) for row in store.events.recent(kinds=(SENSOR_FAULT,), limit=FAULTS_LOOKED_AT))
    faults = lasting_faults(told)
    views = []
    for row in store.gateways.registered():
        presence, known, flag = presences.get(row.id), states.get(row.id), flags.get(row.id)
        state = None if known is None else known.state
        behind = None if state is None or timestamp_version is None else timestamp_version - state.trusted.timestamp
        views.append(
            GatewayView(
                id=row.id,
                online=presence is not None and presence.online,
                bundle=None if state is None else state.bundle,
                cohort=None if state is None else state.cohort,
                weights_version=None if state is None else state.weights_version,
                ota_state=None if state is None else state.ota_state,
                flag=None if flag is None else flag.status,
                flag_s=None if flag is None else flag.received_s,
                trainable_samples=None if state is None else state.trainable_samples,
                training=state is not None and state.training,
                lag=behind,
                outbox_depth=None if state is None else state.outbox_depth,
                dropped=sum(drops.get(row.id, {}).values()),
                drops=drops.get(row.id, {}),
                ignored=row.ignored_why,
                presence_s=None if presence is None else presence.changed_s,
                last_round=None if latest is None else participation(latest, row.id),
                flag_event=None if flag is None else flag.event.model_dump(mode="json", exclude_none=True),
                accuracy=None if state is None else accuracies.get((row.id, _predicts(state))),
                overlay_batches=0 if state is None or state.overlay is None else state.overlay.batches,
                regression=state is not None and state.bundle in regressions,
                sensor_faults=tuple(fault.words() for fault in faults.get(row.id, [])),
                merge=None if state is None else _merge_of(state, merges),
            )
        )
    return views


def _merge_of(state: State, merges: Sequence[MergeRequest]) -> MergeRequest | None:
    """The newest request about the cohort that a gateway runs; it may have been fulfilled, and not activated yet."""
    own = (each for each in reversed(merges) if (each.bundle, each.gone) == (state.bundle, state.cohort))
    return next((each for each in own if each.status != REFUSED), None)


def _predicts(state: State) -> str:
    """The digest of the weights that predict there."""
    return state.weights if state.overlay is None else state.overlay.digest
