"""``server-bridge pki``: the fleet's certificates, for mutual TLS with the broker."""

from pathlib import Path
from typing import Annotated

import typer

from edge_agent.errors import ConfigError
from server_bridge.config import load_settings
from server_bridge.pki.authority import AUTHORITY_DAYS, CERTIFICATE_DAYS, TLS_FOLDER, Authority, check_gateway
from server_bridge.pki.folder import check_absent, name_credentials, write_credentials
from server_bridge.releases.provision import refuse_repeated

app = typer.Typer(
    help="Certificates for mutual TLS: authority, broker, bridge, gateways, revocation.", no_args_is_help=True
)

DirectoryOption = Annotated[Path, typer.Option("--directory", "-d", help="The fleet's folder.")]
DaysOption = Annotated[int, typer.Option(min=1, max=AUTHORITY_DAYS, help="How long the certificates are valid.")]


@app.command()
def init(directory: DirectoryOption = Path()) -> None:
    """Make the fleet's authority; its key can be kept elsewhere while nothing is issued."""
    authority = Authority.create(directory, _fleet(directory))
    typer.echo(f"authority of fleet {authority.fleet!r} in {authority.directory}")
    typer.echo(f"next: server-bridge pki broker HOST... -d {directory}; server-bridge pki bridge -d {directory}")


@app.command()
def broker(
    hosts: Annotated[list[str], typer.Argument(help="Every host name and address by which the broker is reached.")],
    directory: DirectoryOption = Path(),
    days: DaysOption = CERTIFICATE_DAYS,
) -> None:
    """Make the broker's certificate, and the folder that the broker's machine gets."""
    folder = _authority(directory).broker(hosts, days=days)
    typer.echo(f"copy {folder} to the broker, for mosquitto's user only; see deploy/mosquitto/mosquitto.conf")


@app.command()
def bridge(directory: DirectoryOption = Path(), days: DaysOption = CERTIFICATE_DAYS) -> None:
    """Make the bridge's certificates and name them in bridge.toml."""
    authority = _authority(directory)
    check_absent(directory / TLS_FOLDER)
    write_credentials(directory / TLS_FOLDER, authority.bridge(days=days))
    authority.renew_broker_files()
    named = name_credentials(directory / "bridge.toml")
    typer.echo(f"{directory / TLS_FOLDER} is made" + (", and named in bridge.toml" if named else ""))
    typer.echo(f"next: server-bridge gateway provision ID... -o DIR -c {directory / 'bridge.toml'}")
    _remind(authority)


@app.command()
def gateway(
    ids: Annotated[list[str], typer.Argument(help="Ids of the gateways.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where `gateway provision` made their folders.")],
    directory: DirectoryOption = Path(),
    days: DaysOption = CERTIFICATE_DAYS,
) -> None:
    """Make certificates for gateways that were provisioned without, or whose certificates are to be renewed."""
    authority = _authority(directory)
    refuse_repeated(ids)
    for one in ids:
        check_gateway(one)
        check_absent(out / one / TLS_FOLDER)
    for one in ids:
        write_credentials(out / one / TLS_FOLDER, authority.gateway(one, days=days))
        settings = out / one / "agent.toml"
        named = settings.is_file() and name_credentials(settings)
        typer.echo(f"{out / one / TLS_FOLDER} is made" + (", and named in agent.toml" if named else ""))
    authority.renew_broker_files()
    _remind(authority)


@app.command()
def revoke(
    names: Annotated[list[str], typer.Argument(help="Gateways, or single common names.")],
    directory: DirectoryOption = Path(),
) -> None:
    """Revoke every valid certificate of these gateways."""
    authority = _authority(directory)
    for name in names:
        for one in authority.revoke(name):
            typer.echo(f"revoked {one.name} (serial {one.serial:x})")
    _remind(authority)


@app.command("list")
def list_issued(directory: DirectoryOption = Path()) -> None:
    """Show every certificate: name, serial, expiry, revocation."""
    for one in _authority(directory).issued():
        state = "valid" if one.revoked is None else f"revoked {one.revoked:%Y-%m-%d %H:%M} UTC"
        typer.echo(f"{one.name}  expires {one.expires:%Y-%m-%d}  {state}  serial {one.serial:x}")


def _authority(directory: Path) -> Authority:
    return Authority.load(directory, _fleet(directory))


def _fleet(directory: Path) -> str:
    """Its name.

    Raises:
        ConfigError: the folder holds no fleet, or its settings are wrong.
    """
    if not (directory / "bridge.toml").is_file():
        problem = f"directory {directory} holds no fleet: it has no bridge.toml"
        raise ConfigError(problem, "give the fleet's folder with -d, or run `server-bridge init`")
    return load_settings(directory / "bridge.toml").bridge.fleet


def _remind(authority: Authority) -> None:
    folder = authority.directory / "broker"
    typer.echo(f"copy {folder}/acl and crl.pem to the broker and reload it (SIGHUP)")
