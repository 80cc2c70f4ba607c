"""What words mean, by a small model that comes inside a package: the extra `semantic`.

The model of `wordllama` is a table with a vector for each piece of a word; a text is the mean of its pieces. Only numpy
and tokenizers are needed to read it, and nothing is downloaded. Results depend on the texts alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from muxway.search.opening import opened
from muxway.wire import envelopes

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

Vectors: TypeAlias = Any
"""A matrix of numpy, a row for each tool."""

_WEIGHTS: Final = "weights/l2_supercat_256.safetensors"
_TOKENIZER: Final = "tokenizers/l2_supercat_tokenizer_config.json"
_TEXT: Final = 300
"""Characters of a description that say what a tool is; the rest is mostly how to use it."""
_PIECES: Final = 512
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[^\W_A-Za-z]+").findall
_PARAMETERS: Final = 20
"""Parameters whose names say what a tool works with."""
_STEP: Final = 16
"""Tools whose vectors are made at a time."""


def is_installed() -> bool:
    """Whether the extra is."""
    return all(importlib.util.find_spec(name) is not None for name in ("wordllama", "numpy", "tokenizers"))


class Meaning:
    """The model, in memory."""

    def __init__(self) -> None:
        """Load it, which takes a good half second. Raises ImportError or OSError."""
        # By name, as they come with an extra that most do not have.
        numpy: Any = importlib.import_module("numpy")
        tokenizers: Any = importlib.import_module("tokenizers")
        self._numpy = numpy
        # The package itself is not imported: it brings far more than its model.
        spec = importlib.util.find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise ImportError("wordllama is not installed: pip install 'muxway[semantic]'")
        folder = Path(spec.origin).parent
        raw = (folder / _WEIGHTS).read_bytes()
        # The format of safetensors: the length of a header, the header in JSON, numbers.
        start = 8 + int.from_bytes(raw[:8], "little")
        told = envelopes.value(raw[8:start])["embedding.weight"]
        first, last = told["data_offsets"]
        table = numpy.frombuffer(raw[start + first : start + last], dtype="<f2")
        self._table: Any = table.reshape(told["shape"]).astype("<f4")
        self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / _TOKENIZER))
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """A row of length one for each text; of nothing, if it has no words."""
        numpy = self._numpy
        rows = numpy.zeros((len(texts), self._table.shape[1]), dtype="<f4")
        for row, encoded in zip(rows, self._tokenizer.encode_batch([*texts], add_special_tokens=False), strict=True):
            if encoded.ids:
                row[:] = self._table[encoded.ids[:_PIECES]].mean(axis=0)
        lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
        lengths[lengths == 0] = 1
        return rows / lengths

    def vectors(self, definitions: Sequence[bytes]) -> Generator[None, None, Vectors]:
        """A row for each of these tools, in short steps."""
        parts: list[Vectors] = [self.embed(())]
        for at in range(0, len(definitions), _STEP):
            parts.append(self.embed([_said(one) for one in definitions[at : at + _STEP]]))
            yield
        return self._numpy.concatenate(parts)

    def likeness(self, query: str, parts: Sequence[Vectors]) -> list[float]:
        """How much each tool is like a query, from -1 to 1; `parts` have their rows. A query of no words: nothing."""
        wanted = self.embed([query])[0]
        if not parts or not wanted.any():
            return []
        return self._numpy.concatenate([rows @ wanted for rows in parts]).tolist()


def _said(definition: bytes) -> str:
    """What a tool is, in words."""
    fields = opened(definition).members
    name, description, schema = str(fields.get("name", "")), fields.get("description"), fields.get("inputSchema")
    properties: Any = cast("dict[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    parameters = [*cast("dict[str, Any]", properties)][:_PARAMETERS] if isinstance(properties, dict) else []
    said = f"{_apart(name.rpartition('__')[2])}: {description[:_TEXT] if isinstance(description, str) else ''}"
    return " ".join([said, *map(_apart, parameters)])


def _apart(name: str) -> str:
    """The words of a name."""
    return " ".join(_WORDS(name))
