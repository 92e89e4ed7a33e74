"""From bytes in any of the web's encodings to text: a byte order mark decides, then UTF-8, then what was declared.

Only when those fail is an encoding guessed, from the lines that are not ASCII; a guess is told as a warning, and so are
bytes that do not decode. Text that is UTF-8 but for a few bytes is damaged UTF-8, and nothing else.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.documents.parsers.spelling import is_spelled

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatch

__all__ = ["Decoded", "declared_charset", "decoded", "head_in_utf8", "is_utf8"]

# The longer first: the mark of UTF-16 begins that of UTF-32.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?\s*([a-zA-Z0-9._-]{1,40})", re.IGNORECASE)
# What browsers read under a name that promises less.
_WIDER: Final = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
# In seven bits, so that it passes for ASCII.
_ISO_2022_JP: Final = (b"\x1b$B", b"\x1b$@")
# Where UTF-16 shows without its mark.
_HEAD_BYTES: Final = 4096
_DECODED_BYTES: Final = 1 << 20
_SAMPLE_BYTES: Final = 32 << 10
_SEARCHED_BYTES: Final = 16 << 20
_LINE_BYTES_MAX: Final = 4096
# Controls, blanks and punctuation below the digits.
_BETWEEN_CHARACTERS: Final = re.compile(rb"[\x00-\x2f]")
# Zero bytes that plain text has in UTF-16, as a part of one in two bytes.
_WIDE_PART: Final = 0.4

_EAST_ASIAN: Final = ("cp932", "euc_jp", "gb18030", "big5hkscs", "cp949")
_OTHERS: Final = "cp1252 cp1250 iso8859_2 cp1254 cp1257 cp1251 koi8_r koi8_u iso8859_5 cp1253 cp1255 cp1256 cp874"
_GUESSED: Final = [*_OTHERS.split(), *_EAST_ASIAN]
# Encodings of Latin letters read each other's text as letters too. In order of how common they are, with the letters
# that the languages written in them use.
_LATIN: Final = {
    "cp1252": "àáâãäåæçèéêëìíîïñòóôõöøùúûüýßœðþ’‘“”–—…«»°§€",
    "cp1250": "ąćęłńóśźżáâčďéěëíîňöřšşťţúůüýžőűăđäß’‘“”„–—…«»°§€",
    "iso8859_2": "ąćęłńóśźżáâčďéěëíîňöřšşťţúůüýžőűăđäß§",
    "cp1254": "ğışçöüâîû’‘“”–—…«»",
    "cp1257": "āčēģīķļņšūžąęėįųõäöüß’“”„–—",
}
# The first byte of every hiragana in EUC.
_HIRAGANA_ROW: Final = b"\xa4"
# Of the frequency of letters with a language's: texts of two sentences have twice this.
_COHERENCE_MIN: Final = 0.2
# Below this difference it says nothing.
_COHERENCE_APART: Final = 0.06


class Decoded(msgspec.Struct, frozen=True):
    """A text, the encoding it was in, and what is to be said about that."""

    text: str
    encoding: str
    warnings: tuple[str, ...] = ()


def decoded(data: bytes, declared: str = "") -> Decoded:
    """The text in `data`; `declared` is the name of a charset, or anything, and only a hint."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _lossy(data, encoding)
    if wide := _unmarked_utf16(data[:_HEAD_BYTES]):
        return _lossy(data, wide, "no byte order mark: it was told from its zero bytes")
    if is_utf8(data):
        return Decoded(data.decode("utf-8"), "utf-8")
    if _is_damaged_utf8(data):
        return _lossy(data, "utf-8")
    known = _known(declared) or _known("iso-2022-jp" if _has_escapes(data) else "")
    if known and known != "utf-8":
        return _lossy(data, known)
    return _guessed(data, f"it is not in {known}, as it declares" if known else "no encoding is declared")


def is_utf8(data: bytes, *, cut: bool = False) -> bool:
    """Whether `data` can be taken as UTF-8; when it was `cut` somewhere, its last character may be incomplete."""
    if data.startswith(_MARKS[0][0]) or _has_escapes(data) or _unmarked_utf16(data[:_HEAD_BYTES]):
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), _DECODED_BYTES):
            decoder.decode(data[start : start + _DECODED_BYTES])
        decoder.decode(b"", final=not cut)
    except UnicodeDecodeError:
        return False
    return True


def head_in_utf8(head: bytes) -> bytes:
    """The first bytes of a document as if it were in UTF-8, where it is in UTF-16 or UTF-32."""
    encoding = next((encoding for mark, encoding in _MARKS if head.startswith(mark)), None) or _unmarked_utf16(head)
    return head.decode(encoding, "ignore").encode("utf-8", "ignore") if encoding else head


def declared_charset(text: str) -> str:
    """The charset that a content type or the head of a page declares; empty when it declares none."""
    found = _CHARSET.search(text)
    return found.group(1) if found else ""


def _known(name: str) -> str | None:
    """Python's name of an encoding of text, as browsers understand it."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        return None
    # Python also knows codecs that are none of text, and some that execute what they decode.
    if not found._is_text_encoding or found.name in ("idna", "punycode", "unicode_escape", "raw_unicode_escape"):
        return None
    # A page that could be read this far declares its own encoding; UTF-16 without a mark cannot be it.
    return None if found.name.startswith(("utf-16", "utf-32", "utf-7")) else _WIDER.get(found.name, found.name)


def _lossy(data: bytes, encoding: str, *warnings: str) -> Decoded:
    text = data.decode(encoding, "replace")
    lost = text.count("\ufffd") - data.count("\ufffd".encode()) * (encoding.startswith("utf-8"))
    name = encoding.removesuffix("-sig")
    if lost > 0:
        warnings = (*warnings, f"{lost} characters could not be decoded as {name} and were replaced")
    return Decoded(text, name, warnings)


def _has_escapes(data: bytes) -> bool:
    return any(escape in data[:_DECODED_BYTES] for escape in _ISO_2022_JP) and data.isascii()


def _unmarked_utf16(head: bytes) -> str | None:
    """UTF-16 without its mark, where every other byte is often zero and what comes of it has no control characters."""
    half = len(head) // 2
    if half < 2:
        return None
    even, odd = head[::2].count(0), head[1::2].count(0)
    little, big = odd > _WIDE_PART * half and even == 0, even > _WIDE_PART * half and odd == 0
    if not little and not big:
        return None
    encoding = "utf-16-le" if little else "utf-16-be"
    text = head[: half * 2].decode(encoding, "ignore")
    return encoding if _CONTROL.search(text) is None else None


def _is_damaged_utf8(data: bytes) -> bool:
    """Whether more characters of several bytes are whole than bytes are wrong: other encodings rarely make one."""
    sample = data[:_SEARCHED_BYTES]
    text = sample.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    whole = sum(1 for sign in text if sign > "\x7f") - wrong
    return whole > wrong


def _guessed(data: bytes, why: str) -> Decoded:
    from charset_normalizer import from_bytes

    matches = list(from_bytes(_sample(data), cp_isolation=_GUESSED, preemptive_behaviour=False, threshold=0.3))
    # Those that are spelled as their script is first; the order is the detector's otherwise.
    matches.sort(key=lambda match: not is_spelled(str(match)))
    encoding = _best(matches) if matches else "cp1252"
    return _lossy(data, encoding, f"read as {encoding}, which was guessed: {why}")


def _best(matches: list[CharsetMatch]) -> str:
    """The first, unless it is one of several for Latin letters that are as good."""
    first = matches[0]
    # One match stands for others that decode the sample to the same text.
    latin = {
        name: match for match in matches for name in (match.encoding, *match.could_be_from_charset) if name in _LATIN
    }
    alike = [
        name
        for name, match in latin.items()
        if match.chaos <= first.chaos + 0.02 and match.coherence >= first.coherence - _COHERENCE_APART
    ]
    if first.encoding not in _EAST_ASIAN and first.coherence < _COHERENCE_MIN:
        # Letters in an order that no language of theirs has: bytes of longer characters, taken one by one.
        first = next((match for match in matches if match.encoding in _EAST_ASIAN and match.chaos <= 0.1), first)
    if first.encoding not in latin or not alike:
        return first.encoding if _HIRAGANA_ROW not in first.raw or not _is_euc_japanese(bytes(first.raw)) else "euc_jp"
    order = list(_LATIN)
    return max(alike, key=lambda name: (_usual_part(str(latin[name]), name), -order.index(name)))


def _is_euc_japanese(sample: bytes) -> bool:
    """Whether much of a sample is hiragana in EUC: short ones decode as Korean or Chinese too, which never use it."""
    try:
        text = sample.decode("euc_jp")
    except UnicodeDecodeError:
        return False
    beyond = [sign for sign in text if sign > "\x7f"]
    return 10 * sum("\u3041" <= sign <= "\u309f" for sign in beyond) > len(beyond)


def _usual_part(text: str, encoding: str) -> float:
    """Which part of the characters beyond ASCII its languages use."""
    beyond = [sign for sign in text.lower() if sign > "\x7f"]
    return round(sum(sign in _LATIN[encoding] for sign in beyond) / max(1, len(beyond)), 3)


def _sample(data: bytes) -> bytes:
    """Lines that are not ASCII, as far as they fit."""
    taken: list[bytes] = []
    size = 0
    for line in _lines(data[:_SEARCHED_BYTES]):
        if size + len(line) > _SAMPLE_BYTES and taken:
            break
        taken.append(line)
        size += len(line)
    return b"\n".join(taken)


def _lines(data: bytes) -> Iterator[bytes]:
    for line in data.split(b"\n"):
        if line.isascii():
            continue
        yield line if len(line) <= _LINE_BYTES_MAX else _cut_line(line[:_LINE_BYTES_MAX])


def _cut_line(line: bytes) -> bytes:
    """A line up to its last byte that no encoding uses inside a character; whole where it has none.

    Its length is even then, and most characters of scripts without blanks have two bytes.
    """
    places = [match.start() for match in _BETWEEN_CHARACTERS.finditer(line)]
    return line[: places[-1]] if places and places[-1] else line
