"""Secrets by reference: set once, never shown, and in no file but the sealed one."""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from muxway.cli import cli
from muxway.config import load_config, parse_config
from muxway.config.plan import plan
from muxway.control.watching import WatchedConfig
from muxway.errors import ConfigError
from muxway.net.secret_store import SecretStore, secret_folder
from tests.control.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

CANARY = "canary-5f3a-hunter2"


def told(*words: str, given: str | bytes | None = None) -> Result:
    return CliRunner(catch_exceptions=False).invoke(cli, [*words], input=given, prog_name="muxway")


def one(entry: dict[str, Any], **rest: Any) -> Any:
    return parse_config({"mcpServers": {"s": {"command": "x", **entry}}, **rest}).servers["s"]


def problems(entry: dict[str, Any], **rest: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        one(entry, **rest)
    return caught.value


def test_a_secret_is_set_from_stdin_listed_by_name_and_forgotten(home: Path) -> None:
    """docs/setup.md#secrets: its value is in no output, and in no file but the sealed one."""
    file = home / "muxway.json"
    file.write_text('{"mcpServers": {"hub": {"command": "x", "env": {"T": "${secret:hub}", "U": "${secret:none}"}}}}')
    done = told("secret", "set", "hub", given=f"{CANARY}\n")
    assert (done.exit_code, done.output) == (0, "✓ ok  hub is set: ${secret:hub}\n")
    assert "is changed" in told("secret", "set", "hub", given=CANARY).output
    shown = told("secret", "list")
    assert [line.split()[0] for line in shown.output.splitlines()] == ["NAME", "hub", "none"]
    assert "not set" in shown.output
    rows = json.loads(told("secret", "list", "--json").output)
    assert [(row["name"], row["servers"]) for row in rows] == [("hub", ["hub"]), ("none", ["hub"])]
    assert CANARY not in shown.output + told("config", "explain").output
    assert not any(CANARY.encode() in path.read_bytes() for path in home.rglob("*") if path.is_file())
    gone = told("secret", "rm", "hub", "other")
    assert gone.exit_code == 1
    assert "It is used by hub." in gone.output
    assert "not set: other" in gone.stderr
    assert SecretStore().all() == []


@pytest.mark.parametrize(("name", "given"), [
    ("hub", ""), ("hub", "\n"), ("hub", "x" * 70_000), ("a}b", "x"), ("", "x"), ("a\nb", "x"), ("x" * 201, "x"),
])  # fmt: skip
def test_what_is_no_secret_is_refused(name: str, given: str) -> None:
    """docs/setup.md#secrets: nothing, too much, and names that no reference can have."""
    assert told("secret", "set", name, given=given).exit_code == 2
    assert SecretStore().all() == []


def test_one_that_is_damaged_costs_no_other(home: Path) -> None:
    """docs/setup.md#secrets: the others can be listed and set, and it can be set again."""
    told("secret", "set", "hub", given=CANARY)
    (file,) = (home / ".local/share/muxway/secrets").glob("*.sealed")
    told("secret", "set", "other", given=CANARY)
    file.write_bytes(b"damaged")
    shown = told("secret", "list")
    assert (shown.exit_code, "other" in shown.stdout, "damaged" in shown.stderr) == (1, True, True)
    assert told("secret", "set", "third", given=CANARY).exit_code == 0
    assert "hub is changed" in told("secret", "set", "hub", given=CANARY).output
    assert [secret.name for secret in SecretStore().all()] == ["hub", "other", "third"]


def test_a_name_that_is_no_text_is_that_of_no_secret() -> None:
    """Ours: a command line may have any bytes."""
    gone = told("secret", "rm", os.fsdecode(b"\xff"))
    assert (gone.exit_code, "not set" in gone.stderr) == (1, True)


def test_bytes_that_are_no_text_are_refused() -> None:
    """docs/setup.md#secrets: a secret is text."""
    assert told("secret", "set", "hub", given=b"\xff\xfe").exit_code == 1
    assert SecretStore().all() == []


def test_secrets_and_files_are_put_in_everywhere_and_masked(home: Path) -> None:
    """docs/configuration.md#variables: in each string of the config, in one pass."""
    SecretStore().write("hub/token", "pa$$ ${HOME} word")
    (home / "token").write_text("from-a-file\r\n\n")
    env = {"A": "x-${secret:hub/token}", "B": "${file:token}", "C": "{file:~/token}", "D": "$${secret:hub/token}"}
    server = one({"env": env})
    assert server.env == {
        "A": "x-pa$$ ${HOME} word",
        "B": "from-a-file\r\n",
        "C": "from-a-file\r\n",
        "D": "${secret:hub/token}",
    }
    assert {"pa$$ ${HOME} word", "from-a-file\r\n"} <= server.secrets
    config = parse_config({"mcpServers": {"s": {"command": "x"}}, "gateway": {"token": "${secret:hub/token}"}})
    assert config.gateway.token == "pa$$ ${HOME} word"
    assert config.files == (str(secret_folder()),)


def test_every_missing_one_is_named_with_what_to_do(home: Path) -> None:
    """docs/configuration.md#variables: all at once, each with its place."""
    os.mkfifo(home / "pipe")
    (home / "large").write_text("x" * 70_000)
    (home / "bytes").write_bytes(b"\xff\xfe")
    (home / "closed").write_text("x")
    env = {
        "A": "${secret:a b}",
        "B": "${input:key}",
        "C": "${file:gone}",
        "D": "${file:pipe}",
        "E": "${file:large}",
        "F": "${file:bytes}",
        "G": "${file:.}",
    }
    error = problems({"env": env}, inputs=[{"id": "key", "type": "promptString", "description": "The key"}, 3])
    said = {problem.path.rpartition(".")[2]: problem.message for problem in error.details}
    assert said["A"] == "Missing secret: a b. Set it: `muxway secret set 'a b'`"
    assert said["B"] == "Missing input: key (The key). Set it: `muxway secret set key`"
    assert "gone cannot be read: No such file" in said["C"]
    assert "no file that could be read" in said["D"]
    assert "65,536 bytes" in said["E"]
    assert "not UTF-8" in said["F"]
    assert "cannot be read: Is a directory" in said["G"]
    assert error.code == "missing_secret"
    assert {problem.code for problem in error.details} == {"missing_secret"}
    assert [warning.path for warning in error.warnings] == ["inputs.1"]


@pytest.mark.parametrize("reference", ["${secret:}", "${secret: a}", "${file: }", "${input:}"])
def test_a_reference_without_a_name_means_nothing(reference: str) -> None:
    """docs/configuration.md#variables: an error, as all that means nothing."""
    assert problems({"env": {"A": reference}}).code == "invalid_schema"


def test_a_server_that_lacks_a_secret_fails_alone_if_it_may() -> None:
    """docs/configuration.md#variables: as with variables; one that is off needs none."""
    assert "Missing secret: a" in one({"env": {"A": "${secret:a}"}, "optional": True}).unusable
    entries = {"off": {"command": "x", "env": {"A": "${secret:a}"}, "disabled": True}, "on": {"command": "x"}}
    assert parse_config({"mcpServers": entries}).servers["off"].enabled is False


def test_an_input_is_the_secret_of_its_name_or_its_default() -> None:
    """VS Code, MCP configuration reference: `inputs` with id, description, password and default."""
    inputs = [
        {"id": "region", "type": "promptString", "description": "Region", "default": "eu"},
        {"id": "key", "type": "promptString", "description": "Key", "password": True},
    ]
    SecretStore().write("key", CANARY)
    entry = {"env": {"R": "${input:region}", "K": "${input:key}"}}
    assert one(entry, inputs=inputs).env == {"R": "eu", "K": CANARY}
    SecretStore().write("region", "us")
    assert one(entry, inputs=inputs).env["R"] == "us"


def test_no_message_shows_a_secret_that_is_in_the_wrong_place() -> None:
    """docs/configuration.md#secrets: a problem names places, never values."""
    SecretStore().write("s", CANARY)
    entry = {"callTimeout": "${secret:s}", "cwd": "${secret:s}", "era": "${secret:s}", "args": ["${secret:s}"]}
    error = problems({**entry, "env": {"A": "${secret:gone}"}})
    assert CANARY not in str(error) + repr(error.details) + repr(error.warnings)
    warned = parse_config({"mcpServers": {"s": {"command": "x", "args": ["${secret:s}", "$${secret:s}"]}}})
    assert [(one.path, "other users" in one.message) for one in warned.warnings] == [("mcpServers.s.args.0", True)]


def test_a_changed_secret_replaces_the_servers_that_use_it_and_no_other(home: Path) -> None:
    """docs/reload.md: as a changed variable; the plan has the key, not the value."""
    SecretStore().write("s", CANARY)
    (home / "token").write_text("one")
    file = home / "muxway.json"
    file.write_text(json.dumps({"mcpServers": {
        "a": {"command": "x", "env": {"T": "${secret:s}"}},
        "b": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "${file:token}"}},
        "c": {"command": "x"},
    }}))  # fmt: skip
    source = WatchedConfig(file, lambda: load_config(file))
    before = source.read()
    assert source.look() == source.seen
    SecretStore().write("s", f"{CANARY}-2")
    assert source.look() != source.seen
    after = source.read()
    assert str(plan(before, after)) == "swap a (env.T)"
    (home / "token").write_text("two!")
    assert source.look() != source.seen
    assert str(plan(after, source.read())) == "swap b (headers.X-Key)"


def test_a_config_that_lacks_a_secret_is_read_again_when_that_is_set(home: Path) -> None:
    """docs/reload.md: `muxway secret set` is all there is to do."""
    file = home / "muxway.json"
    file.write_text('{"mcpServers": {"a": {"command": "x", "env": {"T": "${secret:s}"}}}}')
    source = WatchedConfig(file, lambda: load_config(file))
    with pytest.raises(ConfigError):
        source.read()
    assert source.look() == source.seen
    SecretStore().write("s", CANARY)
    assert source.look() != source.seen


def test_a_locked_keyring_is_told_for_each_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/setup.md#secrets: with the extra, the key is in the system's keyring."""
    kept: dict[tuple[str, str], str] = {}
    errors = SimpleNamespace(KeyringError=type("KeyringError", (Exception,), {}))

    def get(service: str, name: str) -> str | None:
        if kept.get(("", "")):
            raise errors.KeyringError("it is locked")
        return kept.get((service, name))

    ring = SimpleNamespace(set_password=lambda *given: kept.__setitem__(given[:2], given[2]), get_password=get)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    SecretStore().write("a", CANARY)
    SecretStore().write("b", CANARY)
    entry = {"env": {"A": "${secret:a}", "B": "${secret:b}", "C": "${file:/nowhere}"}}
    kept["", ""] = "locked"
    said = [problem.message for problem in problems(entry).details]
    assert [line.partition(" cannot")[0] for line in said] == ["The secret a", "The secret b", "/nowhere"]
    assert "keyring, which cannot be read: it is locked" in said[0]
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "install muxway with the extra" in str(problems(entry))


def test_import_and_setup_move_clear_secrets_into_the_store(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#secrets: wherever they stand in an entry; two values get two names."""
    folder = home / ".cursor"
    folder.mkdir()
    SecretStore().write("hub.HUB_TOKEN", "another-value")
    servers = {
        "hub": {"command": "x", "args": ["--api-key", "argument-7361", "-v"], "env": {"HUB_TOKEN": CANARY, "M": "1"}},
        "web": {"url": "https://example.com/mcp?api_key=query-88123", "headers": {"Authorization": "Bearer head-4711"}},
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert muxway("import", "--move-secrets", "--secret-store").exit_code == 2
    shown = muxway("import", "cursor", "--secret-store", "--dry-run")
    assert len(SecretStore().all()) == 1
    done = muxway("import", "cursor", "--secret-store")
    assert done.exit_code == 0, done.output
    file = home / ".config/muxway/muxway.json"
    for secret in (CANARY, "argument-7361", "query-88123", "head-4711"):
        assert secret not in done.output + shown.output + file.read_text()
    written = json.loads(file.read_text())["mcpServers"]
    assert written["hub"]["env"] == {"HUB_TOKEN": "${secret:hub.HUB_TOKEN-2}", "M": "1"}
    assert written["web"]["headers"] == {"Authorization": "${secret:web.Authorization}"}
    config = load_config(file)
    assert config.servers["hub"].args == ("--api-key", "argument-7361", "-v")
    assert config.servers["hub"].env["HUB_TOKEN"] == CANARY
    assert config.servers["web"].url == servers["web"]["url"]
    assert config.servers["web"].headers == servers["web"]["headers"]
    assert "nothing to import" in muxway("import", "cursor").output, "they are the same servers"
    gone = muxway("remove", "web")
    assert "muxway secret rm" in gone.output
    assert "web.Authorization" in gone.output


def test_what_a_client_calls_a_secret_is_text(home: Path, muxway: Callable[..., Result]) -> None:
    """docs/setup.md#what-is-imported: no client has muxway's secrets, and none of its servers gets one by import."""
    (home / ".cursor").mkdir()
    SecretStore().write("hub", CANARY)
    text = {"A": "x ${secret:hub}", "B": "$$${secret:hub}", "C": "${env:HOME}"}
    entry = {"command": "x", "args": ["${secret:other}"], "env": text}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"evil": entry}}))
    done = muxway("import", "cursor")
    assert done.exit_code == 0, done.output
    assert "evil has ${secret:hub}, which is mere text in cursor" in done.output
    assert "evil has ${secret:other}" in done.output
    assert "needs a secret" not in done.output
    server = load_config(home / ".config/muxway/muxway.json").servers["evil"]
    assert server.args == ("${secret:other}",)
    assert server.env == {"A": "x ${secret:hub}", "B": "$${secret:hub}", "C": str(home)}
    assert "nothing to import" in muxway("import", "cursor").output
    # A file that is named may be a config of muxway's: its references are kept, and told.
    file = home / "other.json"
    file.write_text(json.dumps({"mcpServers": {"mine": {"command": "y", "env": {"A": "${secret:hub}"}}}}))
    done = muxway("import", file)
    assert "mine gets the secret hub, which is set already" in done.output
    assert load_config(home / ".config/muxway/muxway.json").servers["mine"].env == {"A": CANARY}


def test_add_keeps_secrets_in_the_store_if_asked_to(
    home: Path, muxway: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/setup.md#one-server-more: the server gets it, and the config a reference."""
    monkeypatch.setenv("HUB_TOKEN", CANARY)
    program = home / "server.py"
    program.write_text(
        f"import os, runpy\nassert os.environ['HUB_TOKEN'] == {CANARY!r}\n"
        "runpy.run_module('muxway.demo.notes', run_name='__main__')\n"
    )
    words = ["--secret-store", "--name", "hub", "--env", "HUB_TOKEN", "--", sys.executable, program]
    done = muxway("add", *words)
    assert done.exit_code == 0, done.output + done.stderr
    file = home / ".config/muxway/muxway.json"
    assert json.loads(file.read_text())["mcpServers"]["hub"]["env"] == {"HUB_TOKEN": "${secret:hub.HUB_TOKEN}"}
    assert CANARY not in done.output
    assert load_config(file).servers["hub"].env == {"HUB_TOKEN": CANARY}


def test_on_a_terminal_an_input_is_asked_for_once(home: Path) -> None:
    """docs/setup.md#secrets: what is typed for a password is not shown, and never asked for again."""
    file = home / "muxway.json"
    file.write_text(json.dumps({
        "inputs": [
            {"id": "key", "type": "promptString", "description": "API key", "password": True},
            {"id": "region", "type": "pickString", "description": "Region", "options": ["eu", "us"], "default": "eu"},
        ],
        "servers": {
            "a": {"command": "true", "env": {"K": "${input:key}", "R": "${input:region}"}},
            "off": {"command": "true", "env": {"X": "${input:never}"}, "disabled": True},
        },
    }))  # fmt: skip
    words = [sys.executable, "-m", "muxway", "check", "muxway.json"]
    with Terminal(words, columns=200, rows=40) as terminal:
        terminal.until(lambda said: "API key:" in said)
        terminal.type(f"{CANARY}\n")
        terminal.until(lambda said: "Region" in said)
        terminal.type("us\n")
        assert terminal.end() == 0
        assert CANARY not in terminal.said
    assert load_config(file).servers["a"].env == {"K": CANARY, "R": "us"}
    with Terminal(words, columns=200, rows=40) as terminal:
        assert terminal.end() == 0
        assert "API key" not in terminal.said


def test_on_a_terminal_a_secret_is_typed_unseen(home: Path) -> None:
    """docs/setup.md#secrets: not echoed, and no argument."""
    with Terminal([sys.executable, "-m", "muxway", "secret", "set", "hub"], columns=200, rows=40) as terminal:
        terminal.until(lambda said: "hub:" in said)
        terminal.type(f"{CANARY}\n")
        assert terminal.end() == 0
        assert CANARY not in terminal.said
    assert SecretStore().read("hub") == CANARY
