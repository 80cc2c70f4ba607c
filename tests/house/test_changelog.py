"""What users of muxway notice is found where they look for it."""

from __future__ import annotations

import re
from pathlib import Path

ORDER = ["Breaking", "Added", "Changed", "Fixed", "Security"]
CHANGES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


def test_each_heading_of_a_version_stands_once_and_in_order() -> None:
    """Ours: who upgrades reads what breaks first, and each kind of change in one place."""
    for version in re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", version, flags=re.MULTILINE)
        assert headings == [heading for heading in ORDER if heading in headings], version.partition("\n")[0]


def test_no_entry_stands_twice() -> None:
    """Ours: what is said twice is soon said in two ways."""
    entries = re.findall(r"^- (.+)$", CHANGES, flags=re.MULTILINE)
    assert sorted(entries) == sorted(set(entries))
