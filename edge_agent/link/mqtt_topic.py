"""What may be a topic, and a filter of topics, of a broker that is not ours."""

TOPIC_BYTES = 65_535
"""Source: MQTT 5.0, 1.5.4 and 4.7; as for the rules below."""


def is_topic(text: str) -> bool:
    """Whether messages can be published to it."""
    return _is_written(text) and not set("+#") & set(text)


def is_topic_filter(text: str) -> bool:
    """Whether it can be subscribed to: ``+`` stands for a whole level, ``#`` for all from the last one on."""
    *levels, last = text.split("/")
    return _is_written(text) and all(_is_level(level) for level in levels) and (last == "#" or _is_level(last))


def _is_level(text: str) -> bool:
    return text == "+" or not set("+#") & set(text)


def _is_written(text: str) -> bool:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return False
    return 1 <= size_bytes <= TOPIC_BYTES and "\0" not in text
