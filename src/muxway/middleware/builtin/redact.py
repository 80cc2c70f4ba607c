"""`redact`: what nobody should see is masked in everything that goes out to the caller."""

from __future__ import annotations

from muxway.middleware.builtin.masking import Masker, Masking
from muxway.middleware.builtin.patterns import KINDS, compiled


class Redact(Masking):
    """Mask secrets and personal data in results, prompts, resources, errors, progress, log messages and questions.

    Secrets that the configuration knows (`env`, `headers`, expanded variables) become `***`, lists included.

    Options:
        kinds: what to recognise by its look: `aws_key`, `github_token`, `private_key` and `jwt`, unless you say
            otherwise; there are also `email`, `credit_card` and `ipv4`. Each becomes `[redacted: kind]`.
        patterns: regular expressions, in the syntax of RE2: without lookaround and back-references, and `\\d`, `\\w`,
            `\\s` and `\\b` know ASCII only. What fits one becomes `[redacted]`. A text that would take too long to
            search, such as one of more than 10 MB, is withheld.

    Texts are searched, not numbers, pictures, sounds or other base64. For accidents, not against a server that wants
    to leak: whatever is written backwards is not recognised.

    Costs 16 µs with ten secrets and nothing to mask, more where something is; with a pattern 20 µs, and 1 ms for each
    100 KB.
    """

    def __init__(
        self,
        *,
        kinds: tuple[str, ...] = ("aws_key", "github_token", "private_key", "jwt"),
        patterns: tuple[str, ...] = (),
        known_secrets: frozenset[str] = frozenset(),
    ) -> None:
        unknown = [kind for kind in kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"`kinds` has {unknown[0]!r}, which is unknown; give some of: {', '.join(KINDS)}")
        literals = dict.fromkeys(known_secrets, "***")
        everything = Masker(literals, kinds, compiled(patterns))
        super().__init__(everything, Masker(literals))
