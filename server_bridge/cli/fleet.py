"""``server-bridge`` init, gateway, run, fleet, log: what an operator of a fleet types."""

import faulthandler
import ipaddress
import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from edge_agent.errors import ConfigError
from edge_agent.link.interrupt import quiet_while_loading
from edge_agent.link.log_lines import configure_logs
from edge_agent.wire.messages import FlagEvent
from server_bridge.cli.cohort_words import ignored_words, merge_line
from server_bridge.cli.flag_words import flag_line, flag_words
from server_bridge.cli.fleet_table import cohort_accuracy, fleet_table, reasons, stopped_words
from server_bridge.config import BridgeSettings, load_settings
from server_bridge.folder_lock import is_locked
from server_bridge.host_name import is_host_name
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.decisions import Decision
from server_bridge.store.flags import OPEN, StoredFlag
from server_bridge.store.keeper import open_beside
from server_bridge.store.store import Store
from server_bridge.store.view import fleet_view

LOG_LINES = 50
LOG_LINES_MAX = 1_000_000
TABLE_COLUMNS = 120

app = typer.Typer()
gateway_app = typer.Typer(help="Gateways of the fleet.", no_args_is_help=True)
app.add_typer(gateway_app, name="gateway")

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file, bridge.toml.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def init(
    bundle: Annotated[Path, typer.Option(help="The bundle's directory; release 1 serves its weights.")],
    directory: Annotated[Path, typer.Option("--directory", "-d", help="The bridge's folder.")] = Path(),
    fleet: Annotated[str, typer.Option(help="The fleet's name.")] = "fleet",
    broker: Annotated[str, typer.Option(help="HOST:PORT of the fleet's broker.")] = "127.0.0.1:1883",
) -> None:
    """Make keys, release 1 and bridge.toml: from here on the fleet has a release."""
    from server_bridge.releases.provision import init_fleet

    host, port = _address(broker)
    init_fleet(directory, bundle, fleet, host=host, port=port)
    typer.echo(f"fleet {fleet!r} is ready in {directory.resolve()}")
    typer.echo(f"next, for TLS: server-bridge pki init -d {directory}; it goes first, and names what follows")
    typer.echo(f"then: server-bridge gateway provision ID... -o DIR -c {directory / 'bridge.toml'}")


@gateway_app.command()
def provision(
    ids: Annotated[list[str], typer.Argument(help="Ids of the gateways.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder a gateway is made in here.")],
    config: ConfigOption = Path("bridge.toml"),
) -> None:
    """Register gateways and write the folder that each of them starts from."""
    from server_bridge.enrolment import enrol
    from server_bridge.pki.authority import BROKER_FOLDER, PKI_FOLDER, has_authority

    for folder in enrol(config, ids, out):
        typer.echo(f"{folder}: edge-agent run -c {folder / 'agent.toml'}")
    data_dir = load_settings(config).bridge.data_dir
    if has_authority(data_dir):
        acl = data_dir / PKI_FOLDER / BROKER_FOLDER / "acl"
        typer.echo(f"copy {acl} to the broker and reload it (SIGHUP): it lets them in")
    else:
        typer.echo(
            f"without certificates; for TLS: server-bridge pki init -d {data_dir}, then pki gateway ID... -o {out}"
        )


@gateway_app.command()
def ignore(
    gateway: Annotated[str, typer.Argument(help="Id of the gateway.")],
    why: Annotated[str, typer.Option(help="For the record.")] = "by an operator",
    config: ConfigOption = Path("bridge.toml"),
) -> None:
    """Stop listening to a gateway: its messages are dropped, it gets no orders; it goes on serving."""
    from server_bridge.fleet import registry

    with closing(open_store(load_settings(config))) as store:
        _registered(store, gateway)
        done = registry.ignore(store, gateway, why, time.time())
    typer.echo(f"{gateway} is ignored" if done else f"{gateway} was ignored already")


@gateway_app.command()
def readmit(
    gateway: Annotated[str, typer.Argument(help="Id of the gateway.")],
    config: ConfigOption = Path("bridge.toml"),
) -> None:
    """Listen to a gateway again that the bridge, or an operator, has set aside."""
    from server_bridge.fleet import registry

    with closing(open_store(load_settings(config))) as store:
        _registered(store, gateway)
        done = registry.readmit(store, gateway, time.time())
    typer.echo(f"{gateway} is listened to again" if done else f"{gateway} was not ignored")


@app.command()
def run(config: ConfigOption = Path("bridge.toml")) -> None:
    """Ingest, decide, adapt and release until SIGTERM."""
    with quiet_while_loading():
        from server_bridge.runtime import BridgeRuntime

    settings = load_settings(config)
    configure_logs(settings.bridge.log_level)
    faulthandler.enable()  # a watchdog's SIGABRT writes every thread's stack to the log
    BridgeRuntime(settings).run()


@app.command()
def fleet(config: ConfigOption = Path("bridge.toml"), as_json: JsonOption = False) -> None:
    """Show every gateway: presence, model, last flag, samples, lag behind the newest release."""
    from server_bridge.releases.provision import RELEASES_FOLDER
    from server_bridge.releases.record import FileReleaseBook

    settings = load_settings(config)
    store = open_store(settings)
    latest = FileReleaseBook(settings.bridge.data_dir / RELEASES_FOLDER).latest()
    version = None if latest is None else latest[0].versions.timestamp
    views = fleet_view(store, version, _regressions(settings))
    store.close()
    running = is_locked(settings.bridge.data_dir)
    if as_json:
        typer.echo(json.dumps([{**asdict(view), "bridge_running": running} for view in views], indent=2))
    else:
        console = Console()
        # A narrow terminal wraps lines; cutting cells to fit would hide ids.
        console.width = max(console.width, TABLE_COLUMNS)
        if not running:
            typer.echo(stopped_words(views))
        console.print(fleet_table(views, time.time()))
        for view in views:
            if view.drops:
                typer.echo(f"{view.id}: dropped {reasons(view.drops)}")
            for fault in view.sensor_faults:
                typer.echo(f"{view.id}: sensor {fault}")
            if view.ignored:
                typer.echo(ignored_words(view.id, view.ignored))
            if view.flag == OPEN and view.flag_event is not None:
                typer.echo(f"{view.id}: flag: {flag_words(FlagEvent.model_validate(view.flag_event))}")
            if view.merge is not None:
                typer.echo(f"{view.id}: {merge_line(view.merge)}")
            if view.last_round is not None and view.last_round.why:
                typer.echo(f"{view.id}: {view.last_round.words()}")


@app.command()
def log(
    config: ConfigOption = Path("bridge.toml"),
    as_json: JsonOption = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=LOG_LINES_MAX, help="How many of the newest.")
    ] = LOG_LINES,
) -> None:
    """Show what the bridge decided, and why; and the drift flags that it was told."""
    settings = load_settings(config)
    store = open_store(settings)
    decisions, flags = store.decisions.recent(limit=lines), store.flags.all()
    views = fleet_view(store, None, _regressions(settings))
    store.close()
    if as_json:
        typer.echo(json.dumps([asdict(decision) for decision in decisions], indent=2))
        return
    for _, line in _lines(decisions, flags):
        typer.echo(line)
    if any(decision.reason == "released" for decision in decisions):
        for line in cohort_accuracy(views):
            typer.echo(line)


def open_store(settings: BridgeSettings) -> Store:
    """The store of the bridge that these settings are of, also beside a running one.

    Raises:
        ConfigError: there is no such folder.
        StorageError: it cannot be opened.
    """
    data_dir = settings.bridge.data_dir
    if not data_dir.is_dir():  # or a mistyped one would be made, and shown as an empty fleet
        raise ConfigError(f"[bridge] data_dir {data_dir} does not exist", "correct it, or run `server-bridge init`")
    return open_beside(settings.bridge.store, data_dir)


def _regressions(settings: BridgeSettings) -> frozenset[str]:
    from server_bridge.releases.provision import BUNDLES_FOLDER

    return BundleFolder(settings.bridge.data_dir / BUNDLES_FOLDER).regressions()


def _registered(store: Store, gateway: str) -> None:
    if gateway not in {row.id for row in store.gateways.registered()}:
        raise ConfigError(f"gateway {gateway!r} is not registered", "`server-bridge fleet` lists those that are")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    named = is_host_name(host) or _is_address(host)
    if not named or not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= 65_535:
        raise ConfigError(f"--broker {text!r} is not HOST:PORT", "for example --broker 127.0.0.1:1883")
    return host, int(port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _lines(decisions: Sequence[Decision], flags: Sequence[StoredFlag]) -> list[tuple[float, str]]:
    """Decisions, and the flags received since the first of them, in their order."""
    since_s = min((decision.time_s for decision in decisions), default=0.0)
    told = [(decision.time_s, _log_line(decision)) for decision in decisions]
    told += [
        (flag.received_s, f"{_moment(flag.received_s)} flag: {flag_line(flag)}")
        for flag in flags
        if flag.received_s >= since_s
    ]
    return sorted(told, key=lambda line: line[0])


def _moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def _log_line(decision: Decision) -> str:
    where = f" [{decision.adaptation}]" if decision.adaptation else ""
    return f"{_moment(decision.time_s)}{where} {decision.kind}: {decision.reason}: {decision.detail}"
