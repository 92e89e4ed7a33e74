"""Matchers: what a selector asks of one label."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.timeseries.arrays import Bools, Column, compute
from penstock.timeseries.promql.regex import anchored

__all__ = ["MatchKind", "Matcher"]

# Up to its end, which may be missing, everything is literal: also what would be put behind the pattern.
_QUOTING = r"\Q"


class MatchKind(enum.StrEnum):
    """How a matcher compares, as PromQL writes it."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


@dataclasses.dataclass(frozen=True)
class Matcher:
    """A condition on the value of one label; an absent label has the empty value."""

    name: str
    kind: MatchKind
    value: str

    def __post_init__(self) -> None:
        """Take a kind as PromQL writes it too, and refuse what is no text before anything is compared with it."""
        try:
            object.__setattr__(self, "kind", MatchKind(self.kind))
        except ValueError:
            kinds = ", ".join(MatchKind)
            raise InvalidInput(f"a matcher of kind {self.kind!r:.40}", f"the kinds are {kinds}") from None
        if not all(isinstance(given, str) for given in (self.name, self.value)):
            raise InvalidInput(f"a matcher of {self.name!r:.40} and {self.value!r:.40}", "names and values are texts")

    def predicate(self) -> Callable[[str], bool]:
        """Whether a label's value is wanted. Compiles, so ask once and use it for all values."""
        if self.kind is MatchKind.EQUAL:
            return lambda value: value == self.value
        if self.kind is MatchKind.NOT_EQUAL:
            return lambda value: value != self.value
        pattern = anchored(self.value)
        if self.kind is MatchKind.REGEX:
            return lambda value: pattern.fullmatch(value) is not None
        return lambda value: pattern.fullmatch(value) is None

    def wanted(self, values: Column) -> Bools:
        """The same of many values at once: Arrow matches with RE2 as well."""
        if self.kind in (MatchKind.REGEX, MatchKind.NOT_REGEX) and _QUOTING not in self.value:
            anchored(self.value)
            whole = rf"(?s)\A(?:{self.value})\z"
            # Without a program for what stands around the pattern, too, it is asked value by value.
            with contextlib.suppress(pa.ArrowInvalid):
                found: Bools = compute.match_substring_regex(values, whole).to_numpy(zero_copy_only=False)
                return found if self.kind is MatchKind.REGEX else ~found
        test = self.predicate()
        return np.fromiter(map(test, values.to_pylist()), np.bool_, len(values))

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.name}{self.kind}"{quoted}"'
