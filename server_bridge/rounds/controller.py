"""Watches flags, decides, runs adaptations."""

import threading
import time
from collections.abc import Callable

import structlog

from server_bridge.rounds.adaptation import AdaptationRunner
from server_bridge.rounds.flags import OpenFlags, sort_flags
from server_bridge.rounds.merging import CohortMerges
from server_bridge.rounds.release_book import Releases, released_weights
from server_bridge.rounds.trigger import Decision, TriggerParams, decide
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.store import Store

LOOK_INTERVAL_S = 1.0

_log = structlog.get_logger(__name__)


class FlagWatch:
    """The open flags of the store, sorted; those about weights that run no longer are set aside.

    Args:
        store: flags, states, decisions.
        releases: what gateways should run.
        bundles: what can be adapted.
        wall: seconds since 1970.
    """

    def __init__(
        self, store: Store, releases: Releases, bundles: BundleFolder, wall: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._releases = releases
        self._bundles = bundles
        self._wall = wall

    def bundles(self) -> list[str]:
        """Bundles with an open flag; flags about a bundle that the bridge does not have are set aside."""
        flags = self._store.flags.open()
        strange = [flag for flag in flags if flag.event.bundle not in self._bundles]
        if strange:
            self._ignore([flag.event.flag_id for flag in strange], "unknown-bundle", "the bridge has no such bundle")
        return sorted({flag.event.bundle for flag in flags if flag.event.bundle in self._bundles})

    def open_flags(self, bundle: str) -> OpenFlags:
        """Open flags of a bundle about running weights."""
        flags = [flag for flag in self._store.flags.open() if flag.event.bundle == bundle]
        sorted_flags = sort_flags(
            flags,
            self._store.gateways.states(),
            self._store.gateways.presences(),
            lambda gateway: released_weights(self._releases, bundle, gateway),
        )
        if sorted_flags.superseded:
            names = ", ".join(sorted({flag.gateway for flag in sorted_flags.superseded}))
            ids = [flag.event.flag_id for flag in sorted_flags.superseded]
            self._ignore(ids, "superseded", f"about weights that run no longer: {names}")
        return sorted_flags

    def _ignore(self, flag_ids: list[str], reason: str, detail: str) -> None:
        with self._store.transaction():
            self._store.flags.ignore(flag_ids)
            self._store.decisions.record("flags-ignored", reason, detail, self._wall(), facts={"flags": flag_ids})


class Controller:
    """One step looks at the flags and, if they say so, runs an adaptation to its end.

    Args:
        store: decisions, adaptations.
        watch: open flags.
        runner: runs adaptations.
        merges: takes up what operators asked of cohorts.
        trigger: the policy's parameters.
        stopping: set when the bridge is to end.
        wall: seconds since 1970; flags are stamped on this clock.
    """

    def __init__(
        self,
        store: Store,
        watch: FlagWatch,
        runner: AdaptationRunner,
        merges: CohortMerges,
        trigger: TriggerParams,
        stopping: threading.Event,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._watch = watch
        self._runner = runner
        self._merges = merges
        self._trigger = trigger
        self._stopping = stopping
        self._wall = wall
        self._last_reason: dict[str, str] = {}

    def step(self) -> None:
        """Look, then rest a moment."""
        self.look()
        self._stopping.wait(LOOK_INTERVAL_S)

    def look(self) -> None:
        """Resume what a former run left, then do what operators asked, then decide."""
        self._runner.run()
        if not self._stopping.is_set():
            self._merges.take_up()
        for bundle in self._watch.bundles():
            if self._stopping.is_set():
                return
            self._decide(bundle)

    def _decide(self, bundle: str) -> None:
        flags = self._watch.open_flags(bundle)
        last_ended_s = self._store.adaptations.last_ended_s()
        decision = decide(self._trigger, flags.current, self._wall(), last_ended_s=last_ended_s)
        if decision.start:
            self._last_reason.pop(bundle, None)
            _log.info("adaptation-begins", reason=decision.reason, gateways=list(decision.gateways))
            self._runner.begin(bundle, decision.reason, decision.detail, decision.gateways)
            self._runner.run()
        elif self._last_reason.get(bundle) != decision.reason:
            self._last_reason[bundle] = decision.reason
            self._record_wait(decision)

    def _record_wait(self, decision: Decision) -> None:
        facts = {"gateways": list(decision.gateways)}
        self._store.decisions.record("wait", decision.reason, decision.detail, self._wall(), facts=facts)
