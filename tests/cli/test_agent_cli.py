import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from edge_agent.cli.exits import Exit
from tests.broker import CLOSED_PORT, Mosquitto
from tests.e2e.gateway import GATEWAY, STOP_S, WAIT_S, RunningAgent, gateway_folder, provisioned, run

_DIES = (
    "import sys\n"
    "from edge_agent.sources.replay import ReplaySource\n"
    "def broken(self, timeout_s):\n"
    "    raise RuntimeError('a defect')\n"
    "ReplaySource.read = broken\n"
    "from edge_agent.cli import main\n"
    "main()\n"
)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("fleet")
    return provisioned(folder)


@pytest.fixture
def settings(bridge: Path, tmp_path: Path) -> Path:
    """Of a gateway whose broker is away."""
    return gateway_folder(bridge, tmp_path, CLOSED_PORT)


def edit(settings: Path, old: str, new: str) -> None:
    text = settings.read_text()
    assert old in text
    settings.write_text(text.replace(old, new))


def served(agent: RunningAgent) -> float:
    return agent.number("served_samples")


def test_the_version_and_the_help() -> None:
    assert run("version").out.strip() == "0.1.0"
    helped = run("--help")
    assert helped.status == Exit.OK
    assert all(command in helped.out for command in ("run", "check", "status", "version"))


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_missing_file_is_the_operators_error(tmp_path: Path, command: str) -> None:
    ended = run(command, "-c", str(tmp_path / "absent.toml"))
    assert ended.status == Exit.CONFIG
    assert "absent.toml does not exist" in ended.err
    assert "give its path with -c" in ended.err
    assert "Traceback" not in ended.err


def test_an_unknown_command_is_wrong_use() -> None:
    assert run("runn").status == Exit.CONFIG


def test_a_wrong_key_is_named_with_the_fix(settings: Path) -> None:
    edit(settings, "rate_hz", "rate_herz")
    ended = run("run", "-c", str(settings))
    assert ended.status == Exit.CONFIG
    assert "[source] rate_herz = 200.0" in ended.err
    assert "did you mean 'rate_hz'?" in ended.err
    assert len(ended.err.splitlines()) == 2


def test_a_variable_that_is_wrong_is_named(settings: Path) -> None:
    ended = run("run", "-c", str(settings), EDGE_AGENT__BROKER__PORT="many")
    assert (ended.status, "[broker] port = 'many'" in ended.err) == (Exit.CONFIG, True)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("stream.npz", "absent.npz", "absent.npz"),
        ('bundle = "bundle"', 'bundle = "no-bundle"', "no-bundle"),
    ],
)
def test_a_file_that_settings_name_and_is_absent_is_the_operators_error(
    settings: Path, old: str, new: str, named: str
) -> None:
    edit(settings, old, new)
    ended = run("run", "-c", str(settings))
    assert (ended.status, named in ended.err, "Traceback" in ended.err) == (Exit.CONFIG, True, False)


def test_a_damaged_provisioned_bundle_is_named(settings: Path) -> None:
    graph = settings.parent / "bundle" / "infer.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"?")
    ended = run("run", "-c", str(settings))
    assert (ended.status, "infer.onnx" in ended.err, "Traceback" in ended.err) == (Exit.CONFIG, True, False)


def test_a_data_folder_that_cannot_be_used_is_named_and_the_model_is_served_alone(settings: Path) -> None:
    settings.with_name("data").write_bytes(b"a file")
    with RunningAgent(settings) as agent:
        agent.wait("service alone", lambda: agent.logged("serving_alone"))
        assert agent.stop()[0] == Exit.OK
    assert str(settings.with_name("data")) in agent.log.read_text()


@pytest.mark.parametrize("name", ["root.json", "floors.json"])
@pytest.mark.parametrize("content", [b"\xff", None], ids=["junk", "absent"])
def test_wrong_files_in_a_new_folder_are_the_installers_error(settings: Path, name: str, content: bytes | None) -> None:
    settings.with_name(name).unlink()
    if content is not None:
        settings.with_name(name).write_bytes(content)
    for _ in range(2):  # the second start is no different: the first has not begun to serve
        ended = run("run", "-c", str(settings))
        assert (ended.status, "Traceback" in ended.err) == (Exit.CONFIG, False)
        assert name in ended.err
        assert "gateway provision" in ended.err
    checked = run("check", "-c", str(settings))
    assert (checked.status, "FAIL  trust root" in checked.out, "gateway provision" in checked.out) == (3, True, True)


def test_a_root_of_trust_lost_in_service_ends_updates_and_not_service(settings: Path) -> None:
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        agent.stop()
    root = settings.with_name("root.json")
    kept = root.read_bytes()
    root.write_bytes(bytes(len(kept)))
    with RunningAgent(settings) as again:
        again.wait("service alone", lambda: again.logged("serving_alone"))
        assert again.process.poll() is None
        root.write_bytes(kept)
        assert again.process.wait(WAIT_S) == Exit.STORAGE
    said = again.log.read_text()
    assert "root.json is no root of trust" in said
    assert "Traceback" not in said


def test_a_start_that_a_wrong_setting_ended_is_not_taken_for_lost_data(settings: Path) -> None:
    edit(settings, "stream.npz", "absent.npz")
    assert run("run", "-c", str(settings)).status == Exit.CONFIG
    edit(settings, "absent.npz", "stream.npz")
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        assert not agent.logged("database_empty")


def test_a_second_agent_on_one_data_folder_is_refused_and_the_first_goes_on(settings: Path) -> None:
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        ended = run("run", "-c", str(settings))
        assert ended.status == Exit.CONFIG
        assert "another edge-agent runs on" in ended.err
        assert "data_dir" in ended.err
        agent.wait("a flag of the first", lambda: agent.logged("drift_flagged"))


def test_without_a_broker_it_serves_says_so_and_stops_in_time(settings: Path) -> None:
    assert run("status", "-c", str(settings)).status == Exit.PROBLEM
    with RunningAgent(settings) as agent:
        agent.wait("service and a flag", lambda: served(agent) > 0 and agent.logged("drift_flagged"))
        ended = run("status", "-c", str(settings), "--json")
        shown = json.loads(ended.out)
        assert (ended.status, shown["running"], shown["gateway"]) == (Exit.OK, True, GATEWAY)
        assert (shown["connected"], shown["weights_version"], shown["cohort"]) == (False, 1, "root")
        status, took_s = agent.stop()
    assert status == Exit.OK
    assert took_s < STOP_S
    ended = run("status", "-c", str(settings))
    assert ended.status == Exit.PROBLEM
    assert "running: no" in ended.out
    assert f"gateway: {GATEWAY}" in ended.out
    assert (agent.number("flags"), agent.number("outbox_depth") >= 1) == (1, True)


def test_after_a_kill_it_is_not_running_and_starts_again(settings: Path) -> None:
    with RunningAgent(settings) as agent:
        agent.wait("a flag", lambda: agent.logged("drift_flagged"))
        os.kill(agent.process.pid, signal.SIGKILL)
        agent.process.wait(WAIT_S)
    assert run("status", "-c", str(settings)).status == Exit.PROBLEM
    settings.with_name("data").joinpath("status.json").unlink(missing_ok=True)  # killed before its first, perhaps
    with RunningAgent(settings) as again:
        again.wait("service", lambda: served(again) > 0)
        assert again.number("flags") == 1
        assert again.number("outbox_depth") >= 1


def test_a_corrupt_database_is_set_aside_and_serving_goes_on(settings: Path) -> None:
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        agent.stop()
    data = settings.with_name("data")
    for name in ("agent.db", "samples.db"):
        (data / name).write_bytes(bytes((data / name).stat().st_size))
    (data / "status.json").unlink()
    with RunningAgent(settings) as again:
        again.wait("service and the reports", lambda: served(again) > 0 and again.number("outbox_depth") >= 2)
    assert {path.name.split(".corrupt-")[0] for path in data.glob("*.corrupt-*")} == {"agent.db", "samples.db"}


@pytest.mark.parametrize("gone", ["samples.db", "agent.db", "."])
def test_files_removed_in_use_end_the_agent_for_its_service_to_start_again(settings: Path, gone: str) -> None:
    """SQLite would go on in a file without a name, and all of it would be lost at the end."""
    data = settings.with_name("data")
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        if gone == ".":
            shutil.rmtree(data.rename(data.with_name("removed")))  # in one step: the agent writes into it meanwhile
        else:
            for file in data.glob(f"{gone}*"):
                file.unlink(missing_ok=True)  # one that has noticed removes what is beside it itself
        assert agent.process.wait(WAIT_S) == Exit.PART_DIED
        assert agent.logged("database_removed")
    if gone != ".":
        (data / "status.json").unlink()
    with RunningAgent(settings) as again:
        again.wait("service", lambda: (data / "status.json").exists() and served(again) > 0)
        assert again.stop()[0] == Exit.OK


@pytest.mark.long
@pytest.mark.parametrize("name", ["agent.db", "samples.db"])
def test_bytes_overwritten_in_use_are_found_and_cost_a_restart(settings: Path, name: str) -> None:
    data = settings.with_name("data")
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: served(agent) > 0)
        files = (data / name, data / f"{name}-wal")  # what is in the log only, the file does not show yet
        with files[0].open("r+b") as kept, files[1].open("r+b") as log:  # one that notices the first renames both
            for opened in (kept, log):
                opened.write(os.urandom(os.fstat(opened.fileno()).st_size))
        assert agent.process.wait(WAIT_S) == Exit.PART_DIED
        assert agent.logged("database_damaged")
        assert agent.logged("database_set_aside")
    (data / "status.json").unlink()
    with RunningAgent(settings) as again:
        again.wait("service", lambda: (data / "status.json").exists() and served(again) > 0)
        assert again.stop()[0] == Exit.OK
    assert len({file.name.split("-wal")[0].split("-shm")[0] for file in data.glob(f"{name}.corrupt-*")}) <= 2


def test_a_part_that_dies_ends_the_agent_for_its_service_to_start_again(settings: Path) -> None:
    with RunningAgent(settings, [sys.executable, "-c", _DIES]) as agent:
        assert agent.process.wait(WAIT_S) == Exit.PART_DIED
        log = agent.log.read_text()
    assert '"part_died"' in log
    assert "a defect" in log


def test_check_finds_a_closed_port_and_says_what_to_do(settings: Path) -> None:
    ended = run("check", "-c", str(settings))
    lines = ended.out.splitlines()
    assert ended.status == Exit.PROBLEM
    assert [line.split(":")[0].split() for line in lines if line.startswith("FAIL")] == [["FAIL", "broker"]]
    (place,) = [k for k, line in enumerate(lines) if line.startswith("FAIL")]
    assert lines[place + 1].startswith("      remedy: check [broker] host and port")
    assert sum(line.startswith("ok") for line in lines) == 6


def test_check_finds_nothing_wrong_where_nothing_is(bridge: Path, tmp_path: Path, mosquitto: Mosquitto) -> None:
    settings = gateway_folder(bridge, tmp_path / "gateways", mosquitto.port)
    ended = run("check", "-c", str(settings))
    assert (ended.status, ended.err) == (Exit.OK, "")
    assert [line.split(":")[0] for line in ended.out.splitlines()] == [
        f"ok    {what}" for what in ("settings", "bundle", "disk", "trust root", "clock", "broker", "rights", "source")
    ]


def test_check_looks_at_everything_and_gives_each_finding_a_remedy(settings: Path) -> None:
    (settings.parent / "root.json").unlink()
    (settings.parent / "stream.npz").write_bytes(b"no recording")
    settings.with_name("data").write_bytes(b"a file")
    text = settings.read_text().replace("[broker]", '[broker]\nca = "a.pem"\ncertificate = "c.pem"\nkey = "k.pem"')
    settings.write_text(text)
    ended = run("check", "-c", str(settings))
    assert (ended.status, "Traceback" in ended.err) == (Exit.PROBLEM, False)
    failed = [line.split(":")[0].removeprefix("FAIL  ") for line in ended.out.splitlines() if line.startswith("FAIL")]
    assert failed == ["disk", "trust root", "identity", "broker", "source"]
    assert ended.out.count("remedy: ") == 5


def test_check_of_a_wrong_file_is_a_finding(settings: Path) -> None:
    edit(settings, "rate_hz", "rate_herz")
    ended = run("check", "-c", str(settings))
    assert ended.status == Exit.PROBLEM
    assert "did you mean 'rate_hz'?" in ended.out
