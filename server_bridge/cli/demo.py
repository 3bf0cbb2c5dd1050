"""``server-bridge demo``: a fleet of real processes that drifts and repairs itself."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import structlog
import typer
from rich.console import Console

from edge_agent.link.durable import make_directory
from server_bridge.demo.broker import find_mosquitto
from server_bridge.demo.facts import DemoFacts
from server_bridge.demo.live import LiveProgress, PlainProgress
from server_bridge.demo.plan import FULL_GATEWAYS, LEAST_GATEWAYS
from server_bridge.demo.report import write_report
from server_bridge.demo.scenario import DemoSettings, run_demo
from server_bridge.demo.verdict import Verdict, judge

SOMETHING_DID_NOT_HOLD = 1
_SIGNALLED = 128
"""What a shell adds to the number of the signal that ended a program."""


class Broker(StrEnum):
    """Which broker runs."""

    AUTO = "auto"
    MOSQUITTO = "mosquitto"
    IOTCORE = "iotcore"


def demo(
    gateways: Annotated[
        int, typer.Option(min=LEAST_GATEWAYS, max=1000, help="How many gateway processes.")
    ] = FULL_GATEWAYS,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of weights, order of the data and label delays.")] = 0,
    broker: Annotated[Broker, typer.Option(help="auto takes mosquitto where it is installed.")] = Broker.AUTO,
    report: Annotated[Path, typer.Option(help="Where report.html and report.json go.")] = Path("demo-report"),
    headless: Annotated[bool, typer.Option("--headless", help="Plain lines instead of a live table.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep databases and logs in the report's folder.")] = False,
) -> None:
    """Watch a drifting fleet repair itself over MQTT; write a report; exit 0 only if everything held."""
    console = Console()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    _introduce(console, broker)
    make_directory(report)
    workspace = _workspace(report, keep=keep)
    plain = headless or not console.is_terminal
    with unwound_by_signals():
        try:
            with PlainProgress(console) if plain else LiveProgress(console) as progress:
                facts = run_demo(DemoSettings(gateways, seed, broker.value), workspace, progress)
        except BaseException:
            console.print(f"Databases and logs are kept in {workspace}", highlight=False, soft_wrap=True)
            raise
    verdict = judge(facts)
    page = write_report(report, facts, verdict)
    _conclude(console, facts, verdict, page)
    if not keep and verdict.holds:
        shutil.rmtree(workspace)
    else:
        console.print(f"Databases and logs are kept in {workspace}", highlight=False, soft_wrap=True)
    if not verdict.holds:
        raise typer.Exit(SOMETHING_DID_NOT_HOLD)


def _introduce(console: Console, broker: Broker) -> None:
    console.print("The broker listens on 127.0.0.1 without TLS: this is a demo, not a deployment.", highlight=False)
    if broker is Broker.IOTCORE:
        console.print("Broker: iotcore, as asked.", highlight=False)
    elif broker is Broker.AUTO and find_mosquitto() is None:
        console.print("mosquitto is not installed: the demo runs on the iotcore wheel instead.", highlight=False)


def _workspace(report: Path, *, keep: bool) -> Path:
    if keep:
        workspace = report / "work"
        if workspace.exists():
            shutil.rmtree(workspace)
        make_directory(workspace)
        return workspace.resolve()
    return Path(tempfile.mkdtemp(prefix="clma-edge-demo-"))


def _conclude(console: Console, facts: DemoFacts, verdict: Verdict, page: Path) -> None:
    console.print()
    for criterion in verdict.criteria:
        mark = "[green]✓[/]" if criterion.holds else "[red]✗[/]" if criterion.judged else "[dim]✗[/]"
        console.print(f"{mark} {criterion.name}: [dim]{criterion.detail}[/]", highlight=False, soft_wrap=True)
    words = "Everything held" if verdict.holds else f"{len(verdict.failed)} criteria did not hold"
    console.print(f"\n{words}. {facts.wall_s:.0f} s after {facts.setup_s:.0f} s of set-up.", highlight=False)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True)


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """SIGTERM, and a terminal that is closed, unwind the stack as an interrupt does, so that no child process stays."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(_SIGNALLED + number)

    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
