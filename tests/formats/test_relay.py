"""What a relay wrote with version 1 is read by every later release, and written the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.ids import is_ulid
from penstock.relay import RelayStamp, decode_part
from penstock.relay.journal import Intent, JournalState, SendJournal
from penstock.relay.stamp import encode_part
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
