"""``edge-agent check`` as a process, and a plant whose broker asks for certificates."""

import queue
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from edge_agent.cli.exits import Exit
from edge_agent.link.events import Published, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.wire.rights import gateway_identities
from tests.broker import Mosquitto
from tests.e2e.gateway import run
from tests.link.certificates import Authority


@dataclass(frozen=True)
class Checked:
    """What a check printed: by what was looked at, whether it is right and what was seen; remedies."""

    status: int
    right: dict[str, bool]
    saw: dict[str, str]
    remedy: dict[str, str]

    @property
    def failed(self) -> list[str]:
        return [what for what, ok in self.right.items() if not ok]


def check(settings: Path, *words: str, clock_s: float | None = None) -> Checked:
    """Run the command; its clock can be set."""
    if clock_s is None:
        ended = run("check", "-c", str(settings), *words)
        status, out, err = ended.status, ended.out, ended.err
    else:
        program = f"import time\ntime.time = lambda: {clock_s}\nfrom edge_agent.cli import main\nmain()"
        command = [sys.executable, "-c", program, "check", "-c", str(settings), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        status, out, err = done.returncode, done.stdout, done.stderr
    assert "Traceback" not in err, err
    found = Checked(status, {}, {}, {})
    what = ""
    for line in out.splitlines():
        if line.startswith("      remedy: "):
            found.remedy[what] = line.removeprefix("      remedy: ")
        else:
            what, _, saw = line[6:].partition(": ")
            found.right[what], found.saw[what] = line.startswith("ok"), saw
    assert status == (Exit.PROBLEM if found.failed else Exit.OK), (out, err)
    assert set(found.remedy) == set(found.failed), out
    return found


@dataclass(frozen=True)
class Plant:
    """A broker with mutual TLS, and a gateway of its fleet."""

    authority: Authority
    broker: Mosquitto
    settings: Path

    @property
    def tls(self) -> Path:
        return self.settings.parent / "tls"


def credentials(authority: Authority, gateway: str, folder: Path, work: Path) -> None:
    """A folder as `server-bridge pki` makes it."""
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    for identity in gateway_identities(gateway):
        pair = authority.sign(identity, work / identity)
        (folder / f"{identity}.crt").write_bytes(pair.certificate.read_bytes())
        (folder / f"{identity}.key").write_bytes(pair.key.read_bytes())


def keep(session: MqttSession, inbox: "queue.Queue[SessionEvent]", topic: str, payload: bytes) -> None:
    """Publish a retained message and wait for the broker's answer."""
    token = session.publish(topic, payload, retain=True)
    while not isinstance(event := inbox.get(timeout=60.0), Published) or event.token != token:
        continue
    assert event.ok
