"""Words in and out: what our parsers keep of documents that nobody here wrote, by format, beside other extractors.

    python benchmarks/words_kept.py FOLDER... [--below 0.95]

The words of a file are those of an extractor that shares no code with ours: `pdftotext` and `pandoc` where they are
installed, else a plain walk through the texts of its XML, its cells or its parts. A word is kept when ours has it too, as
often. Files that the other extractor cannot read, or finds no word in, count as files only; refusals are told by reason.
"""

from __future__ import annotations

import argparse
import email
import re
import shutil
import subprocess
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import default
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from penstock.documents.parsers import Sandbox
from penstock.errors import PenstockError

WORD: Final = re.compile(r"\w+")
TOOL_SECONDS_MAX: Final = 60
FILE_BYTES_MAX: Final = 32 << 20
# Parts of an archive whose texts a reader sees.
PARTS: Final = {
    "docx": re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"),
    "pptx": re.compile(r"ppt/(slides|notesSlides)/[^/]+\.xml"),
    "odt": re.compile(r"content\.xml"),
    "odp": re.compile(r"content\.xml"),
    "ods": re.compile(r"content\.xml"),
    "epub": re.compile(r".*\.x?html?"),
}
# Elements that end a word.
BREAKS: Final = frozenset(
    ("p", "br", "tab", "cr", "tc", "h", "s", "line-break", "table-cell", "td", "div", "li", "row")
)
# What no reader sees: deleted text, field codes, and the second rendering of a shape for programs that know only that.
UNSEEN: Final = frozenset(
    ("delText", "instrText", "Fallback", "tracked-changes", "script", "style", "head", "tableStyleId")
)
PANDOC: Final = {"docx": "docx", "odt": "odt", "epub": "epub", "rtf": "rtf"}


@dataclass
class Tally:
    files: int = 0
    compared: int = 0
    words: int = 0
    kept: int = 0
    refused: Counter[str] = field(default_factory=Counter)


# The other extractors ----------------------------------------------------------------------------


def by_tool(*command: str) -> Callable[[Path], str | None]:
    """The text that a program prints; None when it fails."""

    def run(path: Path) -> str | None:
        arguments = [str(path) if part == "FILE" else part for part in command]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=TOOL_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None

    return run


def by_parts(kind: str) -> Callable[[Path], str | None]:
    """The texts of the XML parts of an archive, in the order of their names."""

    def walk(path: Path) -> str | None:
        with zipfile.ZipFile(path) as archive:
            names = sorted(name for name in archive.namelist() if PARTS[kind].fullmatch(name))
            return "\n".join("".join(texts(ElementTree.fromstring(archive.read(name)))) for name in names)

    return walk


def texts(element: ElementTree.Element) -> Iterable[str]:
    name = element.tag.rpartition("}")[2]
    if name not in UNSEEN:
        yield element.text or ""
        for child in element:
            yield from texts(child)
            yield child.tail or ""
    if name in BREAKS:
        yield "\n"


def by_cells(path: Path) -> str | None:
    """The shared and inline texts of a workbook."""
    with zipfile.ZipFile(path) as archive:
        found: list[str] = []
        if "xl/sharedStrings.xml" in archive.namelist():
            shared = ElementTree.parse(BytesIO(archive.read("xl/sharedStrings.xml"))).getroot()
            found += ["".join(part.text or "" for part in entry.iter() if part.tag.endswith("}t")) for entry in shared]
        return "\n".join(found)


class Visible(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self._hidden += tag in UNSEEN
        self.found.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in UNSEEN and self._hidden > 0
        self.found.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.found.append(data)


def by_tags(path: Path) -> str | None:
    page = Visible()
    page.feed(path.read_bytes().decode("utf-8", "replace"))
    return "".join(page.found)


def by_body(path: Path) -> str | None:
    """The plain body of a message; of one without, nothing is compared."""
    message = email.message_from_bytes(path.read_bytes(), _class=EmailMessage, policy=default)
    body = message.get_body(("plain",))
    return body.get_content() if body is not None else None


def by_lines(path: Path) -> str | None:
    return path.read_text(encoding="utf-8")


def extractors() -> dict[str, Callable[[Path], str | None]]:
    found: dict[str, Callable[[Path], str | None]] = {kind: by_parts(kind) for kind in PARTS}
    found |= {"xlsx": by_cells, "eml": by_body, "html": by_tags, "htm": by_tags, "csv": by_lines, "txt": by_lines}
    if shutil.which("pdftotext"):
        found["pdf"] = by_tool("pdftotext", "-q", "FILE", "-")
    if shutil.which("pandoc"):
        found["rtf"] = by_tool("pandoc", "-f", "rtf", "-t", "plain", "--wrap=none", "FILE")
    return found


# The comparison ----------------------------------------------------------------------------------


def words_of(text: str) -> Counter[str]:
    return Counter(word.casefold() for word in WORD.findall(text.replace("\u00ad", "")))


def kept_words(expected: Counter[str], found: Counter[str]) -> int:
    return sum((expected & found).values())


def reference_words(path: Path, kind: str, readers: dict[str, Callable[[Path], str | None]]) -> Counter[str]:
    try:
        text = readers[kind](path) if kind in readers else None
    except (OSError, ValueError, KeyError, SyntaxError, LookupError, zipfile.BadZipFile, RecursionError):
        text = None
    return words_of(text or "")


def measure(paths: Iterable[Path], below: float) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    readers = extractors()
    with Sandbox() as sandbox:
        for path in paths:
            kind = path.suffix.lower().lstrip(".") or "eml"
            tally = tallies[kind]
            tally.files += 1
            try:
                name = path.name if path.suffix else f"{path.name}.eml"
                parsed = sandbox.parse(path.read_bytes(), tenant="words", name=name)
            except PenstockError as error:
                tally.refused[error.what] += 1
                continue
            expected = reference_words(path, kind, readers)
            if not expected:
                continue
            kept = kept_words(expected, words_of(parsed.text.decode()))
            tally.compared += 1
            tally.words += expected.total()
            tally.kept += kept
            if kept < below * expected.total():
                lost = expected - words_of(parsed.text.decode())
                sample = " ".join(word for word, _ in lost.most_common(12))
                print(
                    f"{kept / expected.total():6.1%} of {expected.total():,} words: {path}: without {sample}",
                    flush=True,
                )
    return tallies


def report(tallies: dict[str, Tally]) -> None:
    print("| format | files | compared | words | kept | refused |\n| --- | --- | --- | --- | --- | --- |")
    for kind, tally in sorted(tallies.items()):
        share = f"{tally.kept / tally.words:.1%}" if tally.words else "–"
        reasons = "; ".join(f"{count} {why}" for why, count in tally.refused.most_common()) or "–"
        print(f"| {kind} | {tally.files:,} | {tally.compared:,} | {tally.words:,} | {share} | {reasons} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--below", type=float, default=0.95, help="share of kept words below which a file is listed")
    parser.add_argument(
        "--kinds", default="", help="suffixes to read, separated by commas; all that are known if empty"
    )
    parser.add_argument("--most", type=int, default=300, help="files of a format that are read")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.kinds.split(","))) or {*PARTS, "pdf", "rtf", "xlsx", "eml", "html", "csv"}
    seen: Counter[str] = Counter()
    chosen = []
    for path in sorted(path for folder in arguments.folders for path in folder.rglob("*")):
        kind = path.suffix.lower().lstrip(".") or ("eml" if path.parent.name == "mails" else "")
        if kind in wanted and path.is_file() and path.stat().st_size <= FILE_BYTES_MAX and seen[kind] < arguments.most:
            seen[kind] += 1
            chosen.append(path)
    report(measure(chosen, arguments.below))


if __name__ == "__main__":
    main()
