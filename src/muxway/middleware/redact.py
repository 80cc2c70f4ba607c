"""`redact`: what nobody should see is masked in everything that goes out to the caller."""

from __future__ import annotations

from muxway.middleware.masking import Masker, Masking
from muxway.middleware.patterns import KINDS, compiled


class Redact(Masking):
    """Mask secrets and personal data in results, prompts, resources, errors, progress, log messages and questions.

    Secrets that the configuration knows (`env`, `headers`, expanded variables) become `***`, lists included.

    Options:
        kinds: what to recognise by its look: `aws_key`, `github_token`, `private_key` and `jwt`, unless you say
            otherwise; there are also `email`, `credit_card` and `ipv4`. Each becomes `[redacted: kind]`.
        patterns: regular expressions; what fits one becomes `[redacted]`. Python's have no time limit, so they are
            bounded like this: what can take forever, like `(a+)+`, is refused; a text is searched piece by piece, so
            a match of more than 1,024 characters may be cut (256 if the pattern has two open-ended repetitions that are
            not possessive, 128 with three, no more are taken); and a message that takes longer than 0.25 s is
            withheld from there on.

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
