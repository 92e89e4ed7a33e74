"""A small language for filters, as a person types them: `bucket in ('x', 'y') and not (key = 'a.md' or start >= 1000)`.

```
filter      any ("or" any)*
any         one ("and" one)*
one         "not" one | "(" filter ")" | attribute comparison
comparison  ("=" | "!=" | "<" | "<=" | ">" | ">=") value | ["not"] "in" "(" value ("," value)* ")"
            | "between" value "and" value | ["not"] "startswith" 'text' | "is" ["not"] "null"
value       'text' | "text" | 12 | 1.5 | true | false
```

A quotation mark inside a text is doubled. Words of the language may be written in capitals. A name that is one of
them, or holds other signs than letters, digits, `_`, `.` and `-`, is written in backquotes. What cannot be read is
refused with its place; which attributes there are, and of which type, only the collection knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Final, NamedTuple

from penstock.errors import InvalidInput
from penstock.vector import Filter, Scalar, attribute

__all__ = ["parse_filter"]

# Longer ones are made by programs, which have `penstock.vector` for it.
_CHARACTERS_MAX: Final = 10_000
# A parser that calls itself needs a bound; filters themselves nest no deeper.
_DEPTH_MAX: Final = 32
# An integer of 64 bits has 19, and a person may write some zeros before it.
_DIGITS_MAX: Final = 100
_INTEGER_MAX: Final = (1 << 63) - 1
_WORDS: Final = frozenset({"and", "or", "not", "in", "between", "startswith", "is", "null", "true", "false"})
_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    |(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d][\w.-]*)
    |(?P<quoted>`(?:[^`]|``)+`)
    |(?P<mark><=|>=|!=|<>|==|[=<>(),])
    )""",
    re.VERBOSE,
)
_COMPARISONS: Final[dict[str, Callable[[str, Scalar], Filter]]] = {
    "=": lambda name, value: attribute(name) == value,
    "!=": lambda name, value: attribute(name) != value,
    "<": lambda name, value: attribute(name) < value,
    "<=": lambda name, value: attribute(name) <= value,
    ">": lambda name, value: attribute(name) > value,
    ">=": lambda name, value: attribute(name) >= value,
}
_LAST_CHARACTER: Final = "\U0010ffff" * 2
_SPELLINGS: Final = {"==": "=", "<>": "!="}


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


def parse_filter(text: str) -> Filter:
    """The filter that `text` spells, or `InvalidInput` naming the position that is wrong."""
    if len(text) > _CHARACTERS_MAX:
        raise InvalidInput(f"the filter has {len(text):,} characters", f"at most {_CHARACTERS_MAX:,} are read")
    return _Parser(text).whole()


class _Parser:
    """One filter, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Filter:
        found = self._any_of()
        if self._token.kind != "end":
            raise self._refusal("and, or, or the end is expected")
        return found

    def _any_of(self) -> Filter:
        parts = [self._all_of()]
        while self._take("or"):
            parts.append(self._all_of())
        return reduce(Filter.__or__, parts)

    def _all_of(self) -> Filter:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return reduce(Filter.__and__, parts)

    def _one(self) -> Filter:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._refusal(f"it nests deeper than {_DEPTH_MAX} levels")
        try:
            if self._take("not"):
                return ~self._one()
            if self._take("("):
                inside = self._any_of()
                self._expect(")")
                return inside
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Filter:
        token = self._token
        if token.kind != "name":
            raise self._refusal("the name of an attribute is expected")
        self._next += 1
        if self._take("between"):
            low = self._value()
            self._expect("and")
            return attribute(token.text).between(low, self._value())
        if self._take("startswith"):
            return self._prefixed(token.text)
        if self._take("is"):
            return self._presence(token.text)
        if self._take("not"):
            if self._take("startswith"):
                return ~self._prefixed(token.text)
            self._expect("in")
            return ~attribute(token.text).is_in(self._values())
        if self._take("in"):
            return attribute(token.text).is_in(self._values())
        compare = _COMPARISONS.get(self._token.text) if self._token.kind == "mark" else None
        if compare is None:
            raise self._refusal("one of = != < <= > >= in between startswith is null is expected")
        self._next += 1
        return compare(token.text, self._value())

    def _presence(self, name: str) -> Filter:
        negated = self._take("not")
        self._expect("null")
        return attribute(name).is_not_null() if negated else attribute(name).is_null()

    def _prefixed(self, name: str) -> Filter:
        token = self._token
        prefix = self._value()
        if not isinstance(prefix, str) or not prefix:
            raise _refused(self._text, token.position, "startswith takes a text of at least one character")
        # Texts are compared character by character: no text with this prefix comes after its last possible character.
        return attribute(name).between(prefix, prefix + _LAST_CHARACTER)

    def _values(self) -> list[Scalar]:
        self._expect("(")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        self._expect(")")
        return values

    def _value(self) -> Scalar:
        token = self._token
        value = _value_of(token)
        if value is None:
            raise self._refusal("a value is expected: 'text', a number, true or false")
        self._next += 1
        return value

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, word: str) -> bool:
        found = self._token.kind in ("mark", "word") and self._token.text == word
        self._next += found
        return found

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._refusal(f"{word} is expected")

    def _refusal(self, why: str) -> InvalidInput:
        token = self._token
        there = "it ends there" if token.kind == "end" else f"there is {token.text}"
        return _refused(self._text, token.position, f"{why}, and {there}")


def _tokens(text: str) -> list[_Token]:
    tokens, position = [], 0
    end = len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            unended = text[start] in "'\"`"
            raise _refused(
                text, start, "the text has no end marker" if unended else f"{text[start]!r} means nothing here"
            )
        kind = str(found.lastgroup)
        tokens.append(_classified(kind, found.group(kind), found.start(kind)))
        position = found.end()
    return [*tokens, _Token("end", "", end)]


def _classified(kind: str, text: str, position: int) -> _Token:
    if kind == "quoted":
        return _Token("name", text[1:-1].replace("``", "`"), position)
    if kind == "name" and text.casefold() in _WORDS:
        return _Token("word", text.casefold(), position)
    return _Token(kind, _SPELLINGS.get(text, text) if kind == "mark" else text, position)


def _value_of(token: _Token) -> Scalar | None:
    if token.kind == "text":
        quote = token.text[0]
        return token.text[1:-1].replace(quote * 2, quote)
    if token.kind == "word" and token.text in ("true", "false"):
        return token.text == "true"
    if token.kind != "number":
        return None
    if not token.text.lstrip("+-").isdecimal():
        return float(token.text)
    # Longer ones are no integers of any attribute, and Python refuses to read the longest.
    if len(token.text) <= _DIGITS_MAX and abs(number := int(token.text)) <= _INTEGER_MAX:
        return number
    return float(token.text)


def _refused(text: str, position: int, why: str) -> InvalidInput:
    return InvalidInput(
        f"the filter {text.strip()!r} cannot be read at character {position + 1}", why, "for example: key = 'a.md'"
    )
