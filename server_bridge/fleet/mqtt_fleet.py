"""The MQTT fleet as Flower's Grid needs it: orders out, outcomes in."""

import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import structlog

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import (
    Ack,
    BlobMissingEvent,
    ChunkGrant,
    Command,
    Event,
    Presence,
    Reply,
    State,
    Train,
    TrainResult,
    sign_command,
)
from edge_agent.wire.messages.command import Sign
from edge_agent.wire.topics import FleetTopics
from server_bridge.fleet.commands import Commands, Heard
from server_bridge.fleet.post import Post
from server_bridge.fleet.presence import PresenceBook
from server_bridge.fleet.registry import Registry
from server_bridge.fleet.transport import Gateway, Order, Outcome
from server_bridge.fleet.uploads import Arrived, Uploads, WrongDigest, check_manifest
from server_bridge.store.store import Store

OFFLINE_GRACE_S = 30.0
WAIT_STEP_S = 0.2

_log = structlog.get_logger(__name__)


class BlobSource(Protocol):
    """Makes blobs available under ``all/blob``."""

    def publish(self, data: bytes) -> BlobReference:
        """Publish a blob's chunks, retained; the same bytes again are free."""
        ...

    def republish(self, reference: BlobReference) -> None:
        """A gateway misses this blob: publish it again if it is one of ours."""
        ...


class MqttFleet:
    """Implements :class:`~server_bridge.fleet.transport.FleetTransport` and ingest's ``Receiver``.

    Args:
        topics: this fleet's.
        store: commands, results and updates.
        registry: who belongs to the fleet.
        post: sends commands and grants.
        blobs: publishes base weights.
        sign: signs command bytes.
        update_cap_bytes: by bundle digest and training graph, the most an update may take.
        boot_id: this start of the bridge.
        on_events: told when the store has new events.
        on_states: told what gateways say that they run and trust.
        on_due: told that :meth:`tick` has something to do now; must not block.
    """

    def __init__(
        self,
        topics: FleetTopics,
        store: Store,
        registry: Registry,
        post: Post,
        blobs: BlobSource,
        sign: Sign,
        update_cap_bytes: Callable[[str, str], int],
        boot_id: str,
        *,
        on_events: Callable[[Sequence[Event]], None] = lambda events: None,
        on_states: Callable[[Sequence[State]], None] = lambda states: None,
        on_due: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        self._topics = topics
        self._store = store
        self._registry = registry
        self._post = post
        self._blobs = blobs
        self._sign = sign
        self._update_cap_bytes = update_cap_bytes
        self._boot_id = boot_id
        self._on_events = on_events
        self._on_states = on_states
        self._on_due = on_due
        self._monotonic = monotonic
        self._wall = wall
        self._changed = threading.Condition()
        self._outcomes: dict[str, Outcome | None] = {}
        self._late: dict[str, dict[str, str]] = {}
        self.presence = PresenceBook(store.gateways, self._on_boot, monotonic)
        self._commands = Commands(
            topics.fleet, store.commands, self.presence.boot_id, monotonic, wall, random or Random()
        )
        self._uploads = Uploads(self._send_grant, monotonic)

    # What a Grid asks.

    def gateways(self) -> Sequence[Gateway]:
        """Every registered gateway that the bridge listens to, in the order of their ids."""
        states = self._store.gateways.states()
        return [
            Gateway(
                id=row.id,
                node_id=row.node_id,
                online=self.presence.online(row.id),
                state=states[row.id].state if row.id in states else None,
            )
            for row in self._registry.all()
            if row.ignored_s is None
        ]

    def publish_blob(self, data: bytes) -> BlobReference:
        """Make a blob available to every gateway."""
        return self._blobs.publish(data)

    def exchange(
        self, orders: Sequence[Order], *, timeout_s: float, cancelled: Callable[[], bool]
    ) -> Sequence[Outcome]:
        """Send orders and wait for their outcomes, see the protocol."""
        started_s = self._monotonic()
        with self._changed:
            self._outcomes.update({order.command_id: None for order in orders})
        for order in orders:
            self._issue(order, timeout_s)
        self.tick()
        try:
            self._wait(orders, started_s, timeout_s, cancelled)
            return [self._close(order, cancelled()) for order in orders]
        finally:
            with self._changed:
                for order in orders:
                    self._outcomes.pop(order.command_id, None)

    def reconnected(self) -> None:
        """The bridge is at the broker again: presence counts anew, and commands may have been lost with the broker."""
        self.presence.reconnected()
        self._commands.on_reconnect()
        self._on_due()

    # What ingest tells.

    def on_presence(self, presence: Presence) -> None:
        """A gateway, or its will, says whether it is there."""
        self.presence.observe(presence, self._wall())

    def on_reply(self, reply: Reply) -> None:
        """A gateway answers a command.

        Raises:
            WireError: nobody asked, or the update is not the one asked for.
        """
        action = self._commands.action(reply.command_id)
        heard = self._commands.on_reply(reply)
        if heard is Heard.UNKNOWN:
            raise WireError("reply", "answers no command of this bridge")
        if heard is Heard.AGAIN and reply.status == "stale-boot":
            self.presence.learn_boot(reply.gateway, reply.boot_id, self._wall())
        elif heard in (Heard.LATE, Heard.DUPLICATE):
            self._held_in_vain(reply, late=heard is Heard.LATE)
        elif heard is Heard.FINAL:
            if reply.status == "ok" and isinstance(action, Train):
                self._pull(reply, action)
            else:
                self._finish(reply)
        self._on_due()

    def on_chunk(self, gateway: str, digest: str, index: int, payload: bytes) -> None:
        """A chunk of an update.

        Raises:
            WireError: it was not granted, or is not the one that was.
        """
        try:
            arrived = self._uploads.chunk(gateway, digest, index, payload)
        except WrongDigest as error:
            self._refuse(error.reply, "wrong-digest", str(error))
            self._uploads.forget(error.gateway, error.command_id, error.digest)
            raise
        if arrived is not None:
            self._complete(arrived)

    def on_new_events(self, events: Sequence[Event]) -> None:
        """The store has new events."""
        self._on_events(events)

    def on_states(self, states: Sequence[State]) -> None:
        """What gateways say that they run and trust."""
        self._on_states(states)

    def on_blob_missing(self, gateway: str, event: BlobMissingEvent) -> None:
        """Publish it again."""
        _log.info("blob-missing", gateway=gateway, digest=event.blob.digest)
        self._blobs.republish(event.blob)

    # What the timer does.

    def tick(self) -> None:
        """Send the commands and grants that are due."""
        for command in self._commands.due():
            self._send_command(command)
        self._uploads.tick()

    def _issue(self, order: Order, timeout_s: float) -> None:
        self._forget_late(order.gateway, order.command_id)
        duration_s = min(order.duration_s, timeout_s)
        known = self._commands.issue(order.command_id, order.gateway, order.action, duration_s)
        if known is None:
            return
        digest = known.update_digest
        if digest is not None and digest not in self._store.blobs:
            self._commands.ask_again(order.command_id, order.gateway, order.action, duration_s)
            return
        update = None if digest is None else self._store.blobs.read(digest)
        arrived_s = known.ended_s or 0.0
        self._settle(Outcome(order.gateway, order.command_id, known.reply, update, None, "answered before", arrived_s))

    def _wait(self, orders: Sequence[Order], started_s: float, timeout_s: float, cancelled: Callable[[], bool]) -> None:
        while not cancelled():
            now_s = self._monotonic()
            left_s = started_s + timeout_s - now_s
            with self._changed:
                waiting = [order for order in orders if self._outcomes[order.command_id] is None]
                if left_s <= 0 or all(self._gone(order, now_s - started_s) for order in waiting):
                    return
                self._changed.wait(min(WAIT_STEP_S, left_s))

    def _gone(self, order: Order, waited_s: float) -> bool:
        if self._registry.ignored(order.gateway):
            return True
        return waited_s >= OFFLINE_GRACE_S and not self.presence.online(order.gateway)

    def _close(self, order: Order, cancelled: bool) -> Outcome:
        with self._changed:
            outcome = self._outcomes[order.command_id]
        if outcome is not None:
            return outcome
        failure = "cancelled" if cancelled else self._why_silent(order.gateway)
        self._commands.fail(order.command_id, failure)
        held = self._uploads.abandon(order.command_id)
        if held is not None:
            self._late.setdefault(order.gateway, {})[order.command_id] = held
        return Outcome(order.gateway, order.command_id, None, None, failure, "no usable answer in time")

    def _why_silent(self, gateway: str) -> str:
        if self._registry.ignored(gateway):
            return "ignored"
        return "timeout" if self.presence.online(gateway) else "offline"

    def _pull(self, reply: Reply, action: Train) -> None:
        result = reply.result
        if not isinstance(result, TrainResult):
            self._refuse(reply, "bad-manifest", "the reply holds no training result")
            raise WireError("reply", "a train command was answered without a training result")
        try:
            check_manifest(result, action, self._update_cap_bytes(action.bundle, action.training_graph))
        except WireError as error:
            self._refuse(reply, "bad-manifest", str(error))
            self._uploads.forget(reply.gateway, reply.command_id, result.update.digest)
            raise
        self._uploads.begin(reply.gateway, reply.command_id, result.update, reply)

    def _complete(self, arrived: Arrived) -> None:
        """The gateway may forget its update only when the store names the one that we hold."""
        digest = self._store.blobs.put(arrived.data)
        if self._commands.finish(arrived.command_id, arrived.reply, update_digest=digest):
            now_s = self._wall()
            self._settle(Outcome(arrived.gateway, arrived.command_id, arrived.reply, arrived.data, None, "", now_s))
        else:
            self._store.commands.record_late(arrived.reply)
        self._uploads.forget(arrived.gateway, arrived.command_id, digest)

    def _finish(self, reply: Reply) -> None:
        if self._commands.finish(reply.command_id, reply):
            failure = None if reply.status == "ok" else (reply.reason or "refused")
            self._settle(Outcome(reply.gateway, reply.command_id, reply, None, failure, reply.detail))
        else:
            self._store.commands.record_late(reply)

    def _refuse(self, reply: Reply, failure: str, detail: str) -> None:
        if self._commands.fail(reply.command_id, failure, reply=reply):
            self._settle(Outcome(reply.gateway, reply.command_id, reply, None, failure, detail))

    def _settle(self, outcome: Outcome) -> None:
        with self._changed:
            if outcome.command_id in self._outcomes:
                self._outcomes[outcome.command_id] = outcome
                self._changed.notify_all()

    def _held_in_vain(self, reply: Reply, *, late: bool) -> None:
        """A repeated result need not be kept by its gateway; a late one may be asked for once more."""
        if self._commands.action(reply.command_id) is not None or not isinstance(reply.result, TrainResult):
            return
        digest = reply.result.update.digest
        if late:
            self._late.setdefault(reply.gateway, {})[reply.command_id] = digest
        else:
            self._uploads.forget(reply.gateway, reply.command_id, digest)

    def _forget_late(self, gateway: str, asked_again: str) -> None:
        """The gateway gets another order: its late results are of no use any more."""
        for command_id, digest in self._late.pop(gateway, {}).items():
            if command_id != asked_again:
                self._uploads.forget(gateway, command_id, digest)

    def _on_boot(self, gateway: str, boot_id: str) -> None:
        self._commands.on_boot(gateway, boot_id)
        self._uploads.resume(gateway)
        self._on_due()

    def _send_command(self, command: Command) -> None:
        try:
            signed = sign_command(command, self._sign)
        except (TransientError, RejectedUpdate) as error:
            _log.warning("command-not-signed", command=command.command_id, problem=error.problem)
            return
        self._post.send(self._topics.command(command.gateway), signed)

    def _send_grant(self, gateway: str, grant: ChunkGrant) -> None:
        self._post.send(self._topics.ack(gateway), Ack(bridge_boot_id=self._boot_id, grants=[grant]))
