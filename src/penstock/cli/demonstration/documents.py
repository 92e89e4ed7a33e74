"""The demo's second act: documents in four formats become searchable, through a kill -9 in the middle.

The documents are the manual pages of Python's own library, written anew as text, Markdown, HTML and
Word. The act kills the indexing job once it is at work, runs it again, changes one document, deletes
another, and then checks that every chunk is there exactly once and that indexes and data agree.
"""

from __future__ import annotations

import asyncio
import html
import os
import pydoc
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired, run
from tempfile import TemporaryDirectory
from typing import Final

import docx
from rich.console import Console

from penstock.cli.settings.options import VECTOR_PATH
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import PenstockError
from penstock.indexing import read_entries
from penstock.vector import CollectionName, VectorStore

__all__ = ["DocumentsAct", "write_manuals"]

_INDEX: Final = "manuals"
_NAME: Final = CollectionName("default", _INDEX, EMBEDDED_MODEL)
# Steps take seconds; a machine with much else to do takes many times as long.
_SECONDS_MAX: Final = 900.0
_POLL_SECONDS: Final = 0.1
# Modules of the library whose manual pages are worth reading, and which do nothing when imported.
_MODULES: Final = """
argparse array ast asyncio base64 bisect bz2 calendar cmath cmd code codecs collections colorsys configparser
contextlib copy csv ctypes dataclasses datetime decimal difflib dis doctest email enum fileinput fnmatch fractions
ftplib functools gettext glob gzip hashlib heapq hmac html http imaplib inspect io ipaddress json keyword linecache
locale logging lzma mailbox math mimetypes mmap netrc numbers operator os pathlib pdb pickle platform plistlib
poplib pprint profile pstats queue quopri random re reprlib sched selectors shelve shlex shutil smtplib socket
sqlite3 ssl statistics string struct subprocess sys tarfile tempfile textwrap threading time timeit token trace
traceback types typing unicodedata unittest urllib uuid warnings wave weakref xml zipfile
"""


def write_manuals(folder: Path) -> int:
    """Write the library's manual pages in four formats, and return their number."""
    folder.mkdir(parents=True)
    for number, name in enumerate(_MODULES.split()):
        write = (_write_text, _write_markdown, _write_html, _write_word)[number % 4]
        # A Python built without some library still has enough to read.
        with suppress(ImportError, pydoc.ErrorDuringImport):
            write(folder, name, pydoc.plain(pydoc.render_doc(name)))
    return len(list(folder.iterdir()))


class DocumentsAct:
    """Index, be killed, resume, change, delete, search, check: in one directory."""

    def __init__(self, directory: Path, console: Console) -> None:
        self._folder = directory / "manuals"
        self._store = directory / "documents"
        self._console = console

    def play(self) -> bool:
        count = write_manuals(self._folder)
        size_mb = sum(path.stat().st_size for path in self._folder.iterdir()) / 1e6
        self._say(f"{count} manual pages of Python's library, {size_mb:.1f} MB of text, Markdown, HTML and Word")
        self._kill_at_work()
        self._say("[red]kill -9[/] of the indexing job, driver and all, while it is at work")
        self._say(f"run it again: {self._index()}")
        self._change()
        self._say(f"change one document and delete another: {self._index()}")
        self._say(f"nothing changed: {self._index()}")
        self._show("how do I compress a file with gzip")
        return self._check(asyncio.run(_look(self._url)), count)

    def _check(self, found: _Found, written: int) -> bool:
        self._console.print(
            f"{found.documents:,} documents are current, {found.expected_chunks:,} chunks in their reports, "
            f"{found.stored_chunks:,} in the index, {len(found.problems)} problems between indexes and data"
        )
        for problem in found.problems:
            self._console.print(f"  {problem}", markup=False)
        passed = (
            found.documents == written - 1 and found.expected_chunks == found.stored_chunks > 0 and not found.problems
        )
        self._console.print("[bold green]exactly once[/]" if passed else "[bold red]not exactly once[/]")
        return passed

    def _kill_at_work(self) -> None:
        """Kill the whole process group once Spark has planned its first micro-batch."""
        with (
            TemporaryDirectory(prefix="penstock-demo-") as temporary,
            # Its checkpoint is temporary: here it can be watched, and is removed although the job is killed.
            Popen(
                self._command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
                start_new_session=True,
                env={**os.environ, "TMPDIR": temporary},
            ) as job,
        ):
            for _ in range(int(_SECONDS_MAX / _POLL_SECONDS)):
                planned = any(Path(temporary).glob(".penstock-*/checkpoint-*/offsets/0"))
                if planned or _ended_within(job, _POLL_SECONDS):
                    break
            # Gone already where the job ended by itself: the next step tells why.
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)

    def _index(self) -> str:
        answer = run(
            self._command, stdin=DEVNULL, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False, env=_WIDE
        )
        if answer.returncode != 0:
            raise PenstockError("the indexing job of the demo failed", answer.stderr[-500:], "run `penstock doctor`")
        # Documents, chunks and time; a run with nothing to do says so in one line.
        return "; ".join(" ".join(line.split()) for line in answer.stdout.strip().splitlines()[-3:])

    def _change(self) -> None:
        with (self._folder / "argparse.txt").open("a") as page:
            page.write("\n\nThe demo of Penstock was here.\n")
        for path in self._folder.glob("xml.*"):
            path.unlink()

    def _show(self, words: str) -> None:
        self._say(f'search for "{words}"')
        options = ["--store", str(self._store), "--index", _INDEX, "-n", "2"]
        answer = run([*_PENSTOCK, "search", words, *options], capture_output=True, text=True, check=True)
        self._console.print(answer.stdout.rstrip(), markup=False)

    @property
    def _url(self) -> str:
        return self._store.as_uri()

    @property
    def _command(self) -> list[str]:
        return [*_PENSTOCK, "index", str(self._folder), "--store", str(self._store), "--index", _INDEX]

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]documents[/]  {text}")


# Lines are cut by nobody but us.
_WIDE: Final = {**os.environ, "COLUMNS": "200"}
_PENSTOCK: Final = (sys.executable, "-m", "penstock.cli")


@dataclass(frozen=True)
class _Found:
    """What the reports say against what the index holds."""

    documents: int
    expected_chunks: int
    stored_chunks: int
    problems: list[str]


async def _look(url: str) -> _Found:
    entries = [entry for entry in await read_entries(url, _NAME) if entry.current and entry.report]
    async with await VectorStore.open(url, VECTOR_PATH) as store:
        reports = await store.verify()
        rows = [stats.rows for stats in await store.stats() if stats.name == _NAME]
    chunks = sum(entry.report.chunks for entry in entries if entry.report)
    return _Found(len(entries), chunks, sum(rows), [problem for report in reports for problem in report.problems])


def _ended_within(process: Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except TimeoutExpired:
        return False
    return True


def _write_text(folder: Path, name: str, page: str) -> None:
    (folder / f"{name}.txt").write_text(page)


def _write_markdown(folder: Path, name: str, page: str) -> None:
    lines = [f"## {line.title()}" if line.isupper() else line for line in page.splitlines()]
    (folder / f"{name}.md").write_text(f"# The module {name}\n\n" + "\n".join(lines))


def _write_html(folder: Path, name: str, page: str) -> None:
    paragraphs = "".join(f"<p>{html.escape(part)}</p>\n" for part in page.split("\n\n"))
    title = f"The module {name}"
    (folder / f"{name}.html").write_text(
        f"<!doctype html><html><head><title>{title}</title></head><body><h1>{title}</h1>\n{paragraphs}</body></html>"
    )


def _write_word(folder: Path, name: str, page: str) -> None:
    document = docx.Document()
    document.add_heading(f"The module {name}")
    for part in page.split("\n\n"):
        document.add_paragraph("".join(character for character in part if character.isprintable() or character == "\n"))
    document.save(str(folder / f"{name}.docx"))
