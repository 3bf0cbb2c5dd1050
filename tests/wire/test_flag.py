from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.wire.codec import NAME_CHARS, TEXT_CHARS, decode, encode
from edge_agent.wire.messages import EVENT_CAP_BYTES, FLAG_CAP_BYTES, FlagEvent, Overlay
from edge_agent.wire.messages.flag import CUT_ORDER, SAMPLES_CAP, FlagAttribution, FlagLabels, FlagTest, fitted
from tests.wire.strategies import models

# The longest that may stand: four bytes a character, and a float of 24 signs.
LONG = "\N{GRINNING FACE}" * NAME_CHARS
NUMBER = -1.2345678901234567e-300
BIG = 2**53


def longest(**changes: Any) -> FlagEvent:
    values: dict[str, Any] = {
        "flag_id": "f" * 64,
        "monitor": "m" * 64,
        "firing": BIG,
        "bundle": "b" * 64,
        "weights": "a" * 64,
        "weights_version": BIG,
        "cohort": "c" * 64,
        "first_drifted_sample": LONG,
        "first_drifted_time_s": NUMBER,
        "statistic": NUMBER,
        "threshold": NUMBER,
        "evidence": {f"{place:02}{LONG}"[:NAME_CHARS]: NUMBER for place in range(64)},
        "trainable_samples": BIG,
        "severity": 0.12345678901234567,
        "severity_by": "statistic",
        "shift": "covariate",
        "tests": [_test("m" * 64), *(_test(LONG) for _ in range(7))],
        "attributions": [FlagAttribution(name=LONG, before=NUMBER, now=NUMBER, unit="\N{GRINNING FACE}" * 64)] * 8,
        "samples": [LONG] * SAMPLES_CAP,
        "labels": FlagLabels(
            served=BIG, labelled=BIG, delay_median_s=NUMBER, delay_p90_s=NUMBER, bias="x" * TEXT_CHARS
        ),
        "overlay": Overlay(digest="e" * 64, batches=BIG),
    }
    return FlagEvent(**(values | changes))


def _test(name: str) -> FlagTest:
    return FlagTest(monitor=name, statistic=NUMBER, threshold=NUMBER, warning_threshold=NUMBER, rows=BIG)


def test_the_longest_flag_fits_and_says_what_it_lost() -> None:
    sent = fitted(longest())
    assert len(encode(sent)) <= FLAG_CAP_BYTES
    assert sent.cut == list(CUT_ORDER[: len(sent.cut)])
    assert [test.monitor for test in sent.tests] == ["m" * 64]


def test_a_flag_that_fits_is_sent_as_it_is() -> None:
    small = longest(evidence={}, attributions=[], samples=["s1"], first_drifted_sample="s1", tests=[], labels=None)
    assert fitted(small) == small
    assert small.cut == []


def test_ids_go_first_and_from_the_end() -> None:
    ids = [f"sample-{place:04}" + "-" * 80 for place in range(SAMPLES_CAP)]
    sent = fitted(longest(evidence={}, samples=ids, attributions=[], labels=None, tests=[]))
    assert sent.cut == ["samples"]
    assert 0 < len(sent.samples) < SAMPLES_CAP
    assert sent.samples == ids[: len(sent.samples)]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flag_is_within_the_cap_and_is_read_again(data: st.DataObject) -> None:
    drawn = data.draw(models(FlagEvent))
    flag = drawn.model_copy(
        update={
            "cut": [],
            "samples": data.draw(st.lists(st.text('aé€\N{GRINNING FACE}"\\', min_size=1, max_size=128), max_size=32)),
            "attributions": data.draw(st.lists(models(FlagAttribution), max_size=8)),
        }
    )
    sent = fitted(flag)
    payload = encode(sent)
    assert len(payload) <= FLAG_CAP_BYTES
    assert decode(FlagEvent, payload, cap_bytes=EVENT_CAP_BYTES) == sent
    assert sent.samples == flag.samples[: len(sent.samples)]
    assert sent.attributions == flag.attributions[: len(sent.attributions)]
    assert set(sent.evidence.items()) <= set(flag.evidence.items())
    if not sent.cut:
        assert sent == flag
