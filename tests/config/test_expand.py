"""Variables in text: the table of spellings, and the laws."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muxway.config.envfile import parse_env_file
from muxway.config.expand import Scope, expand
from muxway.config.values import SECRET_KEY

law = settings(deadline=None)
"""A busy machine is no fault."""

ENVIRON = {"A": "aa", "B_2": "bb", "lower": "ll", "EMPTY": "", "NESTED": "${A} $A {env:A}", "HOME": "/home/me"}
SCOPE = Scope(environ=ENVIRON, folder=Path("/path/to/project"))


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$A", "aa"),
        ("x$A/y", "xaa/y"),
        ("${A}${B_2}", "aabb"),
        ("${lower}", "ll"),
        ("${env:A}", "aa"),
        ("{env:A}", "aa"),
        ("Bearer {env:A}!", "Bearer aa!"),
        ("${A:-d}", "aa"),
        ("${NONE:-d}", "d"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b $5}", "a:-b $5"),
        ("${env:NONE:-https://x/y?z}", "https://x/y?z"),
        ("${NESTED}", "${A} $A {env:A}"),
        ("${userHome}/x", "/home/me/x"),
        ("${workspaceFolder}${/}${workspaceFolderBasename}", "/path/to/project/project"),
        ("${cwd}", str(Path.cwd())),
        ("$$A", "$A"),
        ("$${A}", "${A}"),
        ("$${env:A}", "${env:A}"),
        ("$$$A", "$aa"),
        ("pa$$word", "pa$word"),
        ("pa$word", "pa$word"),
        ("Pa$Word", "Pa$Word"),
        ("cost $5", "cost $5"),
        ("$", "$"),
        ("a$", "a$"),
        ("$lower", "$lower"),
        ("{A}", "{A}"),
        ('{"json": {"a": 1}}', '{"json": {"a": 1}}'),
    ],
)
def test_each_spelling_expands_as_documented(text: str, expanded: str) -> None:
    """docs/configuration.md#variables: every spelling, escapes and plain dollars."""
    outcome = expand(text, SCOPE)
    assert (outcome.text, outcome.missing, outcome.bad) == (expanded, (), ())


@pytest.mark.parametrize("text", ["$NONE", "${NONE}", "${env:NONE}", "{env:NONE}", "a $NONE b"])
def test_a_missing_variable_is_named(text: str) -> None:
    """docs/configuration.md#variables: `Missing environment variable`, with the variable."""
    assert expand(text, SCOPE).missing == ("NONE",)


def test_every_missing_variable_is_named() -> None:
    """docs/configuration.md#problems: all problems at once."""
    assert expand("$X ${Y} {env:Z} ${A} ${W:-}", SCOPE).missing == ("X", "Y", "Z")


@pytest.mark.parametrize(
    "text",
    ["${A%/}", "${}", "${1A}", "${input:key}", "${file:/x}", "{file:/x}", "${A:+x}", "${A B}", "${A", "${NONE:-${A}}"],
)
def test_a_reference_that_means_nothing_is_a_problem(text: str) -> None:
    """docs/configuration.md#variables: other programs pass such text on literally, and users search for hours."""
    assert len(expand(text, SCOPE).bad) == 1


@law
@given(text=st.text())
def test_text_without_references_is_unchanged(text: str) -> None:
    """Ours: a law. Only `$` and `{env:`/`{file:` can start a reference."""
    assume("$" not in text and "{env:" not in text and "{file:" not in text)
    assert expand(text, SCOPE).text == text


@law
@given(text=st.text(alphabet="$AB{}_ x"))
def test_doubling_every_dollar_gives_the_text_back(text: str) -> None:
    """Ours: a law. Any text can be written, by doubling its dollars."""
    assert expand(text.replace("$", "$$"), SCOPE).text == text


@law
@given(value=st.text(), text=st.sampled_from(["$V", "${V}", "${env:V}", "{env:V}", "${V:-x}"]))
def test_what_a_variable_holds_is_not_expanded_again(value: str, text: str) -> None:
    """docs/configuration.md#variables: a single pass. A password may contain dollars."""
    assume(value)
    outcome = expand(text, Scope(environ={"V": value, "A": "aa"}, folder=Path("/")))
    assert outcome.text == value
    assert outcome.values == (value,)


@law
@given(text=st.text(alphabet="${}:-envA/_ab5 "))
def test_any_text_expands_or_is_reported(text: str) -> None:
    """Ours: no exception, whatever the text."""
    outcome = expand(text, SCOPE)
    assert outcome.text is not None


def test_a_client_folder_is_not_the_workspace() -> None:
    """VS Code: `${workspaceFolder}` in `.vscode/mcp.json` is the folder around `.vscode`."""
    scope = Scope(environ={}, folder=Path("/path/to/project/.vscode"))
    assert expand("${workspaceFolder}", scope).text == "/path/to/project"


def test_values_of_variables_are_remembered_as_secrets_but_not_those_everybody_knows() -> None:
    """docs/configuration.md#secrets.

    Expanded values are tainted. Masking the home folder everywhere would help nobody.
    """
    assert expand("$HOME $A", SCOPE).values == ("aa",)


def test_an_env_file_takes_the_usual_spellings() -> None:
    """docs/configuration.md#servers: `envFile` has KEY=VAL, quotes, `export`, comments; nothing is expanded."""
    text = """\
# comment
PLAIN=value # comment
HASH=a#b
export EXPORTED = spaced out\x20
SINGLE='a $A # \\n' # comment
DOUBLE="a \\"b\\"\\n#c"
EMPTY=
LAST=1
LAST=2
"""
    assert parse_env_file(text) == (
        {
            "PLAIN": "value",
            "HASH": "a#b",
            "EXPORTED": "spaced out",
            "SINGLE": "a $A # \\n",
            "DOUBLE": 'a "b"\n#c',
            "EMPTY": "",
            "LAST": "2",
        },
        [],
    )


def test_lines_of_an_env_file_that_mean_nothing_are_numbered() -> None:
    """Ours: a line silently dropped is a variable silently missing."""
    assert parse_env_file('A=1\nnonsense\nB=\'open\nC="x" y\n=1\n')[1] == [2, 3, 4, 5]


@law
@given(text=st.text(alphabet="AB='\"\\# \nexport"))
def test_any_env_file_is_read_or_reported(text: str) -> None:
    """Ours: no exception, whatever the text."""
    variables, bad = parse_env_file(text)
    assert len(variables) + len(bad) <= len(text.splitlines())


def test_the_python_that_runs_muxway_has_a_name() -> None:
    """docs/configuration.md#variables: for servers that need what is installed beside muxway."""
    outcome = expand("${muxwayPython}", Scope({}, Path("/work")))
    assert (outcome.text, outcome.values) == (sys.executable, ())


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *(
            (name, True)
            for name in ("PGPASS", "DB_PASS", "dbPass", "MYSQL_PASS_2", "PASS", "KEY_PASSPHRASE", "passcode")
        ),
        *((name, True) for name in ("GITHUB_PAT", "AWS_CREDS", "MY_JWT", "BEARER", "AZURE_CONNECTION_STRING")),
        *((name, False) for name in ("BYPASS_PROXY", "COMPASS_URL", "PASSENGERS", "PATH", "PATTERN", "CREDITS")),
    ],
)
def test_names_that_sound_like_secrets(name: str, secret: bool) -> None:
    """docs/configuration.md#secrets: what stands under such a name is masked."""
    assert bool(SECRET_KEY.search(name)) is secret
