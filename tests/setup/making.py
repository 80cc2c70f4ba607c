"""KnownClient files as people and programs write them: comments, BOM, CRLF, tabs, trailing commas, one line or many."""

from __future__ import annotations

import json
import random
from typing import Any

WORDS = (
    "a",
    "server",
    "mcp-x",
    "größe",
    "日本",
    'q"uote',
    "back\\slash",
    "tab\there",
    "//no",
    "/*no*/",
    "{",
    "]",
    ",",
    "",
)


class Maker:
    """Makes files from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.newline = self.random.choice(["\n", "\r\n"])
        self.unit = self.random.choice(["  ", "    ", "\t"])
        self.comments = self.random.random() < 0.6
        self.trailing = self.random.random() < 0.3
        self.bom = self.random.choice(["", "", "\ufeff"])
        self.end = self.random.choice(["", self.newline, self.newline * 2])

    def key(self) -> str:
        return f"{self.random.choice(WORDS)}{self.random.randrange(10**6)}"

    def scalar(self) -> Any:
        return self.random.choice([True, False, None, 0, -1, 3.5, 1e30, 12345678901234567890, *WORDS])

    def value(self, depth: int) -> Any:
        kind = self.random.random()
        if depth <= 0 or kind < 0.5:
            return self.scalar()
        if kind < 0.75:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return {self.key(): self.value(depth - 1) for _ in range(self.random.randrange(4))}

    def server(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"command": self.random.choice(["npx", "uvx", "python3"])}
        entry["args"] = [self.random.choice(WORDS) for _ in range(self.random.randrange(4))]
        if self.random.random() < 0.5:
            entry["env"] = {f"VAR_{self.random.randrange(99)}": self.random.choice(WORDS)}
        return entry

    def servers(self) -> dict[str, Any]:
        return {self.key(): self.server() for _ in range(self.random.randrange(5))}

    # --- JSON with comments ---

    def json(self, container: str) -> str:
        root = {self.key(): self.value(3) for _ in range(self.random.randrange(5))}
        if self.random.random() < 0.8:
            root[container] = self.servers()
        items = list(root.items())
        self.random.shuffle(items)
        return self.bom + self.remark() + self.json_text(dict(items), "") + self.remark() + self.end

    def json_text(self, value: Any, indent: str) -> str:
        if not isinstance(value, dict | list) or not value:
            return json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        in_line = self.random.random() < 0.3
        inner = indent + self.unit
        parts = [
            (f"{json.dumps(key)}{self.gap()}:{self.gap()}" if isinstance(value, dict) else "")
            + self.json_text(item, inner)
            for key, item in (value.items() if isinstance(value, dict) else enumerate(value))
        ]
        if in_line and not any("\n" in part for part in parts):
            return opening + ", ".join(parts) + closing
        text = opening + self.remark()
        for index, part in enumerate(parts):
            is_last = index == len(parts) - 1
            comma = "," if not is_last or self.trailing else ""
            text += f"{self.newline}{inner}{part}{self.gap()}{comma}{self.remark()}"
        return text + f"{self.newline}{indent}{closing}"

    def gap(self) -> str:
        return self.random.choice(["", " ", " ", " /* , */ " if self.comments else ""])

    def remark(self) -> str:
        if not self.comments or self.random.random() < 0.7:
            return ""
        return self.random.choice(
            [" /* } */ ", f' // note {{ , " {self.newline}', f"{self.newline}// own line{self.newline}"]
        )

    # --- TOML ---

    def toml(self, container: str) -> str:
        lines = ["# mine [x]", 'model = "o" # "', "list = [", '  ["a"], # ]', "]", ""]
        lines = lines[: self.random.randrange(len(lines) + 1)] if self.random.random() < 0.3 else lines
        if lines and "list = [" in lines and "]" not in lines:
            lines = []
        for _ in range(self.random.randrange(4)):
            name = self.random.choice([f"s{self.random.randrange(10**6)}", f'"q.{self.random.randrange(10**6)}"'])
            lines += [f"[{container}.{name}]", 'command = "npx"', 'text = """', f"[{container}.muxway]", '"""']
            lines += [self.random.choice(["", "# about the next", f"[{container}.{name}.env]\nA = 'b'"])]
        lines += self.random.choice([[], ["[other]", "x = 1"], ["[[many]]", "y = 2", "[[many]]", "y = 3"]])
        return "\n".join(lines).replace("\n", self.newline) + (self.end if lines else "")

    # --- YAML ---

    def yaml(self, container: str, *, listed: bool) -> str:
        lines = ["# mine", "model: x # : y", "text: |", f"  {container}:", "    muxway: 1"]
        lines = lines if self.random.random() < 0.7 else []
        indent = self.random.choice(["  ", "    "])
        count = self.random.randrange(4)
        if count or self.random.random() < 0.3:
            lines.append(f"{container}:{self.random.choice(['', ' # here'])}")
        for number in range(count):
            if self.random.random() < 0.4:
                lines.append(f"{indent}# about {number}")
            if listed:
                lines += [f"{indent}- name: s{number}", f"{indent}  command: npx"]
            else:
                lines += [f"{indent}s{number}:", f"{indent}  cmd: npx", f"{indent}  args: ['-y', \"b: c\"]"]
        lines += self.random.choice([[], ["# after", "z: 1"], ["z:", "  - 1", "  - {a: b}"]])
        return "\n".join(lines).replace("\n", self.newline) + (self.end if lines else "")
