import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from edge_agent.wire.messages import Command, Identify, Reply
from server_bridge.fleet.commands import IMMEDIATE_RESENDS, RESEND_FIRST_S, RESEND_MAX_S, Commands, Heard
from server_bridge.store.store import Store, store_url
from tests.fleet.desk import Clock


class Side:
    """Commands with a clock and a boot id that the test sets."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.boot: str | None = "boot1"
        self.store = Store(store_url(path), path / "blobs")
        self.commands = Commands("line1", self.store.commands, lambda _: self.boot, self.clock, self.clock, Random(0))

    def issue(self, duration_s: float = 100.0, command_id: str = "c1") -> None:
        self.commands.issue(command_id, "gw1", Identify(), duration_s)

    def only_due(self) -> Command:
        (command,) = self.commands.due()
        return command


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    made = Side(tmp_path)
    yield made
    made.store.close()


def reply(status: str = "ok", *, boot_id: str = "boot1", command_id: str = "c1", **fields: object) -> Reply:
    content = {"gateway": "gw1", "boot_id": boot_id, "command_id": command_id, "status": status, **fields}
    if status == "ok":
        content["result"] = {"kind": "done"}
    return Reply.model_validate(content)


def test_a_command_is_recorded_before_it_is_due(side: Side) -> None:
    side.issue()
    stored = side.store.commands.get("c1")
    assert stored is not None
    assert (stored.status, stored.action) == ("open", Identify())
    command = side.only_due()
    assert (command.sequence, command.boot_id, command.duration_s) == (1, "boot1", 100.0)
    assert side.commands.due() == []


def test_silence_is_answered_with_growing_patience_and_the_remaining_duration(side: Side) -> None:
    side.issue(duration_s=300.0)
    times: list[float] = []
    durations: list[float] = []
    for _ in range(3000):
        for command in side.commands.due():
            times.append(side.clock.now_s - 1000)
            durations.append(command.duration_s)
        side.clock.now_s += 0.1
    waits = [after - before for before, after in itertools.pairwise(times)]
    assert 0.7 * RESEND_FIRST_S <= waits[0] <= 1.4 * RESEND_FIRST_S
    assert max(waits) <= 1.3 * RESEND_MAX_S
    assert 8 <= len(times) <= 20
    assert all(abs(left - (300 - at)) < 0.2 for left, at in zip(durations, times, strict=True))
    side.clock.now_s += 10
    assert side.commands.due() == []


def test_a_gateway_without_a_known_boot_id_is_waited_for(side: Side) -> None:
    side.boot = None
    side.issue()
    assert side.commands.due() == []
    side.boot = "boot1"
    assert side.only_due().sequence == 1


def test_a_stale_boot_gets_the_same_command_for_the_new_boot_id(side: Side) -> None:
    side.issue()
    side.only_due()
    side.boot = "boot2"
    side.clock.now_s += 1
    assert side.commands.on_reply(reply("stale-boot", boot_id="boot2")) is Heard.AGAIN
    again = side.only_due()
    assert (again.command_id, again.boot_id, again.sequence, again.duration_s) == ("c1", "boot2", 1, 99.0)


def test_a_new_boot_id_in_presence_is_as_good_as_a_reply(side: Side) -> None:
    side.issue()
    side.only_due()
    side.boot = "boot2"
    side.commands.on_boot("gw1", "boot2")
    assert side.only_due().boot_id == "boot2"
    side.commands.on_boot("gw1", "boot2")
    assert side.commands.due() == []


def test_a_late_stale_boot_about_an_earlier_start_changes_nothing(side: Side) -> None:
    side.issue()
    side.only_due()
    assert side.commands.on_reply(reply("stale-boot", boot_id="boot1")) is Heard.IGNORED
    assert side.commands.due() == []


def test_a_sequence_too_low_is_continued_above(side: Side) -> None:
    side.issue()
    side.only_due()
    assert side.commands.on_reply(reply("sequence-low", highest_sequence=41)) is Heard.AGAIN
    assert side.only_due().sequence == 42
    side.issue(command_id="c2")
    assert side.only_due().sequence == 43


def test_a_gateway_that_always_asks_again_cannot_make_the_bridge_spin(side: Side) -> None:
    side.issue()
    sent = 0
    for number in range(1000):
        sent += len(side.commands.due())
        side.commands.on_reply(reply("sequence-low", highest_sequence=number))
    assert sent <= IMMEDIATE_RESENDS + 1


def test_a_lost_final_reply_is_asked_for_again_even_after_accepted(side: Side) -> None:
    side.issue(duration_s=1000)
    side.only_due()
    assert side.commands.on_reply(reply("accepted")) is Heard.ACCEPTED
    side.clock.now_s += 15
    assert side.only_due().command_id == "c1"


def test_final_replies_count_once(side: Side) -> None:
    side.issue()
    side.only_due()
    assert side.commands.on_reply(reply("ok")) is Heard.FINAL
    assert side.commands.on_reply(reply("ok")) is Heard.DUPLICATE
    assert side.commands.finish("c1", reply("ok"))
    assert not side.commands.finish("c1", reply("error", reason="late"))
    assert side.commands.on_reply(reply("ok")) is Heard.DUPLICATE
    side.clock.now_s += 50
    assert side.commands.due() == []
    stored = side.store.commands.get("c1")
    assert stored is not None
    assert stored.status == "ok"


def test_a_reply_after_the_end_is_recorded_and_never_used(side: Side) -> None:
    side.issue()
    side.commands.fail("c1", "timeout")
    assert side.commands.on_reply(reply("ok")) is Heard.LATE
    stored = side.store.commands.get("c1")
    assert stored is not None
    assert (stored.status, stored.failure, stored.late_reply) == ("failed", "timeout", reply("ok"))


def test_replies_of_others_or_to_nothing_are_told_apart(side: Side) -> None:
    side.issue()
    stranger = reply("ok").model_copy(update={"gateway": "gw2"})
    assert side.commands.on_reply(stranger) is Heard.IGNORED
    assert side.commands.on_reply(reply(command_id="never")) is Heard.UNKNOWN


def test_after_a_restart_the_same_id_is_asked_again_above_the_old_sequence(tmp_path: Path) -> None:
    before = Side(tmp_path)
    before.issue()
    assert before.only_due().sequence == 1
    before.store.close()
    after = Side(tmp_path)
    after.issue()
    assert (after.only_due().command_id, after.store.commands.get("c1") is not None) == ("c1", True)
    after.commands.on_reply(reply("ok"))
    after.commands.finish("c1", reply("ok"))
    known = after.commands.issue("c1", "gw1", Identify(), 10.0)
    assert known is not None
    assert known.reply == reply("ok")
    assert after.commands.due() == []
    after.store.close()


def test_after_a_reconnect_what_is_unanswered_is_sent_again_at_once(side: Side) -> None:
    side.issue()
    for _ in range(3):
        side.clock.now_s += 20
        side.only_due()
    assert side.commands.due() == []
    side.commands.on_reconnect()
    again = side.only_due()
    assert (again.command_id, again.boot_id) == ("c1", "boot1")
    side.clock.now_s += 2.6
    assert side.only_due().sequence == again.sequence + 1
    side.commands.on_reply(reply())
    side.commands.on_reconnect()
    assert side.commands.due() == []
