"""Orders to gateways: persisted, signed, sent again until answered.

       issue                     reply ok/error
(new) ───────> open ──────────────────────────────────> ended
               │  ^ stale-boot, new boot id, sequence-low: the same id is signed again
               │  ^ silence: sent again with back-off, also after ``accepted``
               └──────────────── deadline, abandoned ──> ended (late replies only recorded)
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from edge_agent.wire.messages import Command, Reply
from edge_agent.wire.messages.command import CommandAction
from server_bridge.store.commands import OK, OPEN, CommandTable, StoredCommand

RESEND_FIRST_S = 2.0
RESEND_MAX_S = 30.0
RESEND_ACCEPTED_S = 10.0
IMMEDIATE_RESENDS = 5
_SHORTEST_DURATION_S = 0.001


class Heard(StrEnum):
    """What a reply meant."""

    FINAL = "final"
    ACCEPTED = "accepted"
    AGAIN = "again"
    DUPLICATE = "duplicate"
    LATE = "late"
    UNKNOWN = "unknown"
    IGNORED = "ignored"


@dataclass(slots=True)
class _Open:
    gateway: str
    action: CommandAction
    deadline_s: float
    due_s: float
    wait_s: float = RESEND_FIRST_S
    boot_id: str | None = None
    above: int = 0
    immediate: int = 0
    accepted: bool = False
    answered: bool = False


class Commands:
    """The open commands of one fleet.

    Nothing is sent from within a call: :meth:`due` gives what to sign and send now.

    Args:
        fleet: named in every command.
        table: where commands and results are kept.
        boot_id: the latest boot id of a gateway, if known.
        monotonic: seconds, never going back.
        wall: seconds since 1970, for records only.
        random: jitter.
    """

    def __init__(
        self,
        fleet: str,
        table: CommandTable,
        boot_id: Callable[[str], str | None],
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        random: Random,
    ) -> None:
        self._fleet = fleet
        self._table = table
        self._boot_id = boot_id
        self._monotonic = monotonic
        self._wall = wall
        self._random = random
        self._lock = threading.RLock()
        self._open: dict[str, _Open] = {}

    def issue(self, command_id: str, gateway: str, action: CommandAction, duration_s: float) -> StoredCommand | None:
        """Record a command and make it due.

        Returns: the command as stored if it has its result already; then nothing is sent. One
            that failed, or that a former run of the bridge left open, is asked again under its id.
        """
        with self._lock:
            known = self._table.get(command_id)
            if known is not None and known.status == OK:
                return known
            if known is None:
                self._table.add(command_id, gateway, action, duration_s, self._wall())
            else:
                self._table.reopen(command_id, duration_s)
            self._make_due(command_id, gateway, action, duration_s)
        return None

    def ask_again(self, command_id: str, gateway: str, action: CommandAction, duration_s: float) -> None:
        """Ask for a result that was had and is gone; the gateway answers from its own store if it can."""
        with self._lock:
            self._table.reopen(command_id, duration_s)
            self._make_due(command_id, gateway, action, duration_s)

    def due(self) -> list[Command]:
        """Commands to sign and send now, each with its next sequence and remaining duration."""
        now_s = self._monotonic()
        ready: list[Command] = []
        with self._lock:
            for command_id, entry in self._open.items():
                boot_id = self._boot_id(entry.gateway)
                if entry.answered or entry.due_s > now_s or entry.deadline_s <= now_s or boot_id is None:
                    continue
                ready.append(self._next(command_id, entry, boot_id, now_s))
        return ready

    def on_boot(self, gateway: str, boot_id: str) -> None:
        """A gateway is there under a boot id: what it has not answered under it is due at once."""
        with self._lock:
            for entry in self._open.values():
                if entry.gateway == gateway and entry.boot_id != boot_id and not entry.answered:
                    entry.above = 0
                    self._hasten(entry)

    def on_reconnect(self) -> None:
        """The broker is there again, perhaps without its memory: what is not answered is sent anew, from the start."""
        with self._lock:
            for entry in self._open.values():
                if not entry.answered:
                    entry.due_s, entry.wait_s = self._monotonic(), RESEND_FIRST_S

    def on_reply(self, reply: Reply) -> Heard:
        """Take a reply; ``FINAL`` leaves the command open until :meth:`finish` or :meth:`fail`."""
        with self._lock:
            entry = self._open.get(reply.command_id)
            if entry is None:
                return self._heard_after_end(reply)
            if entry.gateway != reply.gateway:
                return Heard.IGNORED
            if reply.status == "stale-boot":
                return self._again(entry, reply, stale=reply.boot_id != entry.boot_id)
            if reply.status == "sequence-low":
                return self._again(entry, reply, stale=True)
            if reply.status == "accepted":
                entry.accepted = True
                return Heard.ACCEPTED
            if entry.answered:
                return Heard.DUPLICATE
            entry.answered = True
            return Heard.FINAL

    def action(self, command_id: str) -> CommandAction | None:
        """What an open command asked for."""
        with self._lock:
            entry = self._open.get(command_id)
            return None if entry is None else entry.action

    def finish(self, command_id: str, reply: Reply, *, update_digest: str | None = None) -> bool:
        """End a command with its final reply; whether it was open."""
        with self._lock:
            self._open.pop(command_id, None)
            return self._table.finish(command_id, reply, self._wall(), update_digest=update_digest)

    def fail(self, command_id: str, failure: str, *, reply: Reply | None = None) -> bool:
        """End a command without a usable result; whether it was open."""
        with self._lock:
            self._open.pop(command_id, None)
            return self._table.fail(command_id, failure, self._wall(), reply=reply)

    def _make_due(self, command_id: str, gateway: str, action: CommandAction, duration_s: float) -> None:
        now_s = self._monotonic()
        self._open[command_id] = _Open(gateway, action, now_s + duration_s, now_s)

    def _next(self, command_id: str, entry: _Open, boot_id: str, now_s: float) -> Command:
        if entry.boot_id != boot_id:
            entry.boot_id, entry.wait_s = boot_id, RESEND_FIRST_S
        sequence = self._table.next_sequence(command_id, entry.gateway, boot_id, entry.above)
        longest = RESEND_ACCEPTED_S if entry.accepted else RESEND_MAX_S
        entry.due_s = now_s + entry.wait_s * self._random.uniform(0.75, 1.25)
        entry.wait_s = min(2 * entry.wait_s, longest)
        return Command(
            fleet=self._fleet,
            gateway=entry.gateway,
            boot_id=boot_id,
            command_id=command_id,
            sequence=sequence,
            duration_s=max(entry.deadline_s - now_s, _SHORTEST_DURATION_S),
            action=entry.action,
        )

    def _again(self, entry: _Open, reply: Reply, *, stale: bool) -> Heard:
        if not stale or entry.answered:
            return Heard.IGNORED
        if reply.status == "sequence-low" and reply.boot_id == entry.boot_id:
            entry.above = max(entry.above, reply.highest_sequence or 0)
        self._hasten(entry)
        return Heard.AGAIN

    def _hasten(self, entry: _Open) -> None:
        """Due at once, but a gateway that always asks again gets no more than the back-off gives."""
        entry.immediate += 1
        if entry.immediate <= IMMEDIATE_RESENDS:
            entry.due_s = self._monotonic()

    def _heard_after_end(self, reply: Reply) -> Heard:
        known = self._table.get(reply.command_id)
        if known is None or known.gateway != reply.gateway:
            return Heard.UNKNOWN
        if known.status == OPEN or reply.status not in ("ok", "error"):
            return Heard.IGNORED
        if known.reply is not None:
            return Heard.DUPLICATE
        self._table.record_late(reply)
        return Heard.LATE
