"""Names that look the same: in other capitals, in full width, or with Cyrillic or Greek letters among the Latin ones.

A small table on purpose: of the thousands that the Unicode consortium lists it has the letters that fonts draw like
Latin ones. Digits are not taken for letters (`v1`, `vl`): servers use both in earnest.
"""

from __future__ import annotations

from typing import Final

# Before capitals are folded: a Greek capital may look like one letter and its small one like another.
_CAPITALS: Final = str.maketrans(
    # Cyrillic, then Greek.
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u051a\u051c\u04c0"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7",
    "ABESIJKMHOPCTYXQWIABEZHIKMNOPTYX",
)
_SMALL: Final = str.maketrans(
    # Cyrillic, Greek, then letters of other kinds, and dashes.
    "\u0430\u0432\u0433\u0435\u0455\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0441\u0501\u0442\u0443\u0445\u051b\u051d\u04bb\u04cf"
    "\u03b1\u03b3\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03c9"
    "\u0251\u0261\u0131\u0578\u057d\u0585\u0570"
    "\u2010\u2011\u2012\u2013\u2014\u2212",
    "abresijkmhopcdtyxqwhlayikvoptuxwaginuoh------",
)


def skeleton(name: str) -> str:
    """What a name looks like: two names of one skeleton are easily taken for each other."""
    if name.isascii():
        return name.lower()
    # Only for names that need it; most configurations have none.
    from unicodedata import normalize

    return normalize("NFKC", name).translate(_CAPITALS).casefold().translate(_SMALL)
