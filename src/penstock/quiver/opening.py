"""Opening an instance: the lock, the segments' metadata, `ack.log`, then the log. Blocking.

Nothing that is found here stops the start: what cannot be read is set aside and reported. Memory does not grow with the
backlog, since segments' files are not read, and the log is only mapped.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.disk import Disk, explain, has_direct_writes
from penstock.errors import Conflict, InvalidInput, Unsupported
from penstock.ids import Entropy
from penstock.quiver.acks.ack_records import AckReplay, replay_ack_files
from penstock.quiver.config import QuiverConfig, WriteMode
from penstock.quiver.layout import Layout, scan_if_there
from penstock.quiver.log.frame_log import FrameLog
from penstock.quiver.log.frames import BadRegion
from penstock.quiver.log.log_files import LogFile, file_name, file_number, is_spare
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.shelf import SegmentShelf
from penstock.quiver.wal.replay import WalReplay, replay_wal_files

__all__ = ["ACK_SUFFIX", "Findings", "OpenedInstance", "full_path", "map_files", "open_instance"]

ACK_SUFFIX = ".log"


@dataclass(slots=True)
class Findings:
    """The findings of a start: in numbers of bundles where they are known, and by file where they are not."""

    replayed_bundles: int = 0
    expired_bundles: int = 0
    # Ranges of bundle numbers, the second one past the end, that were acknowledged and are gone.
    lost_bundles: list[tuple[int, int]] = field(default_factory=list)
    lost_segments: list[int] = field(default_factory=list)
    # "wal/0000….wal bytes 4096 to 5120": copied or moved into `aside`.
    set_aside: list[str] = field(default_factory=list)


@dataclass(slots=True)
class OpenedInstance:
    lock: AbstractContextManager[None]
    shelf: SegmentShelf
    segments: dict[int, SegmentMeta]
    ack: AckReplay
    ack_log: FrameLog
    wal: WalReplay
    wal_log: FrameLog
    findings: Findings


def open_instance(
    disk: Disk,
    layout: Layout,
    config: QuiverConfig,
    *,
    clock: Clock,
    entropy: Entropy,
) -> OpenedInstance:
    try:
        layout.make(disk)
        lock = _locked(disk, layout)
    except OSError as error:
        raise explain(f"the store {layout.path} cannot be opened", error) from error
    try:
        return _opened(disk, layout, config, lock, clock, entropy)
    except OSError as error:
        lock.__exit__(None, None, None)
        raise explain(f"the store {layout.path} cannot be opened", error) from error
    except BaseException:
        lock.__exit__(None, None, None)
        raise


def map_files(disk: Disk, folder: str, suffix: str) -> tuple[list[tuple[int, memoryview]], list[tuple[int, int]]]:
    """The files of a log in order, mapped; and its spares, as number and size."""
    files, spares = [], []
    for name, is_folder in scan_if_there(disk, folder):
        number = None if is_folder else file_number(name, suffix)
        if number is None:
            continue
        # Beside a running writer a file may go between the listing and this.
        with suppress(FileNotFoundError):
            if is_spare(name):
                spares.append((number, disk.stat(f"{folder}/{name}").size))
            else:
                files.append((number, disk.map(f"{folder}/{name}")))
    return sorted(files, key=lambda file: file[0]), spares


def _opened(
    disk: Disk,
    layout: Layout,
    config: QuiverConfig,
    lock: AbstractContextManager[None],
    clock: Clock,
    entropy: Entropy,
) -> OpenedInstance:
    findings = Findings()
    direct = _writes_directly(disk, layout.wal, config.wal.write_mode)
    shelf = SegmentShelf(disk, layout.segments, layout.aside, direct=direct)
    listing = shelf.listing()
    shelf.tidy(listing)
    if listing.metas:
        shelf.renew(max(listing.metas, key=lambda meta: meta.segment_seq))
    findings.set_aside += [f"segments/{name}" for name in listing.unreadable]
    ack_files, ack_spares = map_files(disk, layout.ack, ACK_SUFFIX)
    ack = replay_ack_files(ack_files, [(meta.segment_seq, meta.last_bundle) for meta in listing.metas])
    state = ack.state
    state.next_segment_seq = max(state.next_segment_seq, listing.next_segment_seq)
    state.drop_stale_seals()
    segments = _without_reclaimed(shelf, ack, listing.metas)
    wal_files, wal_spares = map_files(disk, layout.wal, ".wal")
    wal = replay_wal_files(wal_files, state.finalised_through)
    findings.lost_bundles = wal.lost
    # What is behind the last sound frame of a file is what the power interrupted: that is no damage.
    for number, region in [(file.number, region) for file in wal.files for region in file.bad if not region.is_tail]:
        findings.set_aside.append(_keep(disk, layout, "wal", file_name(number), dict(wal_files)[number], region))
    for number, region in [(number, region) for number, region in ack.bad if not region.is_tail]:
        name = file_name(number, ACK_SUFFIX)
        findings.set_aside.append(_keep(disk, layout, "ack", name, dict(ack_files)[number], region))
    wal_log = FrameLog(
        disk,
        layout.wal,
        rotation_size=config.wal.rotation_size,
        direct=direct,
        clock=clock,
        entropy=entropy,
        next_number=_next_number(wal_files, wal_spares),
        spares=wal_spares,
        spare_files=config.wal.spare_files,
    )
    wal_log.retired = [LogFile(file.number, file.size, file.end_record) for file in wal.files]
    ack_log = FrameLog(
        disk,
        layout.ack,
        rotation_size=config.ack_log_file_size,
        direct=direct,
        clock=clock,
        entropy=entropy,
        next_number=_next_number(ack_files, ack_spares),
        spares=ack_spares,
        spare_files=1,
        suffix=ACK_SUFFIX,
    )
    ack_log.retired = [LogFile(number, len(data), 0) for number, data in ack_files]
    return OpenedInstance(lock, shelf, segments, ack, ack_log, wal, wal_log, findings)


def _locked(disk: Disk, layout: Layout) -> AbstractContextManager[None]:
    lock = disk.lock(layout.lock)
    try:
        lock.__enter__()
    except BlockingIOError:
        raise Conflict(
            f"instance {layout.instance} of the store {layout.path} is already open",
            f"{disk.lock_holder(layout.lock)} writes it",
            "stop that process, or open another instance",
        ) from None
    return lock


def _writes_directly(disk: Disk, folder: str, mode: WriteMode) -> bool:
    if mode is WriteMode.BUFFERED:
        return False
    works = has_direct_writes(disk, folder)
    if mode is WriteMode.DIRECT and not works:
        raise Unsupported(
            f"{folder} cannot be written directly", "the file system refused a probe", "set wal.write_mode to auto"
        )
    return works


def _without_reclaimed(shelf: SegmentShelf, ack: AckReplay, metas: list[SegmentMeta]) -> dict[int, SegmentMeta]:
    """Segments that were to go, and whose removal a crash undid, go now."""
    gone = [meta for meta in metas if meta.segment_seq in ack.state.reclaimed]
    if gone:
        shelf.remove(gone)
    for meta in gone:
        ack.state.forget(meta.segment_seq)
    kept = {meta.segment_seq: meta for meta in sorted(metas, key=lambda meta: meta.segment_seq) if meta not in gone}
    # Without an ack.log nobody knows what was reclaimed; nothing below the first segment can come back.
    ack.state.reclaimed.raise_to(min([*kept, *ack.state.seals], default=ack.state.next_segment_seq) - 1)
    return kept


def _keep(disk: Disk, layout: Layout, kind: str, name: str, data: memoryview, region: BadRegion) -> str:
    """Copy a bad region, so that its file can be reused."""
    # Kept at an earlier start, or there is no room: then the report must do.
    with suppress(OSError):
        disk.create(f"{layout.aside}/{kind}-{name}-{region.offset}", bytes(data[region.offset : region.end]))
    return f"{kind}/{name} bytes {region.offset} to {region.end}"


def _next_number(files: list[tuple[int, memoryview]], spares: list[tuple[int, int]]) -> int:
    return max([0, *(number for number, _ in files), *(number for number, _ in spares)]) + 1


def full_path(path: str | os.PathLike[str]) -> str:
    """From the root on, so that a process that changes its folder later still writes here.

    The port follows no links: one that stands for the store is followed here, once. One that leads nowhere is kept, so
    that a disk that is not mounted is missed.
    """
    given: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str) or "\0" in given or not _has_a_name(given):
        raise InvalidInput(
            f"{path!r} cannot be the directory of a store",
            "its path must be text without NUL characters, in the encoding of file names",
            "name one",
        )
    if not given:
        raise InvalidInput("a store needs a directory", "its path is empty", "name one")
    path = str(Path(given).absolute())
    target = os.path.realpath(path)
    return target if Path(target).is_dir() else path


def _has_a_name(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True
