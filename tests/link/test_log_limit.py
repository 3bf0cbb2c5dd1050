from typing import Any

import pytest
import structlog

from edge_agent.link.log_limit import LogLimit


def test_a_kind_has_its_lines_a_minute_and_then_says_how_many_were_left_out() -> None:
    now_s = 0.0
    limit = LogLimit(2, lambda: now_s)

    def line(gateway: str) -> dict[str, Any] | None:
        try:
            return dict(limit(None, "info", {"event": "message-dropped", "gateway": gateway}))
        except structlog.DropEvent:
            return None

    assert [line("a") is None for _ in range(5)] == [False, False, True, True, True]
    assert line("b") == {"event": "message-dropped", "gateway": "b"}
    now_s = 60.0
    assert line("a") == {"event": "message-dropped", "gateway": "a", "lines_left_out": 3}
    assert line("a") == {"event": "message-dropped", "gateway": "a"}


@pytest.mark.parametrize("strangers", [1000])
def test_what_it_remembers_is_forgotten_after_a_minute(strangers: int) -> None:
    now_s = 0.0
    limit = LogLimit(2, lambda: now_s)
    for number in range(strangers):
        limit(None, "info", {"event": "x", "gateway": str(number)})
    now_s = 60.0
    limit(None, "info", {"event": "x"})
    assert len(limit._written) == 1
