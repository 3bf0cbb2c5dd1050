"""From what an operator states to a batch of one monitor."""

import pytest

from edge_agent.errors import ConfigError
from server_bridge.bundles.rates import Rate, false_alarms_of, stream_rate_of
from server_bridge.bundles.wish import DEFAULT_RATE, Wish


def test_a_rate_in_time_needs_the_streams_rate() -> None:
    wish = Wish(false_alarms_of("1 per 30 days"))
    with pytest.raises(ConfigError, match=r'"1 per 30 days" needs the rate.*--stream-rate'):
        wish.of_one(32)
    by_times = wish.with_stream(Rate(10.0, "second", "by times"))
    batches = 30 * 86_400 * 10 / 32
    assert by_times.of_one(32) == pytest.approx(0.5 / batches), "each of two monitors has half"


def test_the_operators_stream_rate_stands_before_that_of_the_data() -> None:
    wish = Wish(stream=stream_rate_of("1 per minute"))
    assert wish.with_stream(Rate(10.0, "second", "by times")).stream == wish.stream


def test_nothing_asked_for_is_the_default_a_batch() -> None:
    assert Wish().of_one(32) == DEFAULT_RATE / 2
    assert not Wish().asked


def test_lowest_never_refuses() -> None:
    assert Wish(false_alarms_of("1e-6")).asked
    assert not Wish(false_alarms_of("1e-6"), lowest=True).asked


def test_more_alarms_than_batches_are_refused() -> None:
    wish = Wish(false_alarms_of("1 per second"), stream_rate_of("1 per hour"))
    with pytest.raises(ConfigError, match="false alarms a batch"):
        wish.of_one(32)


def test_rates_are_said_in_time_where_the_stream_is_known() -> None:
    assert Wish().words(1e-3, 32) == "1 per 1,000 batches"
    assert Wish(stream=stream_rate_of("32 per minute")).words(1e-3, 32) == "1 per 16.7 hours (1 per 1,000 batches)"


def test_the_rows_needed_are_rounded_up() -> None:
    wish = Wish(false_alarms_of("1e-3"))
    assert wish.rows_needed(1000, 0.016, 32) == 32_000
    assert wish.rows_needed(1001, 0.016, 32) == 33_000
