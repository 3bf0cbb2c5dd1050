from collections.abc import Iterator
from pathlib import Path

import pytest

from server_bridge.demo.settings_files import amend
from tests.access_list import Listed
from tests.broker import CLOSED_PORT, new_mosquitto
from tests.cli.checked import Plant, credentials
from tests.e2e.gateway import GATEWAY, gateway_folder, provisioned
from tests.link.certificates import make_authority


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def settings(bridge: Path, tmp_path: Path) -> Path:
    """Of a gateway whose broker is away."""
    return gateway_folder(bridge, tmp_path / "gateways", CLOSED_PORT)


@pytest.fixture
def plant(bridge: Path, tmp_path: Path) -> Iterator[Plant]:
    work = tmp_path / "pki"
    work.mkdir()
    authority = make_authority(work / "ca")
    own = authority.sign("127.0.0.1", work / "broker")
    broker = new_mosquitto(
        work,
        f"cafile {authority.certificate}",
        f"certfile {own.certificate}",
        f"keyfile {own.key}",
        "require_certificate true",
        "use_identity_as_username true",
        "use_username_as_clientid true",
    )
    settings = gateway_folder(bridge, tmp_path / "gateways", broker.port)
    amend(settings, {"broker": {"host": "127.0.0.1", "port": broker.port, "credentials": "tls"}})
    credentials(authority, GATEWAY, settings.parent / "tls", work)
    yield Plant(authority, broker, settings)
    broker.kill()


@pytest.fixture
def listed(bridge: Path, tmp_path: Path) -> Iterator[Listed]:
    one = Listed(bridge, tmp_path)
    yield one
    one.broker.kill()
