from pathlib import Path

import pytest

from edge_agent.errors import ConfigError
from server_bridge.config import load_settings


def write(path: Path, text: str) -> Path:
    file = path / "bridge.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_the_least_file_has_defaults_and_paths_start_at_its_folder(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, '[bridge]\nfleet = "line1"\n[broker]\nhost = "broker"\n'))
    assert settings.bridge.data_dir == tmp_path
    assert settings.strategy.name == "clma"
    assert settings.broker.settings().host == "broker"
    assert settings.broker.settings().tls is None


def test_tls_files_are_found_beside_the_file(tmp_path: Path) -> None:
    text = '[bridge]\nfleet = "l"\n[broker]\nca = "ca.pem"\ncertificate = "c.pem"\nkey = "/etc/k.pem"\n'
    tls = load_settings(write(tmp_path, text)).broker.settings().tls
    assert tls is not None
    assert tls.ca == tmp_path / "ca.pem"
    assert tls.key == Path("/etc/k.pem")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ["[bridge]", "add"]),
        ('[bridge]\nfleet = "a b"\n', ["fleet", "a b"]),
        ('[bridge]\nfleet = "a"\n[trigger]\nmin_flag = 3\n', ["[trigger] min_flag", "did you mean 'min_flags'"]),
        (
            '[bridge]\nfleet = "a"\n[trigger]\nmax_age_s = 60\n',
            ["[trigger]", "min_samples_cap_s = 600 must be less than max_age_s = 60"],
        ),
        ('[bridge]\nfleet = "a"\n[triger]\nmin_flags = 3\n', ["[triger]", "did you mean 'trigger'"]),
        ('[bridge]\nfleet = "a"\n[round]\ntimeout_s = -1\n', ["[round] timeout_s = -1", "greater than 0"]),
        (
            '[bridge]\nfleet = "a"\n[round]\nmax_samples = 10\n',
            ["[round]", "min_samples = 64 must be at most max_samples = 10"],
        ),
        (f'[bridge]\nfleet = "a"\n[round]\nmax_samples = {10**20}\n', ["[round] max_samples", "1000000000"]),
        (f'[bridge]\nfleet = "a"\n[round]\nrounds = {10**20}\n', ["[round] rounds", "10000"]),
        (
            '[bridge]\nfleet = "a"\n[round]\nschedule = "fed-ade"\nlearning_rate_min = 0.01\n',
            ["[round]", "learning_rate_min = 0.01 must be at most the rate 0.003"],
        ),
        ('[bridge]\nfleet = "a"\n[round]\nlearning_rate_min = 0.001\n', ["[round]", "of no use with schedule"]),
        (
            '[bridge]\nfleet = "a"\n[round]\ntraining_graph = "press-adam"\n'
            '[round.gateway_graphs]\ng7 = "weld-adam"\ng8 = "press-adam"\ng9 = "cut-adam"\n',
            [
                "[round] gateway_graphs: g7 'weld-adam', g9 'cut-adam' where the others train 'press-adam'",
                "name = 'clma' compares gateways",
                'take [strategy] name = "fedavg", or leave gateway_graphs out',
            ],
        ),
        ('[bridge]\nfleet = "a"\n[strategy]\nname = "magic"\n', ["[strategy] name = 'magic'", "clma"]),
        ('[bridge]\nfleet = "a"\n[strategy]\ncut = true\n', ["[strategy]", "cut = true: true is not a value"]),
        ('[bridge]\nfleet = "a"\n[strategy]\ncandidates = true\n', ["[strategy]", "candidates = true"]),
        ('[bridge]\nfleet = "a"\n[strategy]\ncandidates = 99\n', ["[strategy] candidates = 99", "16"]),
        ('[bridge]\nfleet = "a"\n[strategy]\nrecognition = 0.3\n', ["[strategy] recognition = 0.3", "boolean"]),
        ('[bridge]\nfleet = "a"\n[broker]\nca = "x"\n', ["[broker]", "give all three or none"]),
        ('[bridge]\nfleet = "a"\nbroker = 3\n', ["[bridge] broker"]),
        ("bridge = 3\n", ["[bridge]"]),
        ("[bridge\n", ["not TOML"]),
    ],
)
def test_errors_name_key_value_and_fix(tmp_path: Path, text: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(write(tmp_path, text))
    assert all(part in str(caught.value) for part in named), str(caught.value)


def test_an_absent_file_is_an_operators_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="server-bridge init"):
        load_settings(tmp_path / "bridge.toml")
