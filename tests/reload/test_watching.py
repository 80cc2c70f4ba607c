"""When the configuration is read again, and what is said about it. Behind it is no gateway, but a list."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from muxway.config import Config, load_config
from muxway.config.plan import Plan, plan
from muxway.control.watching import Reloader, WatchedConfig
from muxway.errors import ConfigError
from tests.pace import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

EVERY = 0.05
"""Seconds between two looks; a hundredth of the patience, so that a test does not hang on one of them."""


class Taken:
    """What stands in for a gateway: keeps the configurations it is given."""

    def __init__(self, config: Config) -> None:
        self.all = [config]
        self.more = asyncio.Event()

    @property
    def names(self) -> list[str]:
        """The servers of the last one."""
        return [*self.all[-1].servers]

    async def apply(self, config: Config) -> Plan:
        changes = plan(self.all[-1], config)
        self.all.append(config)
        self.more.set()
        return changes

    async def next(self) -> list[str]:
        """The servers of the next one."""
        await asyncio.wait_for(self.more.wait(), PATIENCE)
        self.more.clear()
        return self.names


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The lines of the log."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger("muxway.config"), Keep()
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(before)


def servers(*names: str, **entry: Any) -> str:
    return json.dumps({"mcpServers": {name: {"command": "x", **entry} for name in names}})


@contextlib.asynccontextmanager
async def watched(file: Path) -> AsyncIterator[Taken]:
    """A file that is watched."""
    source = WatchedConfig(file, lambda: load_config(file))
    taken = Taken(source.read())
    reloader = Reloader(source, taken.all[0], taken.apply)
    reloader.watch(EVERY)
    try:
        yield taken
    finally:
        await reloader.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def replaced(file: Path, text: str) -> None:
    """Write a file as careful programs do: a new one, put in the place of the old."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.rename(file)


def in_two_steps(file: Path, text: str) -> None:
    """Write a file as careless programs do: empty it, then fill it."""
    with file.open("w") as stream:
        stream.write(text[:10])
        stream.flush()
        stream.write(text[10:])


def by_linking(file: Path, text: str) -> None:
    """Change a file as Kubernetes does: the link on the way to it is turned to another folder, all at once."""
    data = file.parent / "..data"
    version = file.parent / f"..{len(list(file.parent.iterdir()))}"
    version.mkdir()
    (version / file.name).write_text(text)
    turned = file.parent / "..data_tmp"
    turned.symlink_to(version.name)
    turned.rename(data)
    if not file.is_symlink():
        file.unlink(missing_ok=True)
        file.symlink_to(f"..data/{file.name}")


@pytest.mark.parametrize("change", [replaced, in_two_steps, by_linking])
async def test_a_change_is_seen_however_it_is_made(change: Callable[[Path, str], None], tmp_path: Path) -> None:
    """docs/reload.md#reloading-the-config: on file change."""
    file = tmp_path / "servers.json"
    change(file, servers("a"))
    async with watched(file) as taken:
        change(file, servers("a", "b"))
        assert await taken.next() == ["a", "b"]
        change(file, servers("b"))
        assert await taken.next() == ["b"]


async def test_a_change_right_after_it_was_read_is_seen(tmp_path: Path) -> None:
    """Ours: what changes while muxway starts must not wait for the next change."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    source = WatchedConfig(file, lambda: load_config(file))
    taken = Taken(source.read())
    file.write_text(servers("b", "c"))
    reloader = Reloader(source, taken.all[0], taken.apply)
    reloader.watch(EVERY)
    assert await taken.next() == ["b", "c"]
    await reloader.stop()


async def test_env_files_are_watched_too(tmp_path: Path) -> None:
    """Ours: a secret is mostly rotated there."""
    file, variables = tmp_path / "servers.json", tmp_path / "secrets.env"
    variables.write_text("TOKEN=one\n")
    file.write_text(servers("a"))
    async with watched(file) as taken:
        file.write_text(servers("a", envFile="secrets.env"))
        await taken.next()
        assert taken.all[-1].servers["a"].env == {"TOKEN": "one"}
        variables.write_text("TOKEN=number two\n")
        await taken.next()
        assert taken.all[-1].servers["a"].env == {"TOKEN": "number two"}


async def test_an_invalid_file_changes_nothing_and_every_problem_is_told_once(tmp_path: Path, told: list[str]) -> None:
    """docs/reload.md#a-file-with-mistakes: an invalid file changes nothing and says every problem."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file) as taken:
        file.write_text(json.dumps({"mcpServers": {"a": {"command": "x", "args": 5}, "b": {}, "c": {"url": 7}}}))
        await until(lambda: any("not reloaded" in line for line in told))
        await asyncio.sleep(EVERY * 4)
        problems = [line for line in told if line.startswith("config problem")]
        assert [place for place in ("mcpServers.a.args", "mcpServers.b", "mcpServers.c.url") for line in problems
                if place in line] == ["mcpServers.a.args", "mcpServers.b", "mcpServers.c.url"]  # fmt: skip
        assert len(problems) == 3
        assert sum("not reloaded" in line for line in told) == 1
        assert taken.names == ["a"]
        file.write_text(servers("a", "fixed"))
        assert await taken.next() == ["a", "fixed"]


async def test_a_file_that_is_gone_changes_nothing_until_it_is_back(tmp_path: Path, told: list[str]) -> None:
    """Ours: whoever moves the file away does not mean to stop everything."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file) as taken:
        file.rename(tmp_path / "elsewhere")
        await until(lambda: "config not reloaded, what ran before goes on problems=1" in told)
        assert taken.names == ["a"]
        (tmp_path / "elsewhere").rename(file)
        assert await taken.next() == ["a"]
        await until(lambda: told[-1] == 'config reloaded changes="nothing changes"')
        assert [line for line in told if "config problem" in line and "Config file not found" in line] == told[:1]


async def test_a_file_whose_rights_change_is_read_again(tmp_path: Path) -> None:
    """Ours: nothing else changes when somebody allows muxway to read it."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file) as taken:
        file.chmod(0o400)
        assert await taken.next() == ["a"]


async def test_many_changes_in_a_row_end_with_the_last(tmp_path: Path) -> None:
    """Ours: rapid successive writes. Some of them are skipped, the last never."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file) as taken:
        for number in range(60):
            file.write_text(servers("a", f"s{number}"))
            await asyncio.sleep(0.01)
        await until(lambda: taken.names == ["a", "s59"])
        assert len(taken.all) < 30


async def test_a_file_that_is_written_all_the_time_is_read_all_the_same(tmp_path: Path) -> None:
    """Ours: waiting for it to settle must not mean waiting for ever."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(0.02):
            number += 1
            replaced(file, servers("a", f"s{number}"))

    async with watched(file) as taken:
        writing = asyncio.create_task(asyncio.to_thread(write))
        try:
            assert (await taken.next())[1].startswith("s")
        finally:
            ended.set()
            await writing


async def test_two_who_ask_at_once_share_one_reload_and_a_third_gets_its_own(tmp_path: Path) -> None:
    """Ours: reloads follow each other, and whoever asks gets what was in the file after they asked."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    source = WatchedConfig(file, lambda: load_config(file))
    taken = Taken(source.read())
    going, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(config: Config) -> Plan:
        going.set()
        await asyncio.wait_for(go_on.wait(), PATIENCE)
        return await taken.apply(config)

    reloader = Reloader(source, taken.all[0], slowly)
    file.write_text(servers("first"))
    early = [asyncio.create_task(reloader.reload()) for _ in range(2)]
    await asyncio.wait_for(going.wait(), PATIENCE)
    file.write_text(servers("second"))
    late = [asyncio.create_task(reloader.reload()) for _ in range(3)]
    await asyncio.sleep(0)
    late[0].cancel()
    go_on.set()
    assert [(await task).start for task in early] == [("first",)] * 2
    assert [(await task).start for task in late[1:]] == [("second",)] * 2
    assert [[*config.servers] for config in taken.all] == [["a"], ["first"], ["second"]]
    await reloader.stop()


async def test_whoever_asks_is_told_what_is_wrong(tmp_path: Path, told: list[str]) -> None:
    """Ours: `muxway reload` shows it; the log has it too."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    source = WatchedConfig(file, lambda: load_config(file))
    taken = Taken(source.read())
    reloader = Reloader(source, taken.all[0], taken.apply)
    file.write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        await reloader.reload()
    assert len(taken.all) == 1
    assert len(told) >= 1
    await reloader.stop()


async def test_a_reload_that_breaks_does_not_end_the_watching(tmp_path: Path, told: list[str]) -> None:
    """Ours: a mistake of ours in one reload must not make all later changes unheard."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    source = WatchedConfig(file, lambda: load_config(file))
    taken = Taken(source.read())

    async def breaking(config: Config) -> Plan:
        if "bad" in config.servers:
            raise RuntimeError("out of luck")
        return await taken.apply(config)

    reloader = Reloader(source, taken.all[0], breaking)
    reloader.watch(EVERY)
    file.write_text(servers("bad"))
    await until(lambda: 'reload failed why="RuntimeError: out of luck"' in told)
    file.write_text(servers("good"))
    assert await taken.next() == ["good"]
    await reloader.stop()


async def test_warnings_are_told_when_they_are_new(tmp_path: Path, told: list[str]) -> None:
    """Ours: as at the start, but not again and again."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file) as taken:
        file.write_text(servers("a", argz=1))
        await taken.next()
        file.write_text(servers("a", "b", argz=1))
        await taken.next()
        await until(lambda: sum("config reloaded" in line for line in told) == 2)
        assert [sum(f"mcpServers.{name}.argz" in line for line in told) for name in "ab"] == [1, 1]


async def test_what_a_bad_config_should_look_like_can_be_copied_from_the_log(tmp_path: Path, told: list[str]) -> None:
    """Ours: a problem is told in its own words; quotes of the log would spoil the JSON that it suggests."""
    file = tmp_path / "servers.json"
    file.write_text(servers("a"))
    async with watched(file):
        replaced(file, "[]")
        await until(lambda: any("not reloaded" in line for line in told))
    [problem] = [line for line in told if "A minimal file: " in line]
    assert "mcpServers" in json.loads(problem.partition("A minimal file: ")[2])
