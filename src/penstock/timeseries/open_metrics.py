"""OpenMetrics text, read and written: what `/metrics` of a process says, with timestamps where it has some.

A text that ends with `# EOF` is OpenMetrics, with times in seconds; one without is Prometheus' older format, with times
in milliseconds. Exemplars and `_created` times are passed over. A line that cannot be read is refused with its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.errors import InvalidInput
from penstock.timeseries.promql.labels import METRIC_NAME
from penstock.timeseries.promql.source import SeriesColumns, is_stale
from penstock.timeseries.promql.syntax.number_text import general_text
from penstock.timeseries.samples import MetricMetadata, SampleBatch

__all__ = ["read_open_metrics", "write_open_metrics"]

_SAMPLE: Final = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)?(?P<braces>\{(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*\})?\s+"
    r"(?P<value>\S+)(?:\s+(?P<time>[^#\s]\S*))?(?:\s+#.*)?"
)
_LABEL: Final = re.compile(
    r"\s*(?:(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)|(?P<quoted>\"(?:[^\"\\]|\\.)*\"))\s*"
    r"(?:=\s*(?P<value>\"(?:[^\"\\]|\\.)*\")\s*)?(?:,|$)"
)
_PLAIN_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPE: Final = re.compile(r"\\(.)")
_PLAIN_TIME: Final = re.compile(r"(?P<sign>-)?(?P<whole>\d{1,16})(?:\.(?P<rest>\d{1,9}))?")
_END: Final = "# EOF"
_BATCH_SAMPLES: Final = 100_000


def read_open_metrics(
    lines: Iterable[str], *, default_ms: int, seconds: bool = True, batch_samples: int = _BATCH_SAMPLES
) -> Iterator[SampleBatch]:
    """Batches of the samples in a text. `default_ms` is the time of those that have none; `seconds` the unit of others."""
    reading = _Batch()
    about: dict[str, MetricMetadata] = {}
    unit = 1000 if seconds else 1
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text == _END:
            break
        if text.startswith("#"):
            _note(text, about)
        elif text:
            reading.add(text, number, default_ms, unit)
        if reading.size >= batch_samples:
            yield reading.taken(about)
            reading, about = _Batch(), {}
    if reading.size or about:
        yield reading.taken(about)


class _Batch:
    """Samples by series, until there are enough of them."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._labels: list[dict[str, str]] = []
        self._series: list[int] = []
        self._times: list[int] = []
        self._values: list[float] = []

    @property
    def size(self) -> int:
        return len(self._values)

    def add(self, text: str, number: int, default_ms: int, unit: int) -> None:
        match = _SAMPLE.fullmatch(text)
        if match is None or (match["name"] is None and match["braces"] is None):
            raise InvalidInput(f"line {number} cannot be read", f"{text:.80} is no sample")
        head = text[: match.start("value")]
        row = self._rows.get(head)
        if row is None:
            row = self._rows[head] = len(self._labels)
            self._labels.append(_labels(match["name"], match["braces"], number))
        try:
            value = float(match["value"])
            time_ms = default_ms if match["time"] is None else _milliseconds(match["time"], unit)
        except (ValueError, OverflowError):
            raise InvalidInput(f"line {number} cannot be read", f"{text:.80} has no number where one belongs") from None
        self._series.append(row)
        self._times.append(time_ms)
        self._values.append(value)

    def taken(self, about: Mapping[str, MetricMetadata]) -> SampleBatch:
        return SampleBatch.of(self._labels, self._series, self._times, self._values, about)


def _labels(name: str | None, braces: str | None, number: int) -> dict[str, str]:
    found = {METRIC_NAME: name} if name else {}
    inner = braces[1:-1].strip() if braces else ""
    at = 0
    while at < len(inner):
        match = _LABEL.match(inner, at)
        if match is None or (match["value"] is None and match["quoted"] is None):
            raise InvalidInput(f"line {number} cannot be read", f"{inner[at:]:.60} is no label")
        key = match["name"] or _unescaped(match["quoted"])
        if match["value"] is None:
            key, value = METRIC_NAME, key
        else:
            value = _unescaped(match["value"])
        if key in found:
            raise InvalidInput(f"line {number} cannot be read", f"the label {key} is there twice")
        found[key] = value
        at = match.end()
    return found


def _milliseconds(text: str, unit: int) -> int:
    """A time in so many to a second. A double of seconds has not all milliseconds of far times: digits are read exactly."""
    plain = _PLAIN_TIME.fullmatch(text)
    if plain is None:
        return round(float(text) * unit)
    digits = (plain["rest"] or "").ljust(3, "0")
    if unit == 1 or len(digits) > 3:
        return round(float(text) * unit)
    size = int(plain["whole"]) * 1000 + int(digits)
    return -size if plain["sign"] else size


def _unescaped(quoted: str) -> str:
    return _ESCAPE.sub(lambda match: {"n": "\n"}.get(match[1], match[1]), quoted[1:-1])


def _note(text: str, about: dict[str, MetricMetadata]) -> None:
    parts = text[1:].split(None, 2)
    if len(parts) < 2 or parts[0] not in ("TYPE", "HELP", "UNIT"):
        return
    name = _unescaped(parts[1]) if parts[1].startswith('"') else parts[1]
    known = about.get(name, MetricMetadata())
    said = parts[2] if len(parts) > 2 else ""
    if parts[0] == "TYPE":
        about[name] = MetricMetadata(said or "unknown", known.help, known.unit)
    elif parts[0] == "HELP":
        about[name] = MetricMetadata(known.type, _ESCAPE.sub(lambda m: {"n": "\n"}.get(m[1], m[1]), said), known.unit)
    else:
        about[name] = MetricMetadata(known.type, known.help, said)


def write_open_metrics(columns: SeriesColumns, about: Mapping[str, MetricMetadata] | None = None) -> Iterator[str]:
    """Lines without their ends. Staleness markers have no text of their own and are left out."""
    families = about or {}
    told: set[str] = set()
    stale = is_stale(columns.values)
    for row, labels in enumerate(columns.labels):
        pairs = dict(labels)
        name = pairs.pop(METRIC_NAME, "")
        family = _family(name, families)
        if family is not None and family not in told:
            told.add(family)
            yield from _described(family, families[family])
        series = _series_text(name, pairs)
        for at in range(columns.offsets[row], columns.offsets[row + 1]):
            if not stale[at]:
                value = general_text(float(columns.values[at]))
                yield f"{series} {value} {_seconds(int(columns.timestamps[at]))}"
    yield _END


def _family(name: str, families: Mapping[str, MetricMetadata]) -> str | None:
    """The family that a sample belongs to: its own name, or one without the suffix of its kind."""
    for suffix in ("", "_total", "_bucket", "_count", "_sum", "_info"):
        if name.endswith(suffix) and (found := name[: len(name) - len(suffix)]) in families:
            return found
    return None


def _described(family: str, about: MetricMetadata) -> Iterator[str]:
    name = family if _PLAIN_NAME.fullmatch(family) else _quoted(family)
    if about.type:
        yield f"# TYPE {name} {about.type}"
    if about.unit:
        yield f"# UNIT {name} {about.unit}"
    if about.help:
        escaped = about.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        yield f"# HELP {name} {escaped}"


def _series_text(name: str, labels: Mapping[str, str]) -> str:
    pairs = [
        f"{key if _PLAIN_LABEL.fullmatch(key) else _quoted(key)}={_quoted(value)}" for key, value in labels.items()
    ]
    if _PLAIN_NAME.fullmatch(name):
        return f"{name}{{{','.join(pairs)}}}" if pairs else name
    return f"{{{','.join([_quoted(name), *pairs])}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'


def _seconds(time_ms: int) -> str:
    sign, size = ("-", -time_ms) if time_ms < 0 else ("", time_ms)
    whole, rest = divmod(size, 1000)
    return f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}"
