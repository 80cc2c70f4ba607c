"""Programs of the command line as tools: which of their sub-commands, and with which arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from muxway.config import kinds
from muxway.config.fields import Section, kind, settings
from muxway.config.report import as_list, as_mapping, found

if TYPE_CHECKING:
    from muxway.config.report import Path
    from muxway.config.values import Reader

ArgumentType = Literal["string", "integer", "number", "boolean", "array"]
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FLAG: Final = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9-]*=?")


@kind("an option such as --max-count, -n or --format=", kinds.FILLED)
def flag_name(reader: Reader, place: Path, raw: object) -> str | None:
    """How an option is spelled on the command line."""
    written = reader.named(place, raw)
    if written is not None and _FLAG.fullmatch(written) is None:
        reader.report.error(
            place, "must be an option such as `--max-count`, `-n` or, with the value behind =, `--format=`"
        )
        return None
    return written


@settings
class ProgramArgument:
    """One argument of a tool, and how it is written on the command line."""

    type: ArgumentType = kinds.choice(*get_args(ArgumentType))(
        "Type of the argument. A `boolean` is an option that is there or not; an `array` of texts repeats its "
        "option, or is several words.",
        default="string",
        example="integer",
    )
    description: str | None = kinds.text(
        "Description of the argument.", default=None, example="How many commits to show."
    )
    flag: str | None = flag_name(
        "Option that the value follows; with `=` at its end, both are one word. Without it the value is a word of "
        "its own, in the order of the arguments, after all options; such a word may not begin with `-`.",
        default=None,
        example="--max-count=",
    )
    required: bool = kinds.flag("Whether it must be passed.", default=False, example=True)
    choices: tuple[str, ...] = kinds.strings("The only allowed texts.", default=(), example=["short", "full"])
    minimum: int | None = kinds.integer_from(-(10**15))("Smallest number.", default=None, example=1)
    maximum: int | None = kinds.integer_from(-(10**15))("Largest number.", default=None, example=100)


ARGUMENT: Final = Section("cli.*.commands.*.arguments.*", ProgramArgument)


@kind("object: name → argument", {"type": "object", "additionalProperties": {"$ref": "#/$defs/programArgument"}})
def arguments(reader: Reader, place: Path, raw: object) -> tuple[tuple[str, ProgramArgument], ...] | None:
    """Arguments by name, in their order."""
    entries = reader.entries(place, raw)
    if entries is None:
        return None
    made: list[tuple[str, ProgramArgument]] = []
    for name, entry in entries.items():
        if _TOOL_NAME.fullmatch(name) is None:
            reader.report.error((*place, name), "the name of an argument may have letters, digits, `_`, `.` and `-`")
            continue
        argument = ProgramArgument(**reader.section(ARGUMENT, (*place, name), entry))
        if argument.type == "boolean" and argument.flag is None:
            reader.report.error((*place, name), "a `boolean` needs the `flag` that is there if it is true")
        elif argument.type == "boolean" and (argument.flag or "").endswith("="):
            reader.report.error((*place, name, "flag"), "the flag of a `boolean` has no value, so no `=` at its end")
        made.append((name, argument))
    return tuple(made)


@settings
class ProgramCommand:
    """One tool: a sub-command of the program, with what of it may be chosen."""

    args: tuple[str, ...] = kinds.strings(
        "Words that always follow the program: the sub-command, and options that callers cannot choose.",
        example=["log", "--oneline"],
    )
    name: str | None = kinds.name(
        "Name of the tool. By default the words of `args` that are not options and have no variables.",
        default=None,
        example="log",
    )
    description: str | None = kinds.text(
        "Description of the tool for the model.", default=None, example="Show the newest commits."
    )
    arguments: tuple[tuple[str, ProgramArgument], ...] = arguments(
        "Arguments that the caller may pass.",
        default=(),
        example={"count": {"type": "integer", "flag": "--max-count=", "maximum": 100}},
    )
    stdin: str | None = kinds.name(
        "Name of a text argument that is passed to the program on stdin.", default=None, example="patch"
    )
    read_only: bool = kinds.flag(
        "Whether it changes nothing (`readOnlyHint`); clients may then run it without asking.",
        default=False,
        example=True,
    )
    timeout: float = kinds.seconds("Timeout of one run.", default=60.0, example="2m")
    max_output: int = kinds.integer_from(1)(
        "Most bytes of output that are kept. If there is more, the program is ended and the rest is dropped.",
        default=100_000,
        example=100000,
    )


COMMAND: Final = Section("cli.*.commands.*", ProgramCommand)


@kind(
    "array of sub-commands: text, or object",
    {"type": "array", "minItems": 1, "items": {"anyOf": [kinds.STRING, {"$ref": "#/$defs/programCommand"}]}},
)
def commands(reader: Reader, place: Path, raw: object) -> tuple[ProgramCommand, ...] | None:
    """The tools of a program, each with its name."""
    made = reader.items(place, raw, lambda where, entry: _command(reader, where, entry), "an array of sub-commands")
    if made is None:
        return None
    if not made and raw == []:
        reader.report.error(place, "names no sub-command: nothing can be called but what stands here")
    seen: dict[str, int] = {}
    for index, command in enumerate(made):
        name = command.name or ""
        if name in seen:
            reader.report.error(
                (*place, index), f'a tool "{name}" stands here already; give one of them another `name`'
            )
        seen[name] = index
    return made


def _command(reader: Reader, place: Path, entry: object) -> ProgramCommand | None:
    given = as_mapping(entry)
    if isinstance(entry, str):
        named = reader.named(place, entry)
        values: dict[str, Any] = {} if named is None else {"args": tuple(named.split())}
        written: list[str] = entry.split()
    elif given is not None:
        values = reader.section(COMMAND, place, entry)
        written = [str(word) for word in as_list(given.get("args")) or ()]
    else:
        reader.report.error(
            place, f"must be the words of a sub-command, or an object with `args`, found {found(entry)}"
        )
        return None
    if "args" not in values:
        return None
    # As they are written: what a variable stands for may be a secret, and everybody sees names.
    words = [word for word in written if not word.startswith("-") and not {"$", "{"}.intersection(word)]
    name = values.get("name") or "_".join(words) or "run"
    if _TOOL_NAME.fullmatch(name) is None:
        reader.report.error(place, "needs a `name` of letters, digits, `_`, `.` and `-`, at most 64 of them")
        return None
    values["name"] = name
    command = ProgramCommand(**values)
    known = dict(command.arguments)
    if command.stdin is not None and (command.stdin not in known or known[command.stdin].type != "string"):
        reader.report.error((*place, "stdin"), "must be the name of one of the `arguments`, a `string`")
    return command
