"""The synchronous door: the same store, from plain threads, on the real disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.quiver.worlds import bundle

from penstock.errors import Closed, Conflict, InvalidInput, Unsupported
from penstock.quiver import Bundle, Durability, Quiver, QuiverConfig, SegmentConfig, SubscriberConfig, SyncQuiver


def test_threads_share_a_store_and_everything_comes_out(tmp_path: Path) -> None:
    with SyncQuiver(str(tmp_path / "store")) as store:
        store.register("s")
        with ThreadPoolExecutor(8) as pool:
            acks = list(pool.map(lambda number: store.ingest(bundle(number)), range(40)))
        assert sorted(ack.bundle_seq for ack in acks) == list(range(1, 41))
        assert all(ack.durable for ack in acks)
        assert len(store.ingest_many([bundle(number) for number in range(40, 50)])) == 10
        assert store.try_ingest(bundle(50)).durable
        store.flush()
        with store.next("s") as delivery:  # type: ignore[union-attr]
            assert sorted(set(delivery.table("logs").column("n").to_pylist())) == list(range(51))
        assert store.next("s", 0.0) is None
    store.close()
    with pytest.raises(Closed):
        store.ingest(bundle(1))


def test_a_refusal_in_a_block_is_delivered_again(tmp_path: Path) -> None:
    with SyncQuiver(str(tmp_path / "store")) as store:
        store.register("s")
        store.ingest(bundle(1))
        store.flush()
        with pytest.raises(ZeroDivisionError), store.next("s"):  # type: ignore[union-attr]
            raise ZeroDivisionError
        delivery = store.next("s", 10.0)
        assert delivery is not None
        assert (delivery.attempt, delivery.segment_seq) == (2, 1)
        delivery.ack()


HOLDER = """
import sys
from penstock.quiver import SyncQuiver
store = SyncQuiver(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_a_second_process_is_refused_by_the_name_of_the_first_and_a_dead_one_leaves_no_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(Conflict) as refused:
        SyncQuiver(path)
    assert f"process {holder.pid}" in refused.value.why
    holder.kill()
    holder.wait()
    SyncQuiver(path).close()


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_is_refused_and_its_parent_served(tmp_path: Path) -> None:
    with SyncQuiver(str(tmp_path / "store")) as store:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                store.ingest(bundle(1))
            except Unsupported:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert store.ingest(bundle(2)).durable


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_a_bundle_is_on_its_way_is_refused_at_once_and_the_parent_is_served(
    tmp_path: Path,
) -> None:
    """The group is under way in the parent alone: a child that joined it would wait for ever."""

    async def scenario() -> None:
        async with await Quiver.open(str(tmp_path / "store")) as store:
            await store.register("s")
            waiting = asyncio.create_task(store.ingest(bundle(1)))
            await asyncio.sleep(0)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                calls = [store.ingest(bundle(2)), store.flush(), store.next("s"), store.scan(), store.close()]
                refused = 0
                for call in calls:
                    try:
                        call.send(None)
                    except Unsupported:
                        refused += 1
                os._exit(refused)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5  # noqa: ASYNC222  it has an alarm
            assert (await waiting).durable
            await store.flush()
            assert (await store.scan(slot="logs")).num_rows == 4

    asyncio.run(scenario())


@pytest.mark.processes
def test_a_process_that_is_stopped_keeps_its_store_and_is_named_as_stopped(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        holder.send_signal(signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
        with pytest.raises(Conflict) as refused:
            SyncQuiver(path)
        assert f"process {holder.pid}" in refused.value.why
        assert "stopped" in refused.value.why
    finally:
        holder.kill()
        holder.wait()
    SyncQuiver(path).close()


def test_a_scan_reads_segments_and_memory_pruned_by_time(tmp_path: Path) -> None:
    def at(second: int) -> Bundle:
        times = pa.array([second * 1_000_000_000, (second + 1) * 1_000_000_000], pa.timestamp("ns"))
        return Bundle({"logs": pa.record_batch({"time": times, "n": [second, second + 1]})})

    config = QuiverConfig(segment=SegmentConfig(event_time_column="time"))
    with SyncQuiver(str(tmp_path / "store"), config) as store:
        for second in (10, 20, 30):
            store.ingest(at(second))
            if second < 30:
                store.flush()
        assert store.scan().column("n").to_pylist() == [10, 11, 20, 21, 30, 31]
        second = 1_000_000_000
        assert store.scan(11 * second, 21 * second, ["n"]).column("n").to_pylist() == [11, 20]
        assert store.scan(30 * second).column("n").to_pylist() == [30, 31]
        assert store.scan(0, 1, time="ingestion").num_rows == 0
        assert store.scan(time="ingestion").num_rows == 6
        with pytest.raises(InvalidInput, match="no column"):
            store.scan(columns=["nope"])
        with pytest.raises(InvalidInput, match="event and ingestion"):
            store.scan(time="wall")  # type: ignore[arg-type]
        store.ingest(Bundle({"spans": pa.record_batch({"m": [1]})}))
        with pytest.raises(InvalidInput, match="logs, spans"):
            store.scan()
        assert store.scan(slot="spans").column("m").to_pylist() == [1]
        assert store.scan(slot="none").num_rows == 0


def test_a_path_may_be_relative_or_an_object_and_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SyncQuiver(Path("store")) as store:
        monkeypatch.chdir("/")
        store.ingest(bundle(1))
        store.flush()
    with SyncQuiver(tmp_path / "store") as store:
        assert [meta.rows for meta in store.segments] == [4]
    with pytest.raises(InvalidInput, match="empty"):
        SyncQuiver("")


def test_off_needs_no_folder(tmp_path: Path) -> None:
    with SyncQuiver(str(tmp_path / "none"), QuiverConfig(durability=Durability.OFF)) as store:
        assert not store.ingest(bundle(1)).durable
    assert not (tmp_path / "none").exists()


def test_the_synchronous_door_has_what_the_store_has(tmp_path: Path) -> None:
    """Every public method, so that a script never needs a loop of its own."""
    ours, others = ({name for name in vars(kind) if not name.startswith("_")} for kind in (SyncQuiver, Quiver))
    assert others - ours == {"open", "state", "open_bytes", "stored_bytes"}, "what only looks is reached with run()"
    with SyncQuiver(str(tmp_path / "store")) as store:
        store.register("s", SubscriberConfig(attempts_max=1))
        store.ingest(Bundle({"logs": pa.record_batch({"n": [1]})}))
        store.flush()
        assert [meta.segment_seq for meta in store.segments] == [1]
        delivery = store.next("s", 1.0)
        assert delivery is not None
        delivery.nack("no")
        assert store.replay("s") == [1]
        assert store.repair().lost_segments == []
        again = store.next("s", 1.0)
        assert again is not None
        again.ack()
        again.ack()
        again.nack("too late")
        store.sweep()
        assert store.segments == []
        assert store.next("s", 0.0) is None
