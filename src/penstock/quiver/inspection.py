"""A look at a store from outside: what it holds, and what of it cannot be read. Only reads, and takes no lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.disk import Disk, explain
from penstock.errors import Corrupt, NotFound
from penstock.quiver.acks.ack_records import replay_ack_files
from penstock.quiver.acks.ack_state import AckState
from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.payload import decode_bundles
from penstock.quiver.layout import Layout, instances_of, scan_if_there
from penstock.quiver.log.frames import BadRegion
from penstock.quiver.log.log_files import file_name
from penstock.quiver.opening import ACK_SUFFIX, map_files
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.segment.shelf import SegmentShelf
from penstock.quiver.wal.replay import WalReplay, replay_wal_files

__all__ = ["InstanceReport", "inspect_instance", "inspect_store", "stored_tables"]


# How often a store that changes under the reader is read at most.
_READS_MAX: Final = 5


@dataclass(slots=True)
class InstanceReport:
    """One instance as its files are now. A writer that runs may have more in memory."""

    instance: int
    segments: list[SegmentMeta]
    state: AckState
    wal: WalReplay
    wal_bytes: int
    ack_bytes: int
    ack_records: int
    # What cannot be read, one line each; empty for a sound store.
    damage: list[str] = field(default_factory=list)

    @property
    def waiting_bundles(self) -> int:
        """Bundles of the log that are in no segment yet."""
        return sum(frame.count for frame in self.wal.frames)

    @property
    def segment_bytes(self) -> int:
        return sum(meta.bytes for meta in self.segments)


def inspect_store(disk: Disk, path: str, *, check_payloads: bool = False) -> list[InstanceReport]:
    """All instances of a directory. `check_payloads` reads every segment file and checks it."""
    try:
        instances = instances_of(disk, path)
    except OSError as error:
        raise explain(f"the store {path} cannot be read", error) from error
    if not instances:
        raise NotFound(f"there is no store in {path}", "it has no instance", "check the path")
    return [inspect_instance(disk, Layout(path, number), check_payloads=check_payloads) for number in instances]


def inspect_instance(disk: Disk, layout: Layout, *, check_payloads: bool = False) -> InstanceReport:
    """What looks like damage is looked at again: only what stays is none of a running writer's doing."""
    report = _look(disk, layout, check_payloads)
    for _ in range(_READS_MAX):
        if not report.damage:
            break
        before, report = report.damage, _look(disk, layout, check_payloads)
        found, report.damage = report.damage, [line for line in report.damage if line in before]
        if found == before:
            break
    return report


def _look(disk: Disk, layout: Layout, check_payloads: bool) -> InstanceReport:
    shelf = SegmentShelf(disk, layout.segments, layout.aside)
    listing = shelf.listing()
    ack_files, ack_spares = map_files(disk, layout.ack, ACK_SUFFIX)
    ack = replay_ack_files(ack_files, [(meta.segment_seq, meta.last_bundle) for meta in listing.metas])
    segments = [meta for meta in listing.metas if meta.segment_seq not in ack.state.reclaimed]
    wal_files, wal_spares = map_files(disk, layout.wal, ".wal")
    wal = replay_wal_files(wal_files, ack.state.finalised_through)
    report = InstanceReport(
        layout.instance,
        sorted(segments, key=lambda meta: meta.segment_seq),
        ack.state,
        wal,
        wal_bytes=sum(len(data) for _, data in wal_files) + sum(size for _, size in wal_spares),
        ack_bytes=sum(len(data) for _, data in ack_files) + sum(size for _, size in ack_spares),
        ack_records=ack.records,
    )
    report.damage += [f"segments/{name}: the metadata cannot be read" for name in listing.unreadable]
    report.damage += [_line("wal", file_name(file.number), bad) for file in wal.files for bad in file.bad]
    report.damage += [_line("ack", file_name(number, ACK_SUFFIX), bad) for number, bad in ack.bad]
    report.damage += [f"wal: bundles {first} to {end - 1} are lost" for first, end in wal.lost]
    if check_payloads:
        report.damage += [line for meta in report.segments for line in _payload_damage(shelf, meta)]
    return report


def stored_tables(disk: Disk, path: str) -> dict[str, list[pa.Table]]:
    """Every slot's rows: of all segments, and of what is only in the log. What cannot be read is left out.

    Beside a running writer, rows move from the log into a segment meanwhile: then all is read once more.
    """
    slots: dict[str, list[pa.Table]] = {}
    for instance in sorted(report.instance for report in inspect_store(disk, path)):
        layout = Layout(path, instance)
        for _ in range(_READS_MAX):
            before = _file_names(disk, layout)
            found = _instance_tables(disk, layout)
            if _file_names(disk, layout) == before:
                break
        for slot, tables in found.items():
            slots.setdefault(slot, []).extend(tables)
    return slots


def _instance_tables(disk: Disk, layout: Layout) -> dict[str, list[pa.Table]]:
    slots: dict[str, list[pa.Table]] = {}
    report = inspect_instance(disk, layout)
    shelf = SegmentShelf(disk, layout.segments, layout.aside)
    for meta in report.segments:
        try:
            found = shelf.read(meta)
        except Corrupt:
            continue
        for slot, tables in found.items():
            slots.setdefault(slot, []).extend(tables)
    for bundle in _logged(report):
        for slot, batch in bundle.slots.items():
            slots.setdefault(slot, []).append(pa.Table.from_batches([batch]))
    return slots


def _file_names(disk: Disk, layout: Layout) -> list[tuple[str, bool]]:
    """They change whenever a segment comes or goes, or a file of the log is given back."""
    return [*scan_if_there(disk, layout.segments), *scan_if_there(disk, layout.wal)]


def _logged(report: InstanceReport) -> Iterator[Bundle]:
    for frame in report.wal.frames:
        try:
            # A copy: a running writer may use the file again, and change what is mapped.
            bundles = decode_bundles(memoryview(bytes(frame.payload)))[1]
        except Corrupt:
            continue
        yield from bundles[max(0, report.state.finalised_through + 1 - frame.sequence) :]


def _payload_damage(shelf: SegmentShelf, meta: SegmentMeta) -> list[str]:
    try:
        shelf.read(meta)
    except Corrupt as error:
        return [f"segments/{meta.segment_seq}: {error.what}: {error.why}"]
    return []


def _line(kind: str, name: str, bad: BadRegion) -> str:
    what = "the last write did not come to its end, or is damaged" if bad.is_tail else "no record can be read there"
    return f"{kind}/{name} from byte {bad.offset}: {what}"
