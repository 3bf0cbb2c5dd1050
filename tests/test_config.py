from pathlib import Path

import pytest

from edge_agent.config import AgentSettings, JsonLinesSinkSection, MqttSourceSection, ReplaySourceSection, load_settings
from edge_agent.errors import ConfigError

LEAST = '[gateway]\nid = "gw1"\nfleet = "line1"\n[source]\nkind = "replay"\npath = "stream.npz"\n'
PLANT = '[gateway]\nid = "gw1"\nfleet = "line1"\n[source]\nkind = "mqtt"\nsamples_topic = "s"\nlabels_topic = "l"\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's working directory is not the settings file's folder."""
    away = tmp_path / "elsewhere"
    away.mkdir()
    monkeypatch.chdir(away)


def load(folder: Path, text: str) -> AgentSettings:
    file = folder / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file)


def refusal(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    return caught.value


def test_the_least_file_is_enough_and_every_path_is_absolute(tmp_path: Path) -> None:
    settings = load(tmp_path, LEAST)
    assert settings.gateway.data_dir == tmp_path / "data"
    assert settings.gateway.bundle == tmp_path / "bundle"
    assert settings.gateway.root == tmp_path / "root.json"
    assert settings.gateway.floors == tmp_path / "floors.json"
    assert isinstance(settings.source, ReplaySourceSection)
    assert settings.source.path == tmp_path / "stream.npz"
    assert settings.training.enabled
    assert settings.broker.settings().tls is None


def test_given_paths_start_at_the_files_folder_and_absolute_ones_stay(tmp_path: Path) -> None:
    text = LEAST.replace("[source]", 'data_dir = "../d"\nbundle = "/srv/bundle"\n[source]')
    settings = load(tmp_path, text + '[sink]\nkind = "jsonl"\npath = "out/p.jsonl"\n')
    assert settings.gateway.data_dir == tmp_path / "../d"
    assert settings.gateway.bundle == Path("/srv/bundle")
    assert isinstance(settings.sink, JsonLinesSinkSection)
    assert settings.sink.path == tmp_path / "out/p.jsonl"


def test_tls_files_of_both_brokers_start_at_the_files_folder(tmp_path: Path) -> None:
    tls = 'ca = "ca.pem"\ncertificate = "c.pem"\nkey = "/etc/k.pem"\n'
    settings = load(tmp_path, PLANT + tls + "[broker]\n" + tls)
    assert isinstance(settings.source, MqttSourceSection)
    for section in (settings.source, settings.broker):
        files = section.settings().tls
        assert files is not None
        assert (files.ca, files.certificate, files.key) == (
            tmp_path / "ca.pem",
            tmp_path / "c.pem",
            Path("/etc/k.pem"),
        )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", ["[gateway]", "add"]),
        ('[gateway]\nid = "gw1"\n', ["add [gateway] fleet"]),
        ('[gateway]\nid = "gw1"\nfleet = "line1"\n', ["add [source]"]),
        (LEAST.replace('"gw1"', '"gw 1"'), ["[gateway] id = 'gw 1'", "1 to 64 of A-Z a-z 0-9 _ -"]),
        (LEAST.replace('"line1"', '"lines/1"'), ["[gateway] fleet = 'lines/1'", "1 to 64 of A-Z a-z 0-9 _ -"]),
        (LEAST.replace('"line1"', "7"), ["[gateway] fleet = 7", "string"]),
        (LEAST + "[broker]\nport = 70000\n", ["[broker] port = 70000", "65535"]),
        (LEAST + "[broker]\nkeepalive_s = 1\n", ["[broker] keepalive_s = 1", "greater than or equal to 5"]),
        (LEAST + '[broker]\nca = "ca.pem"\n', ["[broker]", "give all three or none"]),
        (LEAST + '[broker]\nca = "a"\ncertificate = "b"\n', ["[broker]", "give all three or none"]),
        (LEAST + "[monitor]\ngamma = 0\n", ["[monitor] gamma = 0", "greater than 0"]),
        (LEAST + "[monitor]\ngamma = inf\n", ["[monitor] gamma = inf", "<= 1000"]),
        (LEAST + "[monitor]\nbucket_s = nan\n", ["[monitor] bucket_s = nan"]),
        (LEAST + '[monitor]\nrule = "best"\n', ["[monitor] rule = 'best'", "'loss-rise' or 'published'"]),
        (LEAST + "[samples]\nproof_share = 1.0\n", ["[samples] proof_share = 1.0", "less than 1"]),
        (LEAST + "[training]\nmemory_bytes = 10\n", ["[training] memory_bytes = 10", "67108864"]),
        (LEAST + "[report]\nstate_interval_s = 0.1\n", ["[report] state_interval_s = 0.1", "0.5"]),
        (LEAST + '[log]\nlevel = "loud"\n', ["[log] level = 'loud'", "'debug'"]),
        (LEAST + "rate_hz = -5\n", ["[source] rate_hz = -5", ">= 1e-06"]),
        (LEAST.replace('path = "stream.npz"\n', ""), ["add [source] path"]),
        (LEAST.replace('"replay"', '"opcua"'), ["[source]", "kind", "'opcua'", "'replay', 'mqtt'"]),
        (LEAST.replace('kind = "replay"\n', ""), ["[source]", "kind"]),
        (PLANT.replace('labels_topic = "l"\n', ""), ["add [source] labels_topic"]),
        (LEAST + '[sink]\nkind = "mqtt"\n', ["add [sink] topic"]),
        (LEAST + '[sink]\nkind = "mqtt"\ntopic = "a/#"\n', ["[sink] topic = 'a/#'", "MQTT topic"]),
        (LEAST + '[sink]\nkind = "mqtt"\ntopic = ""\n', ["[sink] topic = ''", "not empty"]),
        (PLANT.replace('"s"', '""'), ["[source] samples_topic = ''", "not empty"]),
        (PLANT.replace('"l"', '"l/#/x"'), ["[source] labels_topic = 'l/#/x'", "# only as the last"]),
        ("gateway = 3\n", ["[gateway]", "3"]),
        ("[gateway\n", ["agent.toml", "not TOML"]),
    ],
)
def test_errors_name_key_value_and_fix(tmp_path: Path, text: str, named: list[str]) -> None:
    error = str(refusal(tmp_path, text))
    assert all(part in error for part in named), error
    assert str(tmp_path / "agent.toml") in error


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        (LEAST + "[broker]\nprot = 1\n", "[broker] prot = 1", "did you mean 'port'?"),
        (LEAST + "rate_hertz = 1\n", "[source] rate_hertz = 1", "did you mean 'rate_hz'?"),
        (PLANT + 'label_topic = "l"\n', "[source] label_topic = 'l'", "did you mean 'labels_topic'?"),
        (LEAST + "[traning]\nenabled = false\n", "[traning]", "did you mean 'training'?"),
        (LEAST + "[log]\nxyzzy = 1\n", "[log] xyzzy = 1", "remove the key"),
    ],
)
def test_an_unknown_key_gets_a_suggestion(tmp_path: Path, text: str, problem: str, hint: str) -> None:
    error = refusal(tmp_path, text)
    assert problem in error.problem
    assert error.hint == hint


def test_an_absent_file_says_how_to_name_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist.*-c"):
        load_settings(tmp_path / "agent.toml")


@pytest.mark.parametrize(
    ("content", "way_out"),
    [
        (b"\xff\xfe", "name the file itself with -c"),
        (b"#" * 2_000_000, "name the file itself with -c"),
        (b"x = " + b"[" * 3000, "text stands in quotes"),
        (b"id = gw1", "text stands in quotes"),
    ],
    ids=["no text", "far too large", "far too deep", "no TOML"],
)
def test_a_file_that_is_no_settings_file_is_refused_with_the_way_out(
    tmp_path: Path, content: bytes, way_out: str
) -> None:
    (tmp_path / "agent.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"agent\.toml") as caught:
        load_settings(tmp_path / "agent.toml")
    assert way_out in caught.value.hint


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory") as caught:
        load_settings(tmp_path)
    assert "-c" in caught.value.hint


def test_another_programs_settings_are_told_by_the_sections_that_are_needed(tmp_path: Path) -> None:
    error = refusal(tmp_path, '[bridge]\nfleet = "line1"\n')
    assert "[bridge]: unknown" in error.problem
    assert error.hint == "is it another program's file? this one has [gateway], [source]; name it with -c"


def test_a_password_is_never_quoted(tmp_path: Path) -> None:
    secret = LEAST + '[broker]\nusername = "u"\npassword = "hunter2"\n'
    whole = refusal(tmp_path, secret + 'ca = "ca.pem"\n')
    assert "hunter2" not in str(whole)
    wrong = refusal(tmp_path, secret.replace('"hunter2"', "[20022]"))
    assert "[broker] password" in str(wrong)
    assert "20022" not in str(wrong)


def test_variables_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_AGENT__BROKER__PORT", "18830")
    monkeypatch.setenv("EDGE_AGENT__TRAINING__ENABLED", "false")
    monkeypatch.setenv("EDGE_AGENT__SOURCE__RATE_HZ", "2.5")
    settings = load(tmp_path, LEAST + "[broker]\nport = 1\nkeepalive_s = 17\n")
    assert (settings.broker.port, settings.broker.keepalive_s) == (18830, 17)
    assert not settings.training.enabled
    assert isinstance(settings.source, ReplaySourceSection)
    assert settings.source.rate_hz == 2.5


def test_a_variables_relative_path_starts_at_the_files_folder_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_AGENT__GATEWAY__DATA_DIR", "state")
    monkeypatch.setenv("EDGE_AGENT__SOURCE__PATH", "/srv/other.npz")
    settings = load(tmp_path, LEAST)
    assert settings.gateway.data_dir == tmp_path / "state"
    assert isinstance(settings.source, ReplaySourceSection)
    assert settings.source.path == Path("/srv/other.npz")


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("EDGE_AGENT__BROKER__PORT", "many", ["[broker] port = 'many'", "integer"]),
        ("EDGE_AGENT__BROKER__PROT", "1", ["[broker] prot = '1'", "did you mean 'port'"]),
        ("EDGE_AGENT__GATEWAY", "{not json", ["EDGE_AGENT__", '"gateway"']),
    ],
)
def test_a_wrong_variable_is_an_operators_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: list[str]
) -> None:
    monkeypatch.setenv(name, value)
    error = str(refusal(tmp_path, LEAST))
    assert all(part in error for part in named), error


def test_credentials_are_a_folder_beside_the_file_or_nothing_else(tmp_path: Path) -> None:
    tls = load(tmp_path, PLANT + '[broker]\ncredentials = "tls"\n').broker.settings().tls
    assert tls is not None
    assert tls.ca == tmp_path / "tls" / "ca.crt"
    assert tls.own_files("gw1.up") == (tmp_path / "tls" / "gw1.up.crt", tmp_path / "tls" / "gw1.up.key")
    both = PLANT + '[broker]\ncredentials = "tls"\nca = "a"\ncertificate = "c"\nkey = "k"\n'
    with pytest.raises(ConfigError, match="not both"):
        load(tmp_path, both)


def test_a_device_is_not_read_without_end() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        load_settings(Path("/dev/zero"))
