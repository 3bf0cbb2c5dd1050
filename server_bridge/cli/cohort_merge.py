"""``server-bridge cohorts merge``: an operator lets one cohort go into another."""

import os
import pwd
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from edge_agent.errors import ConfigError
from server_bridge.cli.cohort_words import asked_words, ended_line
from server_bridge.cli.fleet import ConfigOption, open_store
from server_bridge.cohorts.membership import ROOT
from server_bridge.config import BridgeSettings, load_settings
from server_bridge.folder_lock import is_locked
from server_bridge.releases.provision import RELEASES_FOLDER
from server_bridge.releases.record import FileReleaseBook
from server_bridge.rounds.merging import unfit_merge
from server_bridge.store.merges import MERGED, QUEUED, REFUSED, MergeRequest
from server_bridge.store.store import Store

WAIT_S = 10.0
LOOK_S = 0.1
BY_SIGNS, WHY_SIGNS = 64, 400


def merge(
    gone: Annotated[str, typer.Argument(help="The cohort that ends.")],
    kept: Annotated[str, typer.Argument(help="The cohort that its gateways go to; its weights stay as they are.")],
    why: Annotated[str, typer.Option(help="For the record.")] = "no reason given",
    by: Annotated[str, typer.Option(help="Who asks; the user of this terminal if not given.")] = "",
    wait_s: Annotated[float, typer.Option("--wait", min=0.0, max=3600.0, help="Seconds to wait for it.")] = WAIT_S,
    unlike: Annotated[bool, typer.Option("--unlike", help="Also if their models are not alike.")] = False,
    config: ConfigOption = Path("bridge.toml"),
) -> None:
    """Let the cohort GONE go into KEPT: its gateways get KEPT's release.

    The bridge does it between two adaptations. While one runs, or while the bridge does not, the request is queued.
    Cohorts whose models are not alike it merges with --unlike only: KEPT's model would not fit GONE's gateways.
    """
    settings = load_settings(config)
    asked_by = _line("--by", by, BY_SIGNS) or _operator()
    with closing(open_store(settings)) as store:
        with store.transaction():
            bundle = _bundle_of(store, settings, gone, kept)
            _refuse_twice(store, bundle, gone)
            now_s, reason = time.time(), _line("--why", why, WHY_SIGNS)
            number = store.merges.ask(bundle, gone, kept, asked_by=asked_by, why=reason, now_s=now_s, unlike=unlike)
            detail = f"{asked_by} asked that cohort {gone} go into {kept}: {reason}"
            store.decisions.record("cohorts", "merge-asked", detail, now_s, facts={"request": number})
        request = _wait(store, settings, number, wait_s)
        waits_for = _waits_for(store, settings)
    if request.status == REFUSED:
        raise ConfigError(f"the bridge did not merge them: {request.outcome}", "`server-bridge cohorts` lists cohorts")
    if request.status == MERGED:
        typer.echo(f"cohort {gone} went into {kept}: {request.outcome}")
    else:
        typer.echo(f"queued: cohort {gone} goes into {kept} when {waits_for}; `server-bridge log` tells")


def _wait(store: Store, settings: BridgeSettings, number: int, wait_s: float) -> MergeRequest:
    """The request as it is when it has ended, or when there is nothing to wait for any more."""
    deadline_s = time.monotonic() + wait_s
    while True:
        request = next(each for each in store.merges.all() if each.id == number)
        idle = is_locked(settings.bridge.data_dir) and store.adaptations.running() is None
        if request.status != QUEUED or not idle or time.monotonic() >= deadline_s:
            return request
        time.sleep(LOOK_S)


def _waits_for(store: Store, settings: BridgeSettings) -> str:
    running = store.adaptations.running()
    if not is_locked(settings.bridge.data_dir):
        return "the bridge is started, which does not run now"
    if running is not None:
        return f"adaptation {running.id} has ended, which is at round {running.rounds_done + 1} of {running.rounds}"
    return "the bridge takes it up"


def _bundle_of(store: Store, settings: BridgeSettings, gone: str, kept: str) -> str:
    """The bundle whose cohorts they are.

    Raises:
        ConfigError: there is none of which one can go into the other.
    """
    latest = FileReleaseBook(settings.bridge.data_dir / RELEASES_FOLDER).latest()
    cohorts: dict[str, set[str]] = {}
    for target in () if latest is None else latest[0].cohorts:
        cohorts.setdefault(target.bundle, set()).add(target.cohort)
    running = store.adaptations.running()
    if running is not None:  # those that it has made are not released yet
        mine = store.lineage.cohorts(running.bundle)
        cohorts.setdefault(running.bundle, set()).update(life.id for life in mine if life.ended_s is None)
    with_gone = [bundle for bundle, names in cohorts.items() if gone in names]
    bundle = next((bundle for bundle in with_gone if kept in cohorts[bundle]), next(iter(with_gone), None))
    problem = unfit_merge(gone, kept, cohorts.get(bundle or "", ()))
    if problem is None and bundle is not None:
        return bundle
    if gone not in (kept, ROOT) and bundle is not None and any(kept in names for names in cohorts.values()):
        problem = f"cohorts {gone!r} and {kept!r} are of different bundles: their weights do not fit each other's model"
    ended = [ended_line(life) for life in store.lineage.cohorts() if life.id in (gone, kept) and life.ended_s]
    raise ConfigError(problem or "", "; ".join([*ended, "`server-bridge cohorts` lists those that live"]))


def _refuse_twice(store: Store, bundle: str, gone: str) -> None:
    for request in store.merges.queued():
        if (request.bundle, request.gone) == (bundle, gone):
            raise ConfigError(
                f"cohort {gone!r} is to go into {request.kept!r} already",
                f"{asked_words(request.asked_by, request.asked_s, request.why)}; `server-bridge cohorts` shows it",
            )


def _line(option: str, text: str, signs: int) -> str:
    """One line for the record; what a terminal would take for a command is no part of it."""
    if not text.isprintable() or len(text) > signs:
        raise ConfigError(f"{option} is not one line of at most {signs} printable characters", "shorten it")
    return text.strip()


def _operator() -> str:
    """Who types: before sudo, if that was used."""
    try:
        return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user need not have a name
        return f"uid {os.getuid()}"
