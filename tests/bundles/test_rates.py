"""Rates as people state them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.errors import ConfigError
from server_bridge.bundles.rates import false_alarms_of, rate_of_times, said_of_seconds, said_span, stream_rate_of

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("text", "per_unit", "unit"),
    [
        ("1 per 30 days", 1 / (30 * DAY_S), "second"),
        ("2 per year", 2 / (365 * DAY_S), "second"),
        ("1/30 days", 1 / (30 * DAY_S), "second"),
        ("0.5 per week", 0.5 / (7 * DAY_S), "second"),
        ("1 per 1000 batches", 1e-3, "batch"),
        ("1e-3", 1e-3, "batch"),
    ],
)
def test_false_alarms_are_read(text: str, per_unit: float, unit: str) -> None:
    rate = false_alarms_of(text)
    assert rate.per_unit == pytest.approx(per_unit)
    assert (rate.unit, rate.words) == (unit, text)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("10 per second", 10.0), ("50 Hz", 50.0), ("10/s", 10.0), ("1 per 15 minutes", 1 / 900), ("1 per hour", 1 / 3600)],
)
def test_stream_rates_are_read(text: str, per_second: float) -> None:
    assert stream_rate_of(text).per_unit == pytest.approx(per_second)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "often",
        "1 per",
        "per day",
        "0 per day",
        "1 per 0 days",
        "-1 per day",
        "1e999",
        "1e-320",
        "1e-320 per year",
        "1e308 per 1e-300 s",
    ],
)
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"false-alarms.*for example"):
        false_alarms_of(text)
    with pytest.raises(ConfigError, match=r"stream-rate.*for example"):
        stream_rate_of(text)


@pytest.mark.parametrize("text", ["1 per batch", "2", "1 per 10 samples"])
def test_false_alarms_a_batch_are_less_than_one(text: str) -> None:
    with pytest.raises(ConfigError, match="false-alarms"):
        false_alarms_of(text)


@given(st.text(max_size=30))
def test_any_text_gives_a_rate_or_a_config_error(text: str) -> None:
    for read in (false_alarms_of, stream_rate_of):
        try:
            assert 0 < read(text).per_unit < np.inf
        except ConfigError:
            continue


def test_the_rate_of_a_recording_leaves_its_pauses_out() -> None:
    shift = np.arange(100) * 0.5
    rate = rate_of_times(np.concatenate([shift, shift + 100_000.0]))
    assert rate is not None
    assert rate.per_unit == pytest.approx(2.0, rel=0.06)


@pytest.mark.parametrize("times", [[], [5.0], [5.0, 5.0]])
def test_times_that_say_nothing_give_no_rate(times: list[float]) -> None:
    assert rate_of_times(np.array(times)) is None


def test_many_samples_at_once_are_counted_over_the_span() -> None:
    rate = rate_of_times(np.repeat(np.arange(11.0), 8))
    assert rate is not None
    assert rate.per_unit == pytest.approx(8.7, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (59, "59 seconds"), (90, "1.5 minutes"), (18_000, "5 hours"), (30 * DAY_S, "30 days")],
)
def test_spans_are_said_in_the_largest_unit_that_fits(seconds: float, words: str) -> None:
    assert said_span(seconds) == words


def test_rates_are_said() -> None:
    assert said_of_seconds(12.5) == "12.5 per second"
    assert said_of_seconds(1 / DAY_S) == "1 per 1 day"
