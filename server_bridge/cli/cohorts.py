"""``server-bridge cohorts``: who is with whom, how it came to that, and why."""

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from edge_agent.errors import ConfigError
from edge_agent.link.durable import write_file
from server_bridge.cli.cohort_merge import merge
from server_bridge.cli.cohort_words import (
    EMPTIED,
    IGNORED,
    ended_line,
    explain_lines,
    merge_line,
    move_line,
    refused_line,
)
from server_bridge.cli.fleet import TABLE_COLUMNS, ConfigOption, JsonOption, open_store
from server_bridge.config import load_settings
from server_bridge.rounds.lineage import MERGE_ASKED
from server_bridge.rounds.merge_verdict import told_of
from server_bridge.store.adaptations import Adaptation
from server_bridge.store.lineage import CohortLife
from server_bridge.store.merges import QUEUED, REFUSED
from server_bridge.store.participation import participation
from server_bridge.store.store import Store

DIGEST_SIGNS = 8

app = typer.Typer(help="Cohorts: members, history, reasons; merge two.", invoke_without_command=True)
app.command()(merge)


@app.callback()
def cohorts(
    context: typer.Context,
    config: ConfigOption = Path("bridge.toml"),
    as_json: JsonOption = False,
    history: Annotated[bool, typer.Option("--history", help="Every move, and every cohort that ended.")] = False,
) -> None:
    """Show the cohorts and who is in them; with --history every move and its reason."""
    if context.invoked_subcommand is not None:
        _refuse_early_options(context)
        return
    with closing(open_store(load_settings(config))) as store:
        lives, moves = store.lineage.cohorts(), store.lineage.moves()
        members = {life.bundle: store.lineage.members(life.bundle) for life in lives}
        ignored, requests = _ignored(store), store.merges.all()
    if as_json:
        living = [{**asdict(life), "members": _in(members, life)} for life in lives if life.ended_s is None]
        past = {"ended": [asdict(life) for life in lives if life.ended_s is not None]} if history else {}
        told = {"moves": [asdict(move) for move in moves]} if history else {}
        asked = {"merges": [asdict(each) for each in requests if history or each.status == QUEUED]}
        typer.echo(json.dumps({"cohorts": living, **asked, **past, **told}, indent=2))
    elif history:
        lines = [(move.time_s, move_line(move)) for move in moves]
        lines += [(life.ended_s, ended_line(life)) for life in lives if life.ended_s is not None]
        lines += [(each.ended_s or 0.0, refused_line(each)) for each in requests if each.status == REFUSED]
        for _, line in sorted(lines, key=lambda timed: timed[0]):
            typer.echo(line)
    elif not lives:
        typer.echo("no round has been committed yet: every gateway runs the root cohort's weights")
    else:
        console = Console()
        console.width = max(console.width, TABLE_COLUMNS)
        console.print(_table([life for life in lives if life.ended_s is None], members, ignored))
    if not as_json:
        for each in requests:
            if each.status == QUEUED:
                typer.echo(merge_line(each))


@app.command()
def explain(
    gateway: Annotated[str, typer.Argument(help="Id of the gateway.")],
    config: ConfigOption = Path("bridge.toml"),
    as_json: JsonOption = False,
) -> None:
    """Say why a gateway is in its cohort: statistic, neighbours, decision, in words."""
    with closing(open_store(load_settings(config))) as store:
        registered = {row.id: row for row in store.gateways.registered()}
        if gateway not in registered:
            raise ConfigError(f"gateway {gateway!r} is not registered", "`server-bridge fleet` lists those that are")
        moves = store.lineage.moves(gateway=gateway)
        members = store.lineage.members(moves[-1].bundle) if moves else {}
        latest, asked = store.adaptations.latest_round(), store.merges.queued()
        merged = moves[-1] if moves and moves[-1].reason == MERGE_ASKED else None
        harm = None if merged is None else told_of(store, gateway, merged.source)
    ignored = registered[gateway].ignored_why
    part = None if latest is None else participation(latest, gateway)
    if as_json:
        cohort = members.get(gateway)
        told: dict[str, Any] = {"gateway": gateway, "cohort": cohort, "ignored": ignored}
        told |= {"last_round": None if part is None else asdict(part), "moves": [asdict(move) for move in moves]}
        told |= {"merge_harms": harm} if harm else {}
        typer.echo(json.dumps(told, indent=2))
        return
    for line in explain_lines(gateway, moves, members, ignored=ignored, last_round=part):
        typer.echo(line)
    if harm:
        typer.echo(f"since that merge: {harm}")
    for each in asked:
        if moves and (each.bundle, each.gone) == (moves[-1].bundle, members.get(gateway)):
            typer.echo(merge_line(each))


@app.command()
def plot(
    out: Annotated[Path, typer.Option("--out", "-o", help="The SVG file to write.")],
    config: ConfigOption = Path("bridge.toml"),
    bundle: Annotated[str, typer.Option(help="Digest, or its beginning; the last one adapted if not given.")] = "",
) -> None:
    """Draw who was in which cohort, round by round, as one self-contained SVG file."""
    from server_bridge.cli.cohort_chart import Column, cohort_chart

    if out.exists() and not out.is_file():
        raise ConfigError(f"--out {str(out)!r} is no file", "name the SVG file to write")
    if not out.resolve().parent.is_dir():
        raise ConfigError(f"--out {str(out)!r}: {out.parent} is no directory", "make it first, or choose another path")
    with closing(open_store(load_settings(config))) as store:
        adaptations = _adaptations(store, bundle)
        rounds = [
            Column(each.id, record.round, record.cohorts, set(record.replied), each.status)
            for each in adaptations
            for record in store.adaptations.rounds(each.id)
            if record.weights
        ]
        moves = store.lineage.moves(bundle=adaptations[-1].bundle)
        members = store.lineage.members(adaptations[-1].bundle)
        ignored = _ignored(store)
    write_file(out, cohort_chart(rounds, moves, ignored, members).encode())
    typer.echo(f"{out}: {len(rounds)} rounds of bundle {adaptations[-1].bundle[:DIGEST_SIGNS]}")


def _refuse_early_options(context: typer.Context) -> None:
    """Before a subcommand an option would be taken for the table's, and not be heard."""
    early = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if early:
        raise ConfigError(
            f"options stand before `{context.invoked_subcommand}`", "put them behind it: cohorts explain ID -c FILE"
        )


def _adaptations(store: Store, bundle: str) -> list[Adaptation]:
    every = [each for each in store.adaptations.all() if each.rounds_done > 0 and each.bundle.startswith(bundle)]
    if not every:
        of_bundle = f" of a bundle {bundle!r}" if bundle else ""
        raise ConfigError(f"no round{of_bundle} has been committed yet", "`server-bridge log` says what is waited for")
    return [each for each in every if each.bundle == every[-1].bundle]


def _in(members: dict[str, dict[str, str]], life: CohortLife) -> list[str]:
    return [gateway for gateway, cohort in members[life.bundle].items() if cohort == life.id]


def _ignored(store: Store) -> set[str]:
    return {row.id for row in store.gateways.registered() if row.ignored_why is not None}


def _table(lives: list[CohortLife], members: dict[str, dict[str, str]], ignored: set[str]) -> Table:
    table = Table("cohort", "bundle", "since", "gateways", "who")
    for life in lives:
        mine = _in(members, life)
        since = "-" if life.adaptation is None else f"{life.adaptation}, round {life.round}"
        table.add_row(life.id, life.bundle[:DIGEST_SIGNS], since, str(len(mine)), _who(mine, ignored))
    return table


def _who(members: list[str], ignored: set[str]) -> str:
    named = (f"{gateway} ({IGNORED})" if gateway in ignored else gateway for gateway in members)
    return " ".join(named) or EMPTIED
