"""The whole demo: groundwork, the CLMA arm with the hostile act, the FedAvg arm, the facts."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from server_bridge.demo.arm import Arm, broker_directory
from server_bridge.demo.base import Groundwork, lay_groundwork
from server_bridge.demo.broker import BrokerKind, make_broker
from server_bridge.demo.children import Children
from server_bridge.demo.facts import ARMS, CLMA, ArmFacts, BadRelease, DemoFacts
from server_bridge.demo.fleet_folder import make_fleet
from server_bridge.demo.hostile_act import play
from server_bridge.demo.plan import plan_fleet
from server_bridge.demo.progress import Progress
from server_bridge.demo.timing import RATE_HZ, Limits

TITLES = {"clma": "CLMA", "fedavg": "FedAvg"}


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the command line chooses."""

    gateways: int
    seed: int
    broker: BrokerKind


def run_demo(settings: DemoSettings, workspace: Path, progress: Progress) -> DemoFacts:
    """Run everything in ``workspace``; no process is left behind.

    Raises:
        EdgeError: set-up failed, or a phase came to nothing (named, with the end of the logs).
    """
    plans = plan_fleet(settings.gateways)
    began_s = time.monotonic()
    progress.phase("Set-up", "base model is fitted on clean data by its own training graph")
    groundwork = lay_groundwork(
        workspace / "groundwork",
        plans,
        seed=settings.seed,
        rate_hz=RATE_HZ,
        on_epoch=lambda epoch: progress.gateways((), f"epoch {epoch.number}, loss {epoch.loss:.3f}"),
    )
    setup_s = time.monotonic() - began_s
    began_s = time.monotonic()
    arms: dict[str, ArmFacts] = {}
    bad: tuple[BadRelease, ...] = ()
    reasserted = False
    broker_name = ""
    for strategy in ARMS:
        with ExitStack() as stack:
            arm = _open_arm(stack, strategy, settings, workspace / strategy, groundwork, progress)
            broker_name = arm.broker.name
            arm.run()
            if strategy == CLMA:
                bad, reasserted = play(arm)
            arms[strategy] = arm.finish()
    return DemoFacts(
        seed=settings.seed,
        broker=broker_name,
        arms=arms,
        bad_releases=bad,
        reasserted=reasserted,
        wall_s=time.monotonic() - began_s,
        setup_s=setup_s,
    )


def _open_arm(
    stack: ExitStack,
    strategy: str,
    settings: DemoSettings,
    directory: Path,
    groundwork: Groundwork,
    progress: Progress,
) -> Arm:
    title = TITLES[strategy]
    broker = make_broker(settings.broker, broker_directory(directory))
    stack.callback(broker.stop)
    broker.start()
    progress.note(f"{title}: {broker.name} on {broker.host}:{broker.port}, without TLS")
    progress.phase(title, "fleet is initialised, gateways are provisioned")
    folder = make_fleet(directory, f"demo-{strategy}", strategy, groundwork, broker, seed=settings.seed)
    children = stack.enter_context(Children(directory / "logs"))
    longest_pass_s = max(stream.pass_s for stream in groundwork.streams.values())
    limits = Limits.for_fleet(settings.gateways, longest_pass_s)
    arm = Arm(title, strategy, folder, groundwork, broker, children, progress, limits)
    stack.callback(arm.close)
    return arm
