"""What every group of cells shares: targets in turn, failures noted instead of ending the run, samples in one table.

A target that fails is named with its reason and left out from there on; the others go on without it.
Samples land in one plain table, `samples[cell][target][metric]`, with one value per round.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from bench.process import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Named(Protocol):
    """A target, as far as this module knows it."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


@dataclass(slots=True)
class Run(Generic[T]):
    """One interleaved run over some targets."""

    targets: list[T]
    rounds: int
    seconds: float
    """Length of one timed slice."""
    one_cpu: bool = True
    samples: dict[str, dict[str, dict[str, list[float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    failures: dict[str, str] = field(default_factory=dict)

    def turn(self, number: int, among: list[T] | None = None) -> list[T]:
        """The targets still taking part, each round starting with another one."""
        alive = [target for target in (self.targets if among is None else among) if target.name not in self.failures]
        shift = number % len(alive) if alive else 0
        return alive[shift:] + alive[:shift]

    @contextmanager
    def attempt(self, target: T, what: str) -> Iterator[None]:
        """Note a failure of this target instead of ending the run."""
        if sys.stderr.isatty():
            print(f"\r\033[K{what}: {target.name} ", end="", file=sys.stderr, flush=True)
        try:
            yield
        except TargetError as error:
            self.failures[target.name] = f"{what}: {error}"
        except OSError as error:
            self.failures[target.name] = f"{what}: a connection failed: {error}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.failures[target.name] = f"{what}: an answer that is no MCP: {error!r}"

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Keep this process, and all it starts meanwhile, on one CPU (see README.md for the reason)."""
        allowed = os.sched_getaffinity(0)
        if self.one_cpu:
            os.sched_setaffinity(0, {max(allowed)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)

    def note(self, cell: str, target: T, **values: float) -> None:
        """Keep the values of one round."""
        for metric, value in values.items():
            self.samples[cell][target.name][metric].append(value)
