"""Topics and filters, by the examples of MQTT 5.0, 4.7."""

import pytest

from edge_agent.link.mqtt_topic import is_topic, is_topic_filter


@pytest.mark.parametrize("text", ["a", "/", "a//b", "plant/hall 3/press", "$SYS/x", "é" * 32_767])
def test_what_is_a_topic_is_a_filter_too(text: str) -> None:
    assert is_topic(text)
    assert is_topic_filter(text)


@pytest.mark.parametrize("text", ["#", "+", "a/#", "+/tennis/#", "sport/+/player1", "/+", "+/+"])
def test_filters_that_are_no_topics(text: str) -> None:
    assert not is_topic(text)
    assert is_topic_filter(text)


@pytest.mark.parametrize(
    "text", ["", "a\0b", "sport/tennis#", "sport/#/ranking", "sport+", "+a/b", "\udcff", "é" * 32_768]
)
def test_neither(text: str) -> None:
    assert not is_topic(text)
    assert not is_topic_filter(text)
