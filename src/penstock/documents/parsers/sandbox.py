"""Parsing in confined processes, each of one tenant, with limits on memory, processor time, time and depth.

A document that is too much for its parser costs one process and gets a clear outcome: `AtCapacity` for a limit,
`InvalidInput` for a document that is broken, `Unsupported` for one there is no way to read. The next document gets a
fresh process. Plain text in UTF-8 is not parsed, and needs none. A process never serves two tenants: what a document
does to its parser stays with whoever uploaded it. Loading a parser takes longer than most documents: whoever parses a
few now and a few later takes a `lasting_sandbox`.
"""

from __future__ import annotations

import atexit
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import msgspec

from penstock.documents.parsers.encodings import is_utf8
from penstock.documents.parsers.formats import (
    Format,
    ParsedDocument,
    ParserLimits,
    ParserOptions,
    UnstructuredCode,
    check_size,
)
from penstock.documents.parsers.isolation.confinement import Layer
from penstock.documents.parsers.plugins import Plugins
from penstock.documents.parsers.processes.messages import ParserSetup, Request
from penstock.documents.parsers.processes.process import ParserProcess
from penstock.documents.parsers.sniffing import SNIFF_BYTES, sniff

__all__ = ["Sandbox", "lasting_sandbox"]

# Tenants whose processes are kept; of the others, the one that was used longest ago ends.
_PROCESSES_MAX: Final = 4
_MARK: Final = b"\xef\xbb\xbf"


class Sandbox:
    """Parses one document at a time. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, limits: ParserLimits | None = None, options: ParserOptions | None = None) -> None:
        self.limits = limits or ParserLimits()
        self.options = options or ParserOptions()
        self._plugins = Plugins(self.options)
        self._processes: OrderedDict[str, ParserProcess] = OrderedDict()

    def parse(
        self, data: bytes, *, tenant: str, name: str = "", content_type: str | None = None, budget: int | None = None
    ) -> ParsedDocument:
        """The text of a tenant's document, whatever its format; `name` and `content_type` are hints.

        With a `budget`, in seconds of processor time, a document that needs more of what it may take is `OverBudget`.
        """
        check_size(f"document {name[:120]!r}", len(data), self.limits.document_bytes)
        plugin = self._plugins.find(data[:SNIFF_BYTES], name, content_type) or ""
        found = Format.PLUGIN if plugin else sniff(data, name=name, content_type=content_type)
        if found is Format.TEXT and is_utf8(data):
            return ParsedDocument(data.removeprefix(_MARK), Format.TEXT, encoding="utf-8")
        short = budget if budget is not None and budget < self.limits.cpu_seconds else None
        request = Request(found, data, content_type or "", short, name, plugin)
        try:
            return self._ask(tenant, request)
        except UnstructuredCode as error:
            parsed = self._ask(tenant, msgspec.structs.replace(request, structured=False))
            warning = f"{error.what}: it was read as plain text"
            return msgspec.structs.replace(parsed, warnings=(*parsed.warnings, warning))

    def format_of(self, head: bytes, *, name: str = "", content_type: str | None = None) -> Format:
        """What a document is, from its first bytes and the hints; `PLUGIN` where an added parser takes it."""
        plugin = self._plugins.find(head[:SNIFF_BYTES], name, content_type)
        return Format.PLUGIN if plugin else sniff(head, name=name, content_type=content_type)

    def layers(self) -> tuple[Layer, ...]:
        """What confines the parsers on this machine, told by one."""
        self._ask("", Request(Format.TEXT, b""))
        return self._processes[""].layers

    def _ask(self, tenant: str, request: Request) -> ParsedDocument:
        process = self._running(tenant)
        try:
            return process.parse(request)
        finally:
            if not process.usable:
                self._processes.pop(tenant).stop()

    @property
    def broken(self) -> bool:
        """Whether a process ended of itself since its last document."""
        return any(process.ended for process in self._processes.values())

    def close(self) -> None:
        while self._processes:
            self._processes.popitem()[1].stop()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _running(self, tenant: str) -> ParserProcess:
        if tenant not in self._processes:
            self._processes[tenant] = ParserProcess(ParserSetup(self.limits, self.options, tuple(self._plugins.specs)))
            if len(self._processes) > _PROCESSES_MAX:
                self._processes.popitem(last=False)[1].stop()
        self._processes.move_to_end(tenant)
        return self._processes[tenant]


@contextmanager
def lasting_sandbox(limits: ParserLimits, options: ParserOptions | None = None) -> Iterator[Sandbox]:
    """A sandbox whose processes stay when it is given back, for the next who takes one here with the same settings.

    One is kept, until this process ends: its parsers see their pipes closed then, and end too.
    """
    chosen = options or ParserOptions()
    sandbox = _kept_for(limits, chosen) or Sandbox(limits, chosen)
    try:
        yield sandbox
    except BaseException:
        sandbox.close()
        raise
    _release()
    _kept.append((os.getpid(), sandbox))


# At most one, and whose: a forked process must not talk to its parent's parsers.
_kept: Final[list[tuple[int, Sandbox]]] = []


def _kept_for(limits: ParserLimits, options: ParserOptions) -> Sandbox | None:
    try:
        # Taken out in one step: two threads never get the same one.
        owner, sandbox = _kept.pop()
    except IndexError:
        return None
    if owner == os.getpid() and (sandbox.limits, sandbox.options) == (limits, options) and not sandbox.broken:
        return sandbox
    _kept.append((owner, sandbox))
    return None


def _release() -> None:
    """End the one that is kept."""
    while _kept:
        owner, sandbox = _kept.pop()
        if owner == os.getpid():
            sandbox.close()


atexit.register(_release)
