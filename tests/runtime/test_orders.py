"""Orders: carried out one at a time, the newest first, and answered."""

import time
from pathlib import Path

from edge_agent.errors import StorageError
from edge_agent.runtime.orders import QUEUE_COMMANDS, OrderFailed
from edge_agent.wire.messages import Configure, TrainFindings
from tests.runtime.desk import (
    EVALUATE,
    IDENTIFY,
    TRAIN,
    WAIT_S,
    Desk,
    begin,
    statuses,
    wait,
)


def test_configure_and_identify_are_carried_out_at_once_and_only_once(desk: Desk) -> None:
    configure = Configure(state_interval_s=5.0)
    for _ in range(3):
        (reply,) = desk.order("c1", configure)
        assert (reply.status, reply.command_id, reply.boot_id) == ("ok", "c1", "boot1")
    assert statuses(desk.order("c2", IDENTIFY)) == ["ok"]
    assert (desk.configured, desk.identified) == ([configure], 1)


def test_an_order_is_accepted_carried_out_and_answered(desk: Desk) -> None:
    ordered_s = time.monotonic()
    begin(desk, "c1")
    assert desk.orders.busy
    assert ordered_s + 60.0 <= desk.worker.deadlines_s[0] <= time.monotonic() + 60.0
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.result and reply.result.kind) == ("ok", "evaluate")
    wait(lambda: not desk.orders.busy, "rest")


def test_train_goes_to_the_worker_too(desk: Desk) -> None:
    desk.order("c1", TRAIN)
    desk.worker.finish_one()
    desk.replies(1)
    assert desk.worker.finished == ["c1"]


def test_a_failed_order_is_answered_with_its_reason_and_remembered(desk: Desk) -> None:
    desk.worker.error = OrderFailed("too-few-samples", "3 of 50 " + "x" * 5000)
    begin(desk, "c1")
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason, reply.detail[:8]) == ("error", "too-few-samples", "3 of 50 ")
    assert desk.order("c1") == [reply]


def test_a_round_without_an_update_is_answered_with_what_it_found_out(desk: Desk) -> None:
    desk.worker.error = OrderFailed("made-worse", "the loss rose", {"proof-loss-before": 1.0, "proof-loss-after": 2.0})
    desk.order("c1", TRAIN)
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason) == ("error", "made-worse")
    assert isinstance(reply.result, TrainFindings)
    assert (reply.result.round, reply.result.cohort) == (TRAIN.round, TRAIN.cohort)
    assert reply.result.metrics["proof-loss-after"] == 2.0
    assert desk.order("c1", TRAIN) == [reply]


def test_a_newer_order_supersedes(desk: Desk) -> None:
    begin(desk, "c1")
    replies = desk.order("c2")
    wait(lambda: desk.worker.begun == ["c1", "c2"], "the newer one")
    desk.worker.finish_one()
    wait(lambda: not desk.orders.busy, "rest")
    told = {(reply.command_id, reply.reason or reply.status) for reply in replies + desk.replies()}
    assert told == {("c1", "superseded"), ("c2", "accepted"), ("c2", "ok")}
    assert statuses(desk.order("c1")) == ["superseded"]
    assert desk.worker.begun == ["c1", "c2"]


def test_an_order_asked_for_again_after_a_newer_one_makes_no_second_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for command_id in ("c1", "c2", "c1"):
        assert statuses(desk.order(command_id)) == ["accepted"]
    for _ in range(3):
        desk.worker.finish_one()
    desk.orders.start()
    assert statuses(desk.replies(2)) == ["superseded", "ok"]
    assert statuses(desk.order("c1")) == ["superseded"]
    assert desk.worker.finished == ["c2"]
    desk.close()


def test_a_sequence_too_low_is_answered_with_the_highest(desk: Desk) -> None:
    desk.orders.receive(desk.signer.signed("c1", 7, "boot1", IDENTIFY), retained=False)
    desk.orders.receive(desk.signer.signed("c2", 7, "boot1", IDENTIFY), retained=False)
    desk.orders.receive(desk.signer.signed("c3", 3, "boot1", EVALUATE), retained=False)
    first, *low = desk.replies()
    assert first.status == "ok"
    assert [(reply.status, reply.highest_sequence) for reply in low] == [("sequence-low", 7)] * 2
    assert (desk.identified, desk.worker.begun) == (1, [])


def test_the_sequence_counts_per_boot_id(desk: Desk) -> None:
    desk.orders.receive(desk.signer.signed("c1", 900, "boot1", IDENTIFY), retained=False)
    desk.restart("boot2")
    desk.orders.receive(desk.signer.signed("c2", 1, "boot2", IDENTIFY), retained=False)
    assert statuses(desk.replies(2)) == ["ok", "ok"]


def test_a_queue_that_is_full_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(QUEUE_COMMANDS):
        assert statuses(desk.order(f"c{number}")) == ["accepted"]
    assert statuses(desk.order("more")) == ["busy"]
    desk.orders.start()
    wait(lambda: desk.worker.begun == [f"c{QUEUE_COMMANDS - 1}"], "the newest")
    assert statuses(desk.replies(QUEUE_COMMANDS - 1)) == ["superseded"] * (QUEUE_COMMANDS - 1)
    begin(desk, "more")
    desk.close()


def test_a_stop_ends_the_order_without_an_answer(desk: Desk) -> None:
    begin(desk, "c1")
    desk.orders.stop(WAIT_S)
    assert not desk.orders.alive
    assert (desk.replies(), desk.worker.finished) == ([], [])


def test_a_worker_that_meets_a_full_disk_fails_its_order_only(desk: Desk) -> None:
    desk.worker.error = StorageError("no space left")
    begin(desk, "c1")
    desk.worker.finish_one()
    (reply,) = desk.replies(1)
    assert (reply.status, reply.reason, reply.detail) == ("error", "storage", "no space left")
    desk.worker.error = None
    begin(desk, "c2")
