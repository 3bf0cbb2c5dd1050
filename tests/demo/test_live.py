import io

from rich.console import Console

from server_bridge.demo.live import LiveProgress, PlainProgress, gateway_table, summarise_lines
from server_bridge.demo.progress import GatewayLine

LINES = [
    GatewayLine("gw-01", "sensor remounted, axes turned", True, 0.18, True, "root", 1),
    GatewayLine("gw-09", "untouched", True, None, False, "root", 1),
]


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_a_row_a_gateway() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(gateway_table(LINES))
    text = shown(console)
    assert "gw-01" in text
    assert "18%" in text
    assert "drift" in text
    assert "untouched" in text


def test_a_live_display_ends_with_the_last_state() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with LiveProgress(console) as progress:
        progress.phase("CLMA", "adaptation rounds")
        progress.gateways(LINES, "waiting for round 3 of 8")
        for number in range(20):
            progress.note(f"note {number}")
    text = shown(console)
    assert "adaptation rounds" in text
    assert "round 3 of 8" in text
    assert "note 19" in text


def test_plain_progress_does_not_repeat_itself() -> None:
    console = Console(file=io.StringIO(), width=120)
    with PlainProgress(console) as progress:
        progress.phase("CLMA", "clean data [base]")
        for _ in range(5):
            progress.gateways(LINES, "")
    assert shown(console).count("mean accuracy") == 1
    assert "clean data [base]" in shown(console)


def test_the_summary_counts() -> None:
    assert summarise_lines(LINES) == "2 of 2 online, mean accuracy 18%, 1 flagged, cohorts root"
    assert "no accuracy yet" in summarise_lines(LINES[1:])
