"""What the commands of a quiver find out and do, as plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pyarrow as pa

from penstock.disk import RealDisk
from penstock.errors import NotFound
from penstock.quiver import Delivery, InstanceReport, Quiver, QuiverConfig, inspect_store

__all__ = ["damage_of", "drain_segments", "repair_store", "replay_segments", "segments_of", "status_of"]

T = TypeVar("T")
# A name has 255 bytes at most, and its other parts take less than 50.
_SLOT_CHARACTERS_MAX: Final = 150


def status_of(path: str) -> list[dict[str, Any]]:
    return [_status(report) for report in inspect_store(RealDisk(), _full(path))]


def segments_of(path: str) -> list[dict[str, Any]]:
    return [
        {
            "instance": report.instance,
            "segment_seq": meta.segment_seq,
            "bundles": meta.bundles,
            "rows": meta.rows,
            "bytes": meta.bytes,
            "ingested": datetime.fromtimestamp(meta.ingestion_ms[0] / 1000, UTC).isoformat(timespec="seconds"),
            "ingestion_ms": meta.ingestion_ms,
            "event_time_ns": meta.event_time_ns,
            "signals": meta.signals,
            "slots": sorted({stream.slot for stream in meta.streams}),
            "schemas": sorted({stream.fingerprint for stream in meta.streams}),
            "waits_for": sorted(report.state.outstanding.get(meta.segment_seq, ())),
        }
        for report in inspect_store(RealDisk(), _full(path))
        for meta in report.segments
    ]


def damage_of(path: str) -> dict[int, list[str]]:
    return {report.instance: report.damage for report in inspect_store(RealDisk(), _full(path), check_payloads=True)}


def repair_store(path: str, instance: int, config_file: str | None) -> dict[str, Any]:
    async def work(store: Quiver) -> dict[str, Any]:
        found = await store.repair()
        return {
            "instance": instance,
            "replayed_bundles": found.replayed_bundles,
            "expired_bundles": found.expired_bundles,
            "lost_bundles": found.lost_bundles,
            "lost_segments": found.lost_segments,
            "set_aside": found.set_aside,
        }

    return _opened(path, instance, config_file, work)


def replay_segments(path: str, subscriber: str, first: int | None, instance: int, config_file: str | None) -> list[int]:
    async def work(store: Quiver) -> list[int]:
        chosen = None if first is None else [meta.segment_seq for meta in store.segments if meta.segment_seq >= first]
        return await store.replay(subscriber, chosen)

    return _opened(path, instance, config_file, work)


def drain_segments(path: str, subscriber: str, into: str, instance: int, config_file: str | None) -> list[str]:
    folder = Path(into)
    folder.mkdir(parents=True, exist_ok=True)

    async def work(store: Quiver) -> list[str]:
        if subscriber not in store.state.subscriptions:
            raise NotFound(f"no subscriber {subscriber!r} is registered", f"{path} has others", "see its status")
        await store.flush()
        await store.register(subscriber)
        files: list[str] = []
        while (delivery := await store.next(subscriber, 0.0)) is not None:
            files += await _copied(delivery, folder)
            await delivery.ack()
        return files

    return _opened(path, instance, config_file, work)


async def _copied(delivery: Delivery, folder: Path) -> list[str]:
    """The segment's tables under its number, synced before it is acknowledged."""
    files: list[str] = []
    for slot, tables in (await delivery.read()).items():
        for table in tables:
            # The count tells files apart whose slots look alike in a file's name.
            name = quote(slot, safe=" ")[:_SLOT_CHARACTERS_MAX]
            target = folder / f"{delivery.segment_seq:020d}-{name}-{len(files)}.arrow"
            with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            RealDisk().sync_file(str(target))
            files.append(str(target))
    RealDisk().sync_directory(str(folder))
    return files


def _opened(path: str, instance: int, config_file: str | None, work: Callable[[Quiver], Awaitable[T]]) -> T:
    config = QuiverConfig() if config_file is None else QuiverConfig.from_yaml(Path(config_file).read_bytes())[1]
    known = {report.instance for report in inspect_store(RealDisk(), _full(path))}
    if instance not in known:
        raise NotFound(
            f"{path} has no instance {instance}", f"it has {', '.join(map(str, sorted(known)))}", "name one of them"
        )

    async def run() -> T:
        async with await Quiver.open(_full(path), config, instance=instance) as store:
            return await work(store)

    return asyncio.run(run())


def _status(report: InstanceReport) -> dict[str, Any]:
    state = report.state
    lags = state.lags()
    return {
        "instance": report.instance,
        "segments": len(report.segments),
        "segment_bytes": report.segment_bytes,
        "log_bytes": report.wal_bytes,
        "log_bundles": report.waiting_bundles,
        "ack_log_bytes": report.ack_bytes,
        "ack_log_records": report.ack_records,
        "next_segment_seq": state.next_segment_seq,
        "damage": report.damage,
        "subscribers": {
            name: {
                "active": known.is_active,
                "mark": known.done.mark,
                "gaps": len(known.done.gaps),
                "waiting": lags[name],
                "dead_letters": len(known.rejected),
            }
            for name, known in sorted(state.subscriptions.items())
        },
    }


def _full(path: str) -> str:
    return str(Path(path).resolve())
