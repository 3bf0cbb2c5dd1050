"""A disk that takes nothing more, by a limit on the size of every file that the agent writes."""

import resource
import time
from pathlib import Path

from tests.broker import CLOSED_PORT
from tests.e2e.gateway import RunningAgent, gateway_folder, provisioned

TOO_SMALL_BYTES = 100
FULL_S = 4.0


def limit(agent: RunningAgent, size_bytes: int) -> None:
    resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def test_a_full_disk_costs_records_and_no_service(tmp_path: Path) -> None:
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", CLOSED_PORT)
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: agent.number("served_samples") > 0)
        limit(agent, TOO_SMALL_BYTES)
        time.sleep(FULL_S)
        assert agent.process.poll() is None
        limit(agent, resource.RLIM_INFINITY)
        agent.wait("the flag of the drift that began meanwhile", lambda: agent.logged("drift_flagged"))
        status, _ = agent.stop()
    assert status == 0
    assert agent.number("lost_batches") > 0
    assert agent.number("served_samples") > 150 * FULL_S
