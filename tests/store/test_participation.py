from server_bridge.store.adaptations import RoundRecord
from server_bridge.store.participation import left_out_words, participation

RECORD = RoundRecord(
    adaptation="a1",
    round=3,
    attempt=1,
    started_s=0.0,
    ended_s=1.0,
    replied=["g1", "g2", "g4"],
    failed={"g3": "opposing-update: works against the others"},
    drifted=[],
    cohorts={},
    weights={"root": "d"},
    metrics={},
    noted={"g2": "clipped-update: 20 times as long", "g4": "step-back: the cohort went back"},
)


def test_a_gateways_part_in_a_round_is_told() -> None:
    told = {gateway: participation(RECORD, gateway) for gateway in ("g1", "g2", "g3", "g4", "g5")}
    assert {gateway: part.words() for gateway, part in told.items() if part is not None} == {
        "g1": "[a1, round 3] counted",
        "g2": "[a1, round 3] counted: clipped-update: 20 times as long",
        "g3": "[a1, round 3] left out: opposing-update: works against the others",
        "g4": "[a1, round 3] left out: step-back: the cohort went back",
    }


def test_the_left_out_are_named_by_reason_and_not_without_end() -> None:
    assert left_out_words({}, {}) == ""
    assert left_out_words({"g3": "timeout: late", "g1": "timeout: x"}, {"g2": RECORD.noted["g2"]}) == (
        "g1, g3 (timeout) left out; g2 (clipped-update) noted"
    )
    many = {f"g{number}": "offline: away" for number in range(9)}
    assert left_out_words(many, {}) == "g0, g1, g2, g3, g4 and 4 more (offline) left out"
