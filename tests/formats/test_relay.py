"""What a relay wrote with version 1 is read by every later release, and written the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.ids import is_ulid
from penstock.records import VectorOperation
from penstock.relay import RelayStamp, SamplesPayload, VectorPayload, decode_part, decode_table, encode_table
from penstock.relay.outlets.journal import Intent, JournalState, SendJournal
from penstock.relay.outlets.stamp import encode_part
from penstock.testing import ManualClock, SeededEntropy, TornDisk

GOLDEN = Path(__file__).parent / "golden" / "relay"
RELAY = "01JD0000000000000000000001"
STAMP = RelayStamp(RELAY, 12, 0, 57, 1, 3, ["logs"])
STATE = JournalState(RELAY, 12, Intent(57, 12, 341, 16 << 20))
TABLE = pa.table({"n": pa.array([1, 2, None], pa.int64()), "body": ["a", "b", "c"]})


def test_the_stamp_is_that_of_version_1() -> None:
    body = (GOLDEN / "stamp-v1.bin").read_bytes()
    assert RelayStamp.decode(body) == STAMP
    assert STAMP.encode() == body


def test_a_record_of_version_1_is_read() -> None:
    """Read, not written: another release of Arrow may lay a stream out differently."""
    for name in ("record-v1-zstd.arrow", "record-v1.arrow"):
        (table,) = decode_part([(GOLDEN / name).read_bytes()])["logs"]
        assert table.equals(TABLE)
    assert decode_part(encode_part([("logs", TABLE)], "zstd"))["logs"][0].equals(TABLE)


def test_the_journal_is_that_of_version_1() -> None:
    body = (GOLDEN / "journal-v1.json").read_bytes()
    disk = TornDisk(entropy=SeededEntropy(0), clock=ManualClock())
    disk.make_directory("/relay")
    disk.create("/relay/queue-000.json", body)
    journal = SendJournal(disk, "/relay/queue-000.json")
    assert journal.open(ManualClock(), SeededEntropy(1)) == STATE
    journal.write(STATE)
    assert disk.read("/relay/queue-000.json")[0] == body


def test_a_journal_with_any_byte_changed_is_moved_aside() -> None:
    body = (GOLDEN / "journal-v1.json").read_bytes()
    for at in range(len(body)):
        disk = TornDisk(entropy=SeededEntropy(0), clock=ManualClock())
        disk.make_directory("/relay")
        disk.create("/relay/j", body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        journal = SendJournal(disk, "/relay/j")
        state = journal.open(ManualClock(), SeededEntropy(1))
        assert journal.was_lost
        assert is_ulid(state.relay)
        assert state.relay != RELAY
        assert "j.damaged" in dict(disk.scan("/relay"))


_SAMPLES = pa.table(
    {
        "labels": pa.array([[("__name__", "up"), ("job", "größe")]], pa.map_(pa.string(), pa.string())),
        "timestamp_ms": pa.array([1_700_000_000_000], pa.int64()),
        "value": [1.0],
    }
)
_ROWS = pa.table({"id": ["a"], "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})


def test_batches_of_samples_are_those_of_version_1() -> None:
    payload = (GOLDEN / "samples-payload-v1.bin").read_bytes()
    assert SamplesPayload.decode(payload) == SamplesPayload(tenant="größe")
    assert SamplesPayload(tenant="größe").encode() == payload
    assert decode_table((GOLDEN / "samples-record-v1.arrow").read_bytes()).equals(_SAMPLES)


def test_batches_of_vectors_are_those_of_version_1() -> None:
    target = VectorPayload(tenant="acme", index="docs", model="m", metric="cosine")
    for operation in (VectorOperation.UPSERT, VectorOperation.DELETE):
        payload = (GOLDEN / f"vector-{operation.name.lower()}-payload-v1.bin").read_bytes()
        assert VectorPayload.decode(payload) == (operation, target)
        assert target.encode(operation) == payload
    assert decode_table((GOLDEN / "vector-record-v1.arrow").read_bytes()).equals(_ROWS)
    assert decode_table(encode_table(_ROWS)).equals(_ROWS)
