"""Settings: which source wins, what is refused and how it is told, and that each key is documented."""

import os
import re
from pathlib import Path

import pytest

from ninfer_proxy.config import Config, ConfigError, default_data_dir, load, settings

CONFIG = Path(__file__).parents[2] / "config"


@pytest.fixture
def toml(tmp_path):
    def write(text):
        path = tmp_path / "test.toml"
        path.write_text(text)
        return path

    return write


def test_defaults_need_nothing():
    assert load(None, {}, {}) == Config()


def test_flags_win_over_environment_over_file(toml):
    path = toml('[server]\nhost = "file"\nport = 1\n[engine]\nthreads = 3\n')
    env = {"NINFER_PROXY_HOST": "env", "NINFER_PROXY_PORT": "2", "PATH": "/bin"}
    config = load(path, env, {"server.host": "flag", "server.data_dir": None})
    assert (config.server.host, config.server.port, config.engine.threads) == ("flag", 2, 3)


def test_threads_are_one_for_each_core_it_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 4, 6}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert Config().engine.thread_count == 3
    assert load(None, {}, {"engine.threads": 5}).engine.thread_count == 5
    monkeypatch.delattr(os, "sched_getaffinity")
    assert Config().engine.thread_count == 64


def test_the_environment_can_name_the_file(toml):
    path = toml("[slots]\ncount = 7\n")
    assert load(None, {"NINFER_PROXY_CONFIG": str(path)}, {}).slots.count == 7


def test_values_from_the_environment(tmp_path):
    env = {
        "NINFER_PROXY_DATA_DIR": str(tmp_path),
        "NINFER_PROXY_API_KEY": "one, two",
        "NINFER_PROXY_MODEL_STRICT": "yes",
        "NINFER_PROXY_ENGINE_HOST_BYTES": "1.5 GiB",
        "NINFER_PROXY_SLOTS": "12",
        "NINFER_PROXY_SAMPLING_TOP_P": "0.5",
        "NINFER_PROXY_URL": "http://elsewhere",
    }
    config = load(None, env, {})
    assert config.data_dir == tmp_path
    assert config.auth.api_keys == ("one", "two")
    assert config.model.strict is True
    assert config.engine.host_bytes == 3 << 29
    assert config.slots.count == 12
    assert config.sampling.top_p == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nprot = 1", "Unknown key server.prot in .*Did you mean server.port?"),
        ("[engine]\nport = 1", "Unknown key engine.port in .*Did you mean server.port?"),
        ("host = 1", "Unknown key host in .*Did you mean server.host?"),
        ("[zzz]\nqqqqqq = 1", "Unknown key zzz.qqqqqq in .*Known are: server.host, "),
        ("[server]\nport = 70000", r"server.port in .* whole number from 0 to 65535, not 70000"),
        ("[server]\nport = true", "server.port in .* must be a whole number"),
        ("[server]\nhost = ''", "server.host in .* non-empty string"),
        ("[engine]\ndevice = 'tpu'", "engine.device in .* one of auto, cpu, cuda, not 'tpu'"),
        ("[engine]\ndevice_bytes = '5 apples'", 'engine.device_bytes in .* "24 GiB"'),
        ("[engine]\ndevice_bytes = -1", "engine.device_bytes in .* bytes"),
        ("[sampling]\ntemperature = nan", "sampling.temperature in .* number from 0 to 2"),
        ("[model]\nstrict = 2", "model.strict in .* true or false"),
        ("[auth]\napi_keys = ['']", "auth.api_keys in .* list of non-empty strings"),
        ("[server", "isn't TOML"),
    ],
)
def test_what_is_refused_in_a_file(toml, text, message):
    with pytest.raises(ConfigError, match=message):
        load(toml(text), {}, {})


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"NINFER_PROXY_PROT": "1"},
            "Unknown variable NINFER_PROXY_PROT. Did you mean NINFER_PROXY_PORT?",
        ),
        ({"NINFER_PROXY_PORT": "x"}, "server.port in the environment must be .* not 'x'"),
        ({"NINFER_PROXY_CONFIG": "/nowhere.toml"}, "/nowhere.toml can't be read: No such file"),
        (
            {"NINFER_PROXY_SLOTS_RECENT_S": "inf"},
            "slots.recent_s in the environment must be a number",
        ),
    ],
)
def test_what_is_refused_in_the_environment(env, message):
    with pytest.raises(ConfigError, match=message):
        load(None, env, {})


def test_flags_are_checked_too():
    with pytest.raises(ConfigError, match=r"server.port in a flag must be"):
        load(None, {}, {"server.port": -1})


def test_data_goes_where_desktop_systems_keep_it(monkeypatch, tmp_path):
    assert default_data_dir({"XDG_DATA_HOME": "/data"}) == Path("/data/ninfer-proxy")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_data_dir({}) == tmp_path / ".local/share/ninfer-proxy"
    config = load(None, {"NINFER_PROXY_DATA_DIR": "~/mine"}, {})
    assert config.data_dir == tmp_path / "mine"


def test_every_key_is_documented_as_it_is():
    documented = {}
    section = ""
    for line in (CONFIG / "README.md").read_text().splitlines():
        if heading := re.fullmatch(r"### \[(\w+)\]", line):
            section = heading[1]
        row = re.fullmatch(
            r"\| `(\w+)` \| `(NINFER_PROXY_\w+)` \| (?:`(.+)`|unset) \| (.+) \|", line
        )
        if row:
            documented[f"{section}.{row[1]}"] = (row[2], row[3], row[4])
    assert documented.keys() == {setting.name for setting in settings()}
    for setting in settings():
        env, default, doc = documented[setting.name]
        assert (env, doc) == (setting.env, setting.doc)
        if default == "[]":
            assert setting.default == ()
        else:
            written = None if default is None else setting.parse(default.strip('"'))
            assert written == setting.default


def test_environment_names_are_distinct():
    assert len({setting.env for setting in settings()}) == len(settings())


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*.toml")), ids=lambda path: path.name)
def test_shipped_files_load(path):
    assert isinstance(load(path, {}, {}), Config)
    assert path.name in (CONFIG / "README.md").read_text()
