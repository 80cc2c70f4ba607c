"""From a file to plain data with line numbers, whatever the format: JSON with comments, TOML or YAML.

The format follows the file's extension, and its content if the extension says nothing. YAML and TOML libraries are
imported only when such a file is read. What comes out is always dicts with string keys, lists and scalars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, NoReturn, cast

from muxway.config.jsonc import MAX_DEPTH, Duplicate, JsoncError, parse_jsonc
from muxway.errors import ConfigError, ConfigErrorCode, Problem
from muxway.log import printable

if TYPE_CHECKING:
    import yaml

    from muxway.config.report import Path

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest file read. Client state files hold a few megabytes beside the servers; `/dev/zero` has no end."""
MAX_TOML_BYTES = 4 * 1024 * 1024
MAX_YAML_BYTES = 1024 * 1024
"""Largest files of these formats, whose libraries take seconds for each megabyte. No client keeps its state in one."""
MAX_KEY_PARTS = 100
"""Most parts of a dotted key in TOML; the time and memory that `tomllib` needs grow with their square."""
MAX_ANCHORS = 1000
"""Most anchors in a YAML file."""
MAX_YAML_NODES = 200_000
"""Most values a YAML file may unfold to: aliases of aliases grow exponentially."""

MINIMAL = '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'
"""The shortest useful file, for error messages."""

_EXTENSIONS = {".json": "JSON", ".jsonc": "JSON", ".json5": "JSON", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}
_LOOKS_TOML = re.compile(r"(?:\s|#[^\n]*\n)*(?:\[\[?[\w.\"' -]+\]|[\w.\"'-]+[ \t]*=)")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data, and where in the file it stands."""

    value: object
    source: str | None = None
    positions: dict[Path, tuple[int, int]] = field(default_factory=dict["Path", tuple[int, int]])
    duplicates: tuple[Duplicate, ...] = ()

    def line(self, path: Path) -> int | None:
        """Line of the value at `path`, or of the innermost thing around it whose place is known."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.positions:
                return self.positions[path[:end]][0]
        return None


def read_document(path: str | FilePath) -> Document:
    """Read and parse one file.

    Raises:
        ConfigError: `file_not_found` if it cannot be read, `invalid_json` if it is no JSON, TOML or YAML.
    """
    file = FilePath(path)
    source = printable(str(path))
    text = _decode(_read(file, source), source)
    return parse_document(text, format_of(file, text), source)


def format_of(file: FilePath, text: str) -> str:
    """`JSON`, `TOML` or `YAML`: by the name of the file, else by its text."""
    return _EXTENSIONS.get(file.suffix.lower()) or _guess(text)


def parse_document(text: str, kind: str, source: str) -> Document:
    """Parse text of a format that is known.

    Raises:
        ConfigError: `invalid_json` if it is not of that format.
    """
    largest = {"TOML": MAX_TOML_BYTES, "YAML": MAX_YAML_BYTES}.get(kind, MAX_FILE_BYTES)
    if len(text) > largest:
        raise _problem("invalid_json", f"{source} is larger than {largest >> 20} MiB: is it the right file?")
    try:
        match kind:
            case "TOML":
                return _toml(text, source)
            case "YAML":
                return _yaml(text, source)
            case _:
                parsed = parse_jsonc(text)
                return Document(parsed.value, source, parsed.positions, parsed.duplicates)
    except JsoncError as error:
        _refuse(source, kind, error.message, error.line, error.column)
    except RecursionError:
        _refuse(source, kind, "nested too deep")


def _read(file: FilePath, source: str) -> bytes:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _problem(
            "file_not_found", f"Config file not found: {source}. Check the path, or create it with: {MINIMAL}"
        ) from None
    except IsADirectoryError:
        raise _problem("file_not_found", f"{source} is a folder, not a config file. Name the file in it.") from None
    except PermissionError:
        raise _problem("file_not_found", f"{source} may not be read by this user. Check its permissions.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _problem("file_not_found", f"{source} cannot be read: {reason}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise _problem("invalid_json", f"{source} is larger than {MAX_FILE_BYTES >> 20} MiB: is it the right file?")
    return data


def _decode(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        kind = "UTF-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else f"not UTF-8 (line {line})"
        raise _problem("invalid_json", f"{source} is {kind}. Save it as UTF-8.", line) from None
    if not text.strip():
        raise _problem("invalid_json", f"{source} is empty. A minimal file: {MINIMAL}")
    return text


def _guess(text: str) -> str:
    """The format by content. JSON is tried for whatever starts like it, as its errors are the clearest."""
    if text.lstrip()[:1] in {"{", "/"}:
        return "JSON"
    return "TOML" if _LOOKS_TOML.match(text) else "YAML"


def _problem(code: ConfigErrorCode, message: str, line: int | None = None) -> ConfigError:
    return ConfigError(code, message, (Problem(path="$", message=message, code=code, line=line),))


def _refuse(source: str, kind: str, message: str, line: int | None = None, column: int | None = None) -> NoReturn:
    """Raise for a file that does not parse. The text around the place is never shown: it may be a secret."""
    place = source if line is None else f"{source}: line {line}, column {column}"
    raise _problem("invalid_json", printable(f"{place}: not valid {kind}: {message}."), line) from None


# --- TOML ---------------------------------------------------------------------------------------------------------

_TOML_HEADER = re.compile(r"\s*+(\[\[?)([^\[\]]++)\]")
_TOML_ASSIGNMENT = re.compile(r"\s*((?:[\w.-]|\"[^\"]*\"|'[^']*')+)\s*=")
_TOML_PART = r"(?:[\w-]++|\"[^\"]*+\"|'[^']*+')"
_TOML_LONG_KEY = re.compile(rf"(?<![\w-]){_TOML_PART}(?:\s*+\.\s*+{_TOML_PART}){{{MAX_KEY_PARTS}}}")
_TOML_KEY = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")


def _toml(text: str, source: str) -> Document:
    import tomllib

    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= MAX_KEY_PARTS and (long := _TOML_LONG_KEY.search(line)) is not None:
            _refuse(source, "TOML", f"a key has more than {MAX_KEY_PARTS} parts", number, long.start() + 1)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at ")
        numbers = [int(number) for number in re.findall(r"\d+", place)]
        if len(numbers) != 2:  # "at end of document"
            last = text.splitlines()[-1]
            numbers = [len(text.splitlines()), len(last) + 1]
        _refuse(source, "TOML", message or str(error), *numbers)
    except ValueError:  # an integer of thousands of digits
        _refuse(source, "TOML", "a number has too many digits")
    return Document(value, source, _toml_positions(text))


def _toml_positions(text: str) -> dict[Path, tuple[int, int]]:
    """Places of tables and keys, found line by line because `tomllib` tells none.

    Good enough for messages: a line inside a multi-line string may be taken for a key, at worst naming a near line.
    """
    positions: dict[Path, tuple[int, int]] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        header = _TOML_HEADER.match(line)
        if header is not None:
            table = ()
            for key in _toml_keys(header[2]):
                table = (*table, key)
                if table in counts:  # inside an array of tables a header means its latest item
                    table = (*table, counts[table] - 1)
            if header[1] == "[[":
                table = table[:-1] if table and isinstance(table[-1], int) else table
                counts[table] = counts.get(table, 0) + 1
                table = (*table, counts[table] - 1)
            positions.setdefault(table, (number, header.start(1) + 1))
        else:
            assignment = _TOML_ASSIGNMENT.match(line)
            if assignment is not None:
                positions.setdefault((*table, *_toml_keys(assignment[1])), (number, assignment.start(1) + 1))
    return positions


def _toml_keys(text: str) -> list[str]:
    return [match[1] or match[2] or match[3] or "" for match in _TOML_KEY.finditer(text)]


# --- YAML ---------------------------------------------------------------------------------------------------------

# Dates and bytes too: in a configuration they are the text that stands there.
_YAML_TEXT_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "timestamp", "binary", "value", "merge"))
_YAML_ANCHOR = re.compile(r"(?:^|(?<=[\s\[{,]))&\S", re.MULTILINE)
_YAML_QUOTED = re.compile(r"'(?![<\\])[^']{2,}'")


def _yaml(text: str, source: str) -> Document:
    import yaml

    if sum(1 for _ in islice(_YAML_ANCHOR.finditer(text), MAX_ANCHORS + 1)) > MAX_ANCHORS:
        _refuse(source, "YAML", f"it has more than {MAX_ANCHORS:,} anchors (`&name`)")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        builder = _YamlBuilder(loader, source)
        value = builder.value(node, ()) if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # PyYAML quotes names of tags and aliases, which may be an unquoted password (`*hunter2`).
        message = _YAML_QUOTED.sub("'…'", error.problem or error.context or "it cannot be understood")
        if "\\t" in message:
            message += "; indent with blanks, not tabs"
        _refuse(source, "YAML", message, mark.line + 1 if mark else None, mark.column + 1 if mark else None)
    except yaml.YAMLError:  # the only one without a mark is ReaderError
        _refuse(source, "YAML", "it has a character YAML forbids")
    return Document(value, source, builder.positions, tuple(builder.duplicates))


class _YamlBuilder:
    """Turns YAML nodes into plain data, keeping places, noting duplicates and bounding what aliases unfold to."""

    def __init__(self, loader: yaml.SafeLoader, source: str) -> None:
        self.loader = loader
        self.source = source
        self.positions: dict[Path, tuple[int, int]] = {}
        self.duplicates: list[Duplicate] = []
        self.count = 0

    def value(self, node: yaml.Node, path: Path) -> object:
        import yaml

        self.count += 1
        if len(path) > MAX_DEPTH or self.count > MAX_YAML_NODES:
            mark = node.start_mark
            _refuse(self.source, "YAML", "nested too deep or aliased too often", mark.line + 1, mark.column + 1)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.item(child, (*path, index)) for index, child in enumerate(cast("list[yaml.Node]", node.value))]
        return self.scalar(cast("yaml.ScalarNode", node))

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        import yaml

        merged: dict[str, object] = {}
        own: dict[str, object] = {}
        for key, child in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            line, column = key.start_mark.line + 1, key.start_mark.column + 1
            if not isinstance(key, yaml.ScalarNode):
                _refuse(self.source, "YAML", "a key must be plain text", line, column)
            if key.tag == "tag:yaml.org,2002:merge":
                bases = child.value if isinstance(child, yaml.SequenceNode) else [child]
                for base in cast("list[yaml.Node]", bases):
                    if not isinstance(base, yaml.MappingNode):
                        _refuse(self.source, "YAML", "`<<` takes a mapping or a list of them", line, column)
                    merged = {**cast("dict[str, object]", self.value(base, path)), **merged}
                continue
            # The key as written: `on`, `1` and `null` are names here, whatever YAML makes of them.
            name = key.value
            place = (*path, name)
            if name in own:
                self.duplicates.append(Duplicate(place, self.positions[place][0], line))
            self.positions[place] = (line, column)
            own[name] = self.value(child, place)
        return {**merged, **own}

    def item(self, node: yaml.Node, path: Path) -> object:
        self.positions[path] = (node.start_mark.line + 1, node.start_mark.column + 1)
        return self.value(node, path)

    def scalar(self, node: yaml.ScalarNode) -> object:
        if node.tag in _YAML_TEXT_TAGS:
            return node.value
        try:
            value: object = cast("Any", self.loader).construct_object(node)
        except (ValueError, LookupError):  # what an explicit tag (`!!int x`) or thousands of digits end in
            mark = node.start_mark
            _refuse(self.source, "YAML", "this is not a number or boolean", mark.line + 1, mark.column + 1)
        # Base-60 numbers (`22:22` is 1342 in YAML 1.1) were meant as the text that stands there.
        return node.value if isinstance(value, int) and ":" in node.value else value
