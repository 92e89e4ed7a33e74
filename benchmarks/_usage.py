"""Command lines of the programs that have a few words and switches, and no options with values of many kinds."""

from __future__ import annotations

import sys
from collections.abc import Collection

__all__ = ["check_words"]


def check_words(doc: str | None, words: Collection[str] = (), *, values: Collection[str] = ()) -> None:
    """Show `doc` for `--help`, and refuse a word that the program does not know: it would be measured in vain.

    `values` begin words that go on with a value, such as `--peer=`; a number is such a word if `#` is among them.
    """
    given = sys.argv[1:]
    if {"-h", "--help"} & set(given):
        print((doc or "").strip())
        print("\nwords: " + " ".join([*sorted(words), *values, "--help"]))
        raise SystemExit(0)
    for word in given:
        is_value = any(word.startswith(start) for start in values) or ("#" in values and word.isdecimal())
        if word not in words and not is_value:
            print(f"{word} is unknown; there are {' '.join([*sorted(words), *values, '--help'])}", file=sys.stderr)
            raise SystemExit(2)
