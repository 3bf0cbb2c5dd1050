"""Commands of the bridge: verified, carried out once, answered as often as asked."""

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import structlog

from edge_agent.errors import StorageError, TransientError
from edge_agent.link.database import Database
from edge_agent.runtime.order_memory import OrderMemory
from edge_agent.runtime.part import ThreadPart
from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import (
    Command,
    Configure,
    Done,
    Evaluate,
    Identify,
    Reply,
    Train,
    TrainFindings,
    open_command,
)
from edge_agent.wire.messages.reply import ReplyResult

QUEUE_COMMANDS = 64
GET_TIMEOUT_S = 0.2
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """A command to be carried out until ``deadline_s`` of the monotonic clock."""

    command: Command
    deadline_s: float


class OrderFailed(Exception):
    """An order ended without a result.

    Args:
        reason: a stable word.
        detail: the same for people.
        metrics: what was found out all the same.
    """

    def __init__(
        self, reason: str, detail: str = "", metrics: Mapping[str, int | float] = MappingProxyType({})
    ) -> None:
        self.reason = reason
        self.detail = detail
        self.metrics = dict(metrics)
        super().__init__(f"{reason}: {detail}")


class Publisher(Protocol):
    """What orders need of the session."""

    def publish(self, topic: str, payload: bytes) -> int:
        """Queue a message; raises :class:`TransientError` when there is no room."""
        ...


class Worker(Protocol):
    """Carries out the two long orders; returns the result or raises :class:`OrderFailed`."""

    def train(self, command: Command, action: Train, ended: Callable[[], bool], deadline_s: float) -> ReplyResult:
        """One local round."""
        ...

    def forget(self, command_id: str) -> None:
        """The reply is stored: a restart will not ask for the work again."""
        ...

    def evaluate(self, command: Command, action: Evaluate, ended: Callable[[], bool], deadline_s: float) -> ReplyResult:
        """Counts of named weights on held-out samples."""
        ...


class Orders(ThreadPart):
    """Checks each command, remembers it and its result, and answers.

    A repeated command id re-sends the stored result; one that a crash interrupted is begun
    anew when the bridge signs it for the new boot id. A newer order ends the one under way.

    ``refused`` counts commands by ``retained``, ``malformed``, ``unsigned`` and ``misaddressed``.

    Args:
        verify: (key id, signature, signed bytes) to whether the bridge's key made it.
        configure: applies a :class:`Configure`.
        identify: publishes presence and state now.
    """

    def __init__(
        self,
        database: Database,
        session: Publisher,
        worker: Worker,
        *,
        fleet: str,
        gateway: str,
        boot_id: str,
        reply_topic: str,
        verify: Callable[[str, bytes, bytes], bool],
        configure: Callable[[Configure], None],
        identify: Callable[[], None],
    ) -> None:
        super().__init__("orders")
        self._memory = OrderMemory(database)
        self._session = session
        self._worker = worker
        self._fleet = fleet
        self._gateway = gateway
        self._boot_id = boot_id
        self._reply_topic = reply_topic
        self._verify = verify
        self._configure = configure
        self._identify = identify
        self._highest = -1
        self._queue: queue.Queue[Pending] = queue.Queue(QUEUE_COMMANDS)
        self._under_way: str | None = None
        self._newest: str | None = None
        self._open: set[str] = set()
        self._lock = threading.Lock()
        self.refused: dict[str, int] = {}

    @property
    def busy(self) -> bool:
        """Whether an order is under way."""
        return self._under_way is not None

    def receive(self, payload: bytes, *, retained: bool) -> None:
        """Take a command from the link; never raises for its content.

        Raises:
            StorageError: it cannot be remembered; nothing is done or answered.
        """
        if retained:
            self._refuse("retained", "a retained command would be carried out at every start")
            return
        try:
            command = open_command(payload, self._verify)
        except WireError as error:
            self._refuse("unsigned" if error.what == "command" else "malformed", error.problem)
            return
        if (command.fleet, command.gateway) != (self._fleet, self._gateway):
            self._refuse("misaddressed", f"addressed to {command.fleet}/{command.gateway}")
            return
        self._admit(command)

    def _refuse(self, kind: str, problem: str) -> None:
        self.refused[kind] = self.refused.get(kind, 0) + 1
        _log.warning("command_refused", kind=kind, problem=problem)

    def _admit(self, command: Command) -> None:
        if command.boot_id != self._boot_id:
            self._answer(command, status="stale-boot")
            return
        with self._lock:
            known = command.command_id in self._open
            low = command.sequence <= self._highest
            self._highest = max(self._highest, command.sequence)
        stored = self._memory.reply(command.command_id)  # after the look at what is open: it may end meanwhile
        if stored is not None:
            self._send(stored.model_copy(update={"boot_id": self._boot_id}))
        elif known:
            self._answer(command, status="accepted")
        elif low:
            self._answer(command, status="sequence-low", highest_sequence=self._highest)
        else:
            self._enqueue(command)

    def _enqueue(self, command: Command) -> None:
        action = command.action
        if isinstance(action, Configure | Identify):
            self._configure(action) if isinstance(action, Configure) else self._identify()
            self._finish(command, Reply(**self._base(command), status="ok", result=Done()))
            return
        self._memory.take(command)
        if self._queue_up(Pending(command, time.monotonic() + command.duration_s)):
            self._answer(command, status="accepted")
        else:
            self._answer(command, status="error", reason="busy", detail=f"{QUEUE_COMMANDS} commands are waiting")

    def _queue_up(self, pending: Pending) -> bool:
        with self._lock:
            try:
                self._queue.put_nowait(pending)
            except queue.Full:
                return False
            self._newest = pending.command.command_id
            self._open.add(pending.command.command_id)
        return True

    def _work(self) -> None:
        """An order under way at the stop is carried out anew after the next start."""
        while not self._stopping.is_set():
            try:
                pending = self._queue.get(timeout=GET_TIMEOUT_S)
            except queue.Empty:
                continue
            self._carry_out(pending)

    def _carry_out(self, pending: Pending) -> None:
        command = pending.command
        with self._lock:
            self._under_way = command.command_id
        try:
            reply = self._outcome(pending)
            if reply is not None:
                self._conclude(command, reply)
        finally:
            with self._lock:
                self._under_way = None
                self._open.discard(command.command_id)

    def _outcome(self, pending: Pending) -> Reply | None:
        """The reply to an order; none if the agent stops."""
        command = pending.command
        try:
            return Reply(**self._base(command), status="ok", result=self._result(pending))
        except (OrderFailed, StorageError) as error:
            if self._stopping.is_set():
                return None
            reason, detail = (
                ("storage", str(error)) if isinstance(error, StorageError) else (error.reason, error.detail)
            )
            _log.warning("order_failed", command=command.command_id, reason=reason, detail=detail)
            found = _findings(command, error)
            return Reply(**self._base(command), status="error", reason=reason, detail=detail, result=found)

    def _conclude(self, command: Command, reply: Reply) -> None:
        """A disk that refuses costs the memory of the result, not the answer."""
        try:
            self._finish(command, reply)
            self._worker.forget(command.command_id)
        except StorageError as error:
            _log.error("reply_not_stored", command=command.command_id, problem=str(error))
            self._send(reply)

    def _result(self, pending: Pending) -> ReplyResult:
        command, action = pending.command, pending.command.action

        def ended() -> bool:
            return self._stopping.is_set() or self._newest != command.command_id

        if ended() and not self._stopping.is_set():
            raise OrderFailed("superseded", "a newer order came")
        if isinstance(action, Train):
            return self._worker.train(command, action, ended, pending.deadline_s)
        if isinstance(action, Evaluate):
            return self._worker.evaluate(command, action, ended, pending.deadline_s)
        raise OrderFailed("unknown-order", action.kind)

    def _base(self, command: Command) -> dict[str, str]:
        return {"gateway": self._gateway, "boot_id": self._boot_id, "command_id": command.command_id}

    def _answer(self, command: Command, **fields: object) -> None:
        self._send(Reply.model_validate({**self._base(command), **fields}))

    def _finish(self, command: Command, reply: Reply) -> None:
        self._memory.finish(command, reply)
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        """A lost reply is asked for again by the repeated command."""
        try:
            self._session.publish(self._reply_topic, encode(reply))
        except TransientError as error:
            _log.info("reply_not_sent", command=reply.command_id, problem=str(error))


def _findings(command: Command, error: OrderFailed | StorageError) -> TrainFindings | None:
    """What a local round without an update found out."""
    action = command.action
    if not (isinstance(action, Train) and isinstance(error, OrderFailed) and error.metrics):
        return None
    return TrainFindings(round=action.round, cohort=action.cohort, metrics=dict(error.metrics))
