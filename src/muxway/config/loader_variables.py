"""Variables that make a program run code which nobody configured: preloaded libraries, start files, extra options.

A server gets one only where it is written out under its `env`. What comes along by inheritance, out of a file or out
of another variable was put there for something else, or by somebody else.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = frozenset(
    {
        # Shells: files they read, or text they run, when they start.
        *("BASH_ENV", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PS4", "ZDOTDIR"),
        # Languages: options, start files, and where modules are looked for.
        *("NODE_OPTIONS", "NODE_PATH", "NPM_CONFIG_NODE_OPTIONS", "NPM_CONFIG_SCRIPT_SHELL", "BUN_OPTIONS"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONWARNINGS"),
        *("PERL5OPT", "PERL5LIB", "PERL5DB", "RUBYOPT", "RUBYLIB", "LUA_INIT", "PHPRC", "PHP_INI_SCAN_DIR"),
        *("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "DOTNET_STARTUP_HOOKS"),
        # Programs that others start by name.
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS"),
        # The C library: converters it loads, its inner settings.
        *("GCONV_PATH", "GLIBC_TUNABLES"),
    }
)
_PREFIXES: Final = ("LD_", "DYLD_", "GIT_CONFIG_")


def is_loader(name: str, value: str | None = None) -> bool:
    """Whether a variable of this name decides which code runs.

    Args:
        name: the variable.
        value: what it is set to, if known. `ENV` is a start file of shells if it is a path, and most often a word
            like `production`.
    """
    capitals = name.upper()
    if capitals == "ENV":
        return value is not None and "/" in value
    return capitals in _NAMES or capitals.startswith(_PREFIXES)
