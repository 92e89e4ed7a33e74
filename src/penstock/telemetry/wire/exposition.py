"""OpenMetrics text and Prometheus' older format, read line by line: the one reader of both, for tables and for series.

A text that ends with `# EOF` is OpenMetrics, with times in seconds; one without is the older format, with times in
milliseconds. A line that cannot be read is refused with its number, and so is one behind the end: two texts one after
the other would otherwise lose the second. Whether names fit the type of their metric is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from penstock.errors import InvalidInput

__all__ = ["METRIC_NAME", "ExpositionBatch", "ExpositionExemplar", "MetricFamily", "family_of", "read_exposition"]

METRIC_NAME: Final = "__name__"
_QUOTED: Final = r"\"(?:[^\"\\]|\\.)*\""
_BRACES: Final = rf"\{{(?:[^\"}}]|{_QUOTED})*\}}"
_SAMPLE: Final = re.compile(
    rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?(?P<braces>{_BRACES})?\s+(?P<value>\S+)(?:\s+(?P<time>[^#\s]\S*))?"
    rf"(?P<exemplar>\s+#\s*(?P<about>{_BRACES})\s+(?P<seen>\S+)(?:\s+(?P<seen_time>\S+))?)?"
)
_LABEL: Final = re.compile(
    rf"\s*(?:(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)|(?P<quoted>{_QUOTED}))\s*(?:=\s*(?P<value>{_QUOTED})\s*)?(?:,|$)"
)
_NOTE: Final = re.compile(rf"#\s*(?P<kind>TYPE|HELP|UNIT)\s+(?P<name>{_QUOTED}|\S+)(?:\s+(?P<said>.*))?", re.DOTALL)
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE | re.ASCII)
_DIGITS: Final = re.compile(r"(?P<sign>[-+])?(?P<whole>[0-9]+)(?:\.(?P<rest>[0-9]*))?", re.ASCII)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_END: Final = "# EOF"
_SECOND_NS: Final = 1_000_000_000
_MILLISECOND_NS: Final = 1_000_000
_BATCH_SAMPLES: Final = 100_000
# What may stand behind the name of a family, by its type.
_SUFFIXES: Final[Mapping[str, tuple[str, ...]]] = {
    "counter": ("_total", "_created"),
    "gaugehistogram": ("_bucket", "_gcount", "_gsum"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "info": ("_info",),
    "summary": ("_count", "_sum", "_created"),
}


class _Typed(Protocol):
    @property
    def type(self) -> str: ...


F = TypeVar("F", bound=_Typed)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The type, unit and help of a metric in exposition text."""

    type: str = "unknown"
    help: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class ExpositionExemplar:
    """The exemplar of a sample, usually the trace of one request."""

    labels: Mapping[str, str]
    value: float
    time_ns: int | None


@dataclass(slots=True)
class ExpositionBatch:
    """Samples in the order of the text. `series[i]` is the place of sample i in `labels`."""

    labels: list[dict[str, str]] = field(default_factory=list)
    series: list[int] = field(default_factory=list)
    # None where the text has no time.
    times_ns: list[int | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    # By the place of their sample.
    exemplars: dict[int, ExpositionExemplar] = field(default_factory=dict)
    families: dict[str, MetricFamily] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)


def read_exposition(
    lines: Iterable[str], *, seconds: bool, must_end: bool = False, batch_samples: int = _BATCH_SAMPLES
) -> Iterator[ExpositionBatch]:
    """Batches of the samples in a text; `seconds` is the unit of times, `must_end` refuses a text without `# EOF`."""
    reading = _Reading(seconds)
    ended = False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if ended:
            raise _refused(number, f"{text:.80} stands behind {_END}", "read the texts one by one")
        if text == _END:
            ended = True
        elif text.startswith("#"):
            _note(text, reading.batch.families)
        else:
            reading.add(text, number)
        if len(reading.batch) >= batch_samples:
            yield reading.batch
            reading = _Reading(seconds)
    if must_end and not ended:
        raise InvalidInput("the text has no end marker", f"OpenMetrics ends with {_END}", "was it cut off?")
    if len(reading.batch) or reading.batch.families:
        yield reading.batch


def family_of(name: str, families: Mapping[str, F]) -> str | None:
    """The family that a sample belongs to: its own name, or one without a suffix that the type of that one has."""
    if name in families:
        return name
    cut = name.rfind("_")
    found, suffix = name[:cut], name[cut:]
    if cut > 0 and found in families and suffix in _SUFFIXES.get(families[found].type, ()):
        return found
    return None


class _Reading:
    """Samples by series, until there are enough of them."""

    def __init__(self, seconds: bool) -> None:
        self.batch = ExpositionBatch()
        self._rows: dict[str, int] = {}
        self._unit_ns = _SECOND_NS if seconds else _MILLISECOND_NS

    def add(self, text: str, number: int) -> None:
        match = _SAMPLE.fullmatch(text)
        if match is None or (match["name"] is None and match["braces"] is None):
            raise _refused(number, f"{text:.80} is no sample")
        batch = self.batch
        head = text[: match.start("value")]
        row = self._rows.get(head)
        if row is None:
            row = self._rows[head] = len(batch.labels)
            batch.labels.append(_labels(match["name"], match["braces"], number))
        try:
            value = _number(match["value"])
            time_ns = None if match["time"] is None else _nanoseconds(match["time"], self._unit_ns)
            if match["exemplar"] is not None:
                batch.exemplars[len(batch)] = self._exemplar(match, number)
        except (ValueError, OverflowError):
            raise _refused(number, f"{text:.80} has no number where one belongs") from None
        batch.series.append(row)
        batch.times_ns.append(time_ns)
        batch.values.append(value)

    def _exemplar(self, match: re.Match[str], number: int) -> ExpositionExemplar:
        time_ns = None if match["seen_time"] is None else _nanoseconds(match["seen_time"], self._unit_ns)
        return ExpositionExemplar(_labels(None, match["about"], number), _number(match["seen"]), time_ns)


def _labels(name: str | None, braces: str | None, number: int) -> dict[str, str]:
    found = {METRIC_NAME: name} if name else {}
    inner = braces[1:-1].strip() if braces else ""
    at = 0
    while at < len(inner):
        match = _LABEL.match(inner, at)
        if match is None or (match["value"] is None and match["quoted"] is None):
            raise _refused(number, f"{inner[at:]:.60} is no label")
        key = match["name"] or _unescaped(match["quoted"][1:-1])
        if match["value"] is None:
            key, value = METRIC_NAME, key
        else:
            value = _unescaped(match["value"][1:-1])
        if key in found:
            raise _refused(number, f"the label {key} is there twice")
        found[key] = value
        at = match.end()
    return found


def _number(text: str) -> float:
    """Python reads more than the formats have: digits of other scripts, and underscores between them."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _nanoseconds(text: str, unit_ns: int) -> int:
    """A double of seconds has not all milliseconds of far times, so digits are read exactly."""
    plain = _DIGITS.fullmatch(text)
    if plain is None:
        return round(_number(text) * unit_ns)
    size = int(plain["whole"]) * unit_ns
    if plain["rest"]:
        size += round(int(plain["rest"]) * unit_ns / 10 ** len(plain["rest"]))
    return -size if plain["sign"] == "-" else size


def _note(text: str, families: dict[str, MetricFamily]) -> None:
    match = _NOTE.fullmatch(text)
    if match is None:
        return
    name = _unescaped(match["name"][1:-1]) if match["name"].startswith('"') else match["name"]
    known = families.get(name, MetricFamily())
    said = match["said"] or ""
    if match["kind"] == "TYPE":
        families[name] = MetricFamily("unknown" if said in ("", "untyped") else said, known.help, known.unit)
    elif match["kind"] == "HELP":
        families[name] = MetricFamily(known.type, _unescaped(said), known.unit)
    else:
        families[name] = MetricFamily(known.type, known.help, said)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def _refused(number: int, why: str, remedy: str = "") -> InvalidInput:
    return InvalidInput(f"line {number} cannot be read", why, remedy)
