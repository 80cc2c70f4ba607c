"""`python -m fuzz TARGET SECONDS`: look for bytes that break a law, led by coverage. Without a target, lists them.

What is found is written to `.fuzz/found`; put it into `fuzz/seeds/TARGET` with a name that says what it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parent / ".fuzz"
LONGEST = 4096


def main(target: str, seconds: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["muxway"]):
        from fuzz.targets import TARGETS

    corpus, found = KEPT / "corpus" / target, KEPT / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-dict={HERE / 'dictionaries' / target}.dict",
        f"-artifact_prefix={found}/{target}-",
        "-timeout=10",
        "-rss_limit_mb=512",
        "-verbosity=0",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus), str(HERE / "seeds" / target)], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print(*sorted(folder.name for folder in (HERE / "seeds").iterdir()))
    else:
        main(*sys.argv[1:])
