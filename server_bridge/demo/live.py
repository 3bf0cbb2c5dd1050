"""Progress in the terminal: a live table, or plain lines."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from server_bridge.demo.progress import GatewayLine

HEADLESS_INTERVAL_S = 10.0
NOTES_SHOWN = 6


class PlainProgress:
    """Lines for logs and CI: phases and notes as they come, the fleet every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = time.monotonic()
        self._last_s = -HEADLESS_INTERVAL_S
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def note(self, words: str) -> None:
        """Print a line with the time since the start."""
        elapsed_s = time.monotonic() - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {words}", highlight=False, markup=False, soft_wrap=True)

    def phase(self, arm: str, words: str) -> None:
        """Print the phase."""
        self.note(f"{arm}: {words}")

    def gateways(self, lines: Sequence[GatewayLine], detail: str) -> None:
        """Print a summary, not more often than every ten seconds and only if it says something new."""
        now_s = time.monotonic() - self._began_s
        summary = "; ".join(part for part in (summarise_lines(lines) if lines else "", detail) if part)
        if now_s - self._last_s >= HEADLESS_INTERVAL_S and summary != self._last:
            self._last_s, self._last = now_s, summary
            self.note(f"  {summary}")


class LiveProgress:
    """A table that is drawn again and again."""

    def __init__(self, console: Console) -> None:
        self._began_s = time.monotonic()
        self._phase = "setting up"
        self._detail = ""
        self._notes: list[str] = []
        self._lines: Sequence[GatewayLine] = ()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def note(self, words: str) -> None:
        """Show a line below the table; the newest few stay."""
        elapsed_s = time.monotonic() - self._began_s
        self._notes = [*self._notes, f"{elapsed_s:6.1f} s  {words}"][-NOTES_SHOWN:]

    def phase(self, arm: str, words: str) -> None:
        """Show the phase above the table."""
        self._phase, self._detail = f"{arm}: {words}", ""
        self.note(self._phase)

    def gateways(self, lines: Sequence[GatewayLine], detail: str) -> None:
        """Show the fleet."""
        self._lines, self._detail = lines, detail

    def _render(self) -> RenderableType:
        elapsed_s = time.monotonic() - self._began_s
        head = Text.assemble((f"{self._phase}  ", "bold"), (f"{elapsed_s:.0f} s  ", "dim"), (self._detail, "dim"))
        notes = Text("\n".join(self._notes), style="dim")
        return Group(head, gateway_table(self._lines), notes) if self._lines else Group(head, notes)


def gateway_table(lines: Sequence[GatewayLine]) -> Table:
    """The fleet as a table."""
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for name in ("gateway", "what happens to it", "accuracy", "", "flag", "cohort", "version"):
        table.add_column(name, header_style="dim", justify="right" if name == "accuracy" else "left")
    for line in lines:
        colour = accuracy_colour(line.accuracy)
        table.add_row(
            Text(line.id, style="bold" if line.online else "dim"),
            Text(line.truth, style="dim"),
            Text("-" if line.accuracy is None else f"{line.accuracy:.0%}", style=colour),
            Text("█" * round(12 * (line.accuracy or 0.0)), style=colour),
            Text("⚑ drift" if line.flagged else "", style="red"),
            Text(line.cohort, style="" if line.cohort == "root" else "bold cyan"),
            Text(f"v{line.version}"),
        )
    return table


def accuracy_colour(accuracy: float | None) -> str:
    """Green, yellow or red."""
    if accuracy is None:
        return "dim"
    return "green" if accuracy >= 0.8 else "yellow" if accuracy >= 0.5 else "red"


def summarise_lines(lines: Sequence[GatewayLine]) -> str:
    """The fleet in one line."""
    known = [line.accuracy for line in lines if line.accuracy is not None]
    mean = f"mean accuracy {sum(known) / len(known):.0%}" if known else "no accuracy yet"
    cohorts = sorted({line.cohort for line in lines})
    flagged = sum(line.flagged for line in lines)
    online = sum(line.online for line in lines)
    return f"{online} of {len(lines)} online, {mean}, {flagged} flagged, cohorts {' '.join(cohorts)}"
