"""What a gateway remembers of commands: a repeated one is answered and not carried out again."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import StorageError
from tests.runtime.bench import deny, permit
from tests.runtime.desk import EVALUATE, IDENTIFY, Desk, begin, statuses, wait


def test_a_repeated_command_is_answered_from_the_store(desk: Desk) -> None:
    begin(desk, "c1")
    assert statuses(desk.order("c1")) == ["accepted"]
    desk.worker.finish_one()
    first = desk.replies(1)
    assert desk.order("c1") == first
    replayed = desk.signer.signed("c1", 1, "boot1", EVALUATE)
    desk.orders.receive(replayed, retained=False)
    assert desk.replies() == first
    assert desk.worker.begun == ["c1"]


def test_a_stored_result_answers_a_new_boot_id_too(desk: Desk) -> None:
    begin(desk, "c1")
    desk.worker.finish_one()
    (first,) = desk.replies(1)
    desk.restart("boot2")
    assert desk.order("c1") == [first.model_copy(update={"boot_id": "boot2"})]
    assert desk.worker.begun == ["c1"]


def test_a_crash_between_receipt_and_result_is_made_up_for_once(desk: Desk) -> None:
    begin(desk, "c1")
    desk.restart("boot2")
    assert desk.replies() == []
    old = desk.signer.signed("c1", 1, "boot1", EVALUATE)
    desk.orders.receive(old, retained=False)
    (reply,) = desk.replies()
    assert (reply.status, reply.boot_id) == ("stale-boot", "boot2")
    begin(desk, "c1")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]
    assert statuses(desk.order("c1")) == ["ok"]
    assert (desk.worker.begun, desk.worker.finished) == (["c1", "c1"], ["c1"])


def test_a_replay_of_a_forgotten_command_is_not_obeyed(desk: Desk) -> None:
    first = desk.payload("first", IDENTIFY)
    desk.orders.receive(first, retained=False)
    for number in range(201):
        desk.order(f"c{number}", IDENTIFY)
    desk.orders.receive(first, retained=False)
    assert statuses(desk.replies()) == ["sequence-low"]
    assert desk.identified == 202
    assert desk.database.query("SELECT count(*) FROM command") == [(200,)]


def test_a_command_the_disk_refuses_is_not_obeyed(desk: Desk) -> None:
    deny(desk.database, "command")
    with pytest.raises(StorageError):
        desk.order("c1")
    assert (desk.replies(), desk.worker.begun) == ([], [])
    permit(desk.database, "command")
    begin(desk, "c1")


def test_a_result_the_disk_refuses_is_told_and_the_order_can_be_repeated(desk: Desk) -> None:
    begin(desk, "c1")
    deny(desk.database, "command", "UPDATE")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]
    assert desk.orders.alive
    permit(desk.database, "command", "UPDATE")
    wait(lambda: not desk.orders.busy, "rest")
    begin(desk, "c1")
    desk.worker.finish_one()
    assert statuses(desk.replies(1)) == ["ok"]


def test_a_stored_reply_that_cannot_be_read_counts_as_none(desk: Desk) -> None:
    desk.order("c1", IDENTIFY)
    with desk.database.transaction():
        desk.database.execute("UPDATE command SET reply = '{'")
    assert statuses(desk.order("c1", IDENTIFY)) == ["ok"]


@settings(max_examples=12, deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("order"), st.sampled_from(["c1", "c2", "c3"])),
            st.tuples(st.just("finish"), st.just("")),
            st.tuples(st.just("restart"), st.just("")),
        ),
        max_size=16,
    )
)
def test_any_order_of_repeats_ends_and_restarts_carries_each_out_at_most_once(script: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        desk.orders.start()
        answers: dict[str, set[str]] = {}
        boots = 1
        for step, command_id in script:
            if step == "order":
                desk.orders.receive(desk.payload(command_id), retained=False)
            elif step == "finish" and desk.orders.busy:
                desk.worker.finish_one()
            elif step == "restart":
                boots += 1
                desk.restart(f"boot{boots}")
            note(desk, answers)
        desk.close()
        note(desk, answers)
        assert all(len(known) <= 1 for known in answers.values()), answers
        assert len(set(desk.worker.finished)) == len(desk.worker.finished)


def note(desk: Desk, answers: dict[str, set[str]]) -> None:
    for reply in desk.replies():
        assert reply.status in ("accepted", "ok", "error"), reply
        if reply.status != "accepted":
            final = reply.model_dump_json(exclude={"boot_id"})
            answers.setdefault(reply.command_id, set()).add(final)
