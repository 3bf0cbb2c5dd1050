"""The command line's root: commands, and errors as exit codes."""

import importlib
import sys
from collections.abc import Callable

import click
import typer
from typer.core import TyperGroup

import server_bridge
from edge_agent.errors import ConfigError, DataError, EdgeError, StorageError
from edge_agent.link.interrupt import quiet_while_loading
from server_bridge.cli import Exit
from server_bridge.cli.fleet import app as fleet_app
from server_bridge.errors import BridgeFailure


class LazyGroup(TyperGroup):
    """Commands whose modules are heavy are imported when they are used, or helped with."""

    lazy = {
        "bundle": ("server_bridge.cli.bundle", "app"),
        "pki": ("server_bridge.cli.pki", "app"),
        "cohorts": ("server_bridge.cli.cohorts", "app"),
        "demo": ("server_bridge.cli.demo", "demo"),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that are here, then the lazy ones."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, name = self.lazy[cmd_name]
        with quiet_while_loading():
            found = getattr(importlib.import_module(module), name)
        command = typer.main.get_group(found) if isinstance(found, typer.Typer) else _command(found)
        command.name = cmd_name
        return command


def _command(function: Callable[..., None]) -> click.Command:
    single = typer.Typer(add_completion=False)
    single.command()(function)
    return typer.main.get_command(single)


app = typer.Typer(
    name="server-bridge",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="An MQTT fleet of gateways as a Flower Grid: drift flags, cohorts, signed releases.",
)
app.add_typer(fleet_app)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(server_bridge.__version__)


def main() -> None:
    """Run the command line; errors that a person can mend are one line, not a traceback."""
    try:
        app()
    except (ConfigError, DataError) as error:
        _complain(error, Exit.CONFIG)
    except StorageError as error:
        _complain(error, Exit.STORAGE)
    except BridgeFailure as error:
        _complain(error, Exit.PART_DIED)
    except EdgeError as error:
        _complain(error, Exit.UNEXPECTED)


def _complain(error: EdgeError, status: Exit) -> None:
    typer.echo(f"server-bridge: {error.problem}", err=True)
    if error.hint:
        typer.echo(f"  {error.hint}", err=True)
    sys.exit(status)
