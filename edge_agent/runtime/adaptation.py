"""Following the stream between rounds: a worker adapts, and what it makes is laid on the release that serves."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from edge_agent.config import AdaptationSection
from edge_agent.errors import ConfigError, DataError, RejectedUpdate, StorageError, TransientError
from edge_agent.model.bundle import Bundle
from edge_agent.ota.activation import slot_of
from edge_agent.ota.weights_store import Loaded, WeightsStore
from edge_agent.runtime.adaptation_course import Course, CourseLimits
from edge_agent.runtime.adaptation_status import AdaptationStatus
from edge_agent.runtime.adaptation_work import AdaptationWork, has_judged, judgement
from edge_agent.runtime.part import ThreadPart
from edge_agent.serving.server import ModelServer, Prepared
from edge_agent.training.overlay_file import SavedOverlay
from edge_agent.training.suited import unsuited
from edge_agent.training.supervisor import TrainingOutcome

LOOK_S = 0.25
MOST_DOUBLED = 6
"""A worker that fails is started again after twice the interval, four times, ... at most so many doublings."""
PROBLEM_CHARS = 300
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rest of the agent tells, and is told.

    Attributes:
        served_samples: so far.
        busy: whether a round or an evaluation is under way: it goes first.
        may_swap: whether the monitors have judged enough since the last change.
        flags: raised so far; another one brings the judgement forward.
        dropped: told why an overlay was taken off, and what to do.
        changed: called when something else serves.
    """

    served_samples: Callable[[], int]
    busy: Callable[[], bool]
    may_swap: Callable[[], bool]
    flags: Callable[[], int]
    dropped: Callable[[str, str], None] = lambda problem, hint: None
    changed: Callable[[], None] = lambda: None


class Adaptation(ThreadPart):
    """One thread that owns a worker process: it starts it, takes what it made, and lays it on the release.

    Nothing of an overlay outlives the agent or the release: a start, an activation, a fallback and a revert serve the
    release, and follow the stream anew. Rounds know nothing of it: they begin with weights that the bridge names.

    Args:
        work: the worker and its files.
        monotonic_s: the clock that intervals are measured by.

    Raises:
        ConfigError: the provisioned bundle serves, and cannot be followed by the graph that the settings name.
    """

    def __init__(
        self,
        section: AdaptationSection,
        server: ModelServer,
        store: WeightsStore,
        work: AdaptationWork,
        around: Surroundings,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("adaptation")
        self._section, self._server, self._store = section, server, store
        self._worker, self._around, self._monotonic_s = work, around, monotonic_s
        self._course = Course(CourseLimits(section.max_swaps_per_hour, section.judge_within_s))
        self._failures = self._served = self._flags = 0
        self._on = server.release
        self._status = self._beginning()
        self._due_s = monotonic_s() + section.interval_s
        if self._status.state == "unsuited" and _bundle(self._on).digest == store.provisioned.digest:
            raise ConfigError(
                f"[adaptation] online = true: bundle {store.provisioned.manifest.name!r} cannot be followed: "
                f"{self._status.why}",
                "build it with `server-bridge bundle build --label-free entropy`, name its graph in [adaptation] graph,"
                " or set online = false",
            )

    @property
    def status(self) -> AdaptationStatus:
        """Where it stands; any thread."""
        laid, course = self._server.active.overlay, self._course
        told = replace(self._status, laid=course.laid, dropped=dict(course.dropped))
        if told.state == "unsuited":
            return told
        if laid is not None:
            return replace(told, state="overlaid", overlay=laid.digest, batches=laid.batches)
        return replace(told, state="rests" if course.rests(self._monotonic_s()) else "follows", batches=0)

    def look(self) -> None:
        """One step, which waits for nothing: what is due is begun, what has ended is taken."""
        try:
            self._worker.sweep()
            self._step(self._monotonic_s())
        except (StorageError, TransientError, DataError) as error:
            self._put_off(str(error))

    def _work(self) -> None:
        """The worker dies with this thread, whatever ends it."""
        try:
            while not self._stopping.wait(LOOK_S):
                self.look()
        finally:
            self._worker.stop()

    def _step(self, now_s: float) -> None:
        if self._server.release is not self._on:
            self._begin_anew(now_s)
        if self._status.state == "unsuited":
            return
        if self._server.active.overlay is not None and self._course.is_overdue(now_s):
            self._give_up("unjudged", f"no labels judged it within {self._section.judge_within_s:g} s")
        if self._worker.busy:
            self._take(now_s)
        elif self._is_due(now_s):
            self._start(now_s)

    def _begin_anew(self, now_s: float) -> None:
        """Another release serves."""
        self._worker.forget()
        self._on = self._server.release
        self._course.released()
        self._status = self._beginning()
        self._due_s = now_s + self._section.interval_s

    def _beginning(self) -> AdaptationStatus:
        """A release that cannot be followed is served all the same."""
        why = unsuited(_bundle(self._on), self._section.graph)
        if why is None:
            return AdaptationStatus("follows")
        _log.warning("adaptation_unsuited", why=why)
        return AdaptationStatus("unsuited", why)

    def _is_due(self, now_s: float) -> bool:
        if self._around.busy() or self._course.rests(now_s):
            return False
        if self._server.active.overlay is not None:  # also without new samples: labels may have come
            return now_s >= self._due_s or self._around.flags() != self._flags
        return now_s >= self._due_s and self._around.served_samples() - self._served >= self._section.batch_size

    def _start(self, now_s: float) -> None:
        self._due_s = now_s + self._section.interval_s
        self._served, self._flags = self._around.served_samples(), self._around.flags()
        if self._worker.is_whole():
            self._worker.start(self._release())
        else:
            self._give_up("damaged", "the file of what was followed is not what was written")

    def _release(self) -> Loaded:
        """What serves without an overlay."""
        try:
            return self._store.load(slot_of(self._on))
        except RejectedUpdate as error:
            raise DataError(f"the release that serves is not to be had from the disk: {error.problem}") from None

    def _take(self, now_s: float) -> None:
        if self._around.busy():
            self._worker.stop()
            return
        outcome = self._worker.poll()
        if outcome is None:
            return
        if not outcome.ok:
            self._put_off(f"{outcome.reason}: {outcome.detail}")
            return
        self._failures = 0
        told = outcome.metrics
        self._status = replace(
            self._status,
            problem="",
            judged=judgement(outcome) or self._status.judged,
            rate=float(told.get("rate-mean", 0.0)),
            distance=float(told.get("distance", 0.0)),
        )
        self._look_at(outcome, now_s)
        self._worker.done()

    def _look_at(self, outcome: TrainingOutcome, now_s: float) -> None:
        if outcome.overlay is None:
            if outcome.metrics.get("made-worse"):
                self._give_up("worse", judgement(outcome))
            elif outcome.metrics.get("went-back"):
                self._give_up("not-finite", "a step gave a number that is not finite")
            return
        try:
            followed = self._worker.keep(outcome.overlay)
        except DataError as error:
            self._give_up("damaged", error.problem)
            return
        if has_judged(outcome):
            self._course.judged(now_s)
        self._lay(followed, now_s)

    def _lay(self, followed: SavedOverlay, now_s: float) -> None:
        """Serve it, where that is allowed and it is new."""
        laid = self._server.active.overlay
        if laid is not None and laid.digest == followed.digest:
            return
        barred = self._course.barred(now_s) or (None if self._around.may_swap() else "monitors")
        self._status = replace(self._status, why=_WHY[barred])
        if barred is not None:
            return
        try:
            made = self._prepared(followed)
        except (RejectedUpdate, DataError) as error:
            self._give_up("unfit", error.problem)
            return
        if self._server.lay(made, on=self._on):
            (self._course.begin if laid is None else self._course.swap)(now_s)
            _log.info("overlay_laid", overlay=followed.digest, batches=followed.batches, release=self._on.weights)
            self._around.changed()

    def _prepared(self, followed: SavedOverlay) -> Prepared:
        weights = followed.weights()
        return self._server.prepare_overlay(self._on, _bundle(self._on), weights, followed.digest, followed.batches)

    def _give_up(self, reason: str, detail: str) -> None:
        """The release serves alone, and what was followed is forgotten."""
        served = self._server.take_off(on=self._on, worse=reason == "worse")
        self._worker.forget()
        self._course.take_off(reason, self._monotonic_s())
        self._status = replace(self._status, why=f"{reason}: {detail}", distance=0.0, rate=0.0)
        _log.warning("overlay_taken_off" if served else "overlay_given_up", reason=reason, detail=detail)
        if served:
            self._around.changed()
            self._around.dropped(f"the overlay was taken off, {reason}: {detail}", _HINTS.get(reason, _HINT))

    def _put_off(self, problem: str) -> None:
        """The worker came to nothing: what serves goes on serving, as long as labels have judged it."""
        self._failures = min(self._failures + 1, MOST_DOUBLED)
        self._due_s = self._monotonic_s() + self._section.interval_s * 2.0**self._failures
        self._status = replace(self._status, problem=problem[:PROBLEM_CHARS])
        _log.warning("adaptation_failed", problem=problem)


def _bundle(release: Prepared) -> Bundle:
    return next(iter(release.models.values())).bundle


_WHY = {
    None: "",
    "rests": "it rests after an overlay that was taken off",
    "unproven": "no labels have judged what is followed yet",
    "swaps": "as many overlays were laid this hour as may be",
    "monitors": "the monitors have not judged enough since the last change",
}
_HINT = "the release serves; it is followed anew later"
_HINTS = {
    "worse": "the release serves; if it happens again set [adaptation] online = false, or a lower eta_max",
    "unjudged": "the release serves; see that labels come, or set judge_within_s to when they do",
}
