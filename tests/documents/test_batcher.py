import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.documents.batcher import Batcher, ChunkRefused, DocumentEnded, Flush, FlushReason
from penstock.documents.batcher_state import BatcherLimits, pack, unpack
from penstock.documents.contracts import ChunkEnvelope, ChunkMetadata, DocumentStatus, EndDocument
from penstock.documents.identity import chunk_id
from penstock.errors import AtCapacity, Conflict, Corrupt, InvalidInput, Unsupported

A, B = "aa" * 32, "bb" * 32
LIMITS = BatcherLimits(
    max_tokens_per_batch=100,
    max_items_per_batch=4,
    max_tokens_per_input=60,
    flush_after_ms=50,
    incomplete_after_ms=1000,
    gap_chunks_max=8,
)


def chunk(seq, doc=A, tokens=10, text=None, **metadata):
    told = ChunkMetadata(**{"tenant_id": "t", "index_id": "i", "model": "m", **metadata})
    span = (seq * 10, seq * 10 + 10)
    return ChunkEnvelope(
        doc_id=doc,
        chunk_id=chunk_id(doc, *span),
        seq=seq,
        text=f"text {seq}" if text is None else text,
        byte_range=span,
        token_count=tokens,
        metadata=told,
    )


def end(seq_max, doc=A, **more):
    return EndDocument(doc_id=doc, seq_max=seq_max, **more)


def batcher(packed=None, limits=LIMITS):
    return Batcher("t", "i", "m", limits, state=unpack(packed) if packed else None)


def seqs(output):
    return [entry.seq for entry in output.request.inputs]


def test_a_batch_closes_before_the_chunk_that_would_pass_its_tokens():
    made = batcher()
    assert made.add(chunk(0, tokens=60), now_ms=1) == []
    assert made.add(chunk(1, tokens=40), now_ms=2) == []
    (flush,) = made.add(chunk(2, tokens=1), now_ms=3)
    assert (seqs(flush), flush.request.tokens_total, flush.reason) == ([0, 1], 100, FlushReason.TOKENS)


def test_a_batch_closes_after_the_chunk_that_fills_it():
    made = batcher()
    outputs = [made.add(chunk(seq), now_ms=seq) for seq in range(4)]
    assert outputs[:3] == [[], [], []]
    assert (seqs(outputs[3][0]), outputs[3][0].reason) == ([0, 1, 2, 3], FlushReason.ITEMS)


def test_a_batch_closes_some_time_after_the_last_append():
    made = batcher()
    made.add(chunk(0), now_ms=100)
    made.add(chunk(1), now_ms=140)
    assert made.timer_ms == 190
    assert made.tick(now_ms=189) == []
    (flush,) = made.tick(now_ms=190)
    assert (seqs(flush), flush.reason) == ([0, 1], FlushReason.TIME)
    assert made.timer_ms is None
    assert made.tick(now_ms=10_000) == []


def test_the_end_of_a_document_closes_the_batch_and_reports():
    made = batcher()
    made.add(chunk(0), now_ms=1)
    flush, ended = made.end(end(0, warnings=("a page was empty",)), now_ms=2)
    assert (seqs(flush), flush.reason) == ([0], FlushReason.END)
    assert ended.report.status is DocumentStatus.INDEXED
    assert (ended.report.chunks, ended.report.tokens, ended.report.warnings) == (1, 10, ("a page was empty",))


def test_an_end_that_comes_early_waits_for_the_chunks_before_it():
    made = batcher()
    assert made.end(end(1), now_ms=1) == []
    assert made.add(chunk(1), now_ms=2) == []
    flush, ended = made.add(chunk(0), now_ms=3)
    assert seqs(flush) == [0, 1]
    assert isinstance(ended, DocumentEnded)


def test_an_end_that_waits_in_vain_is_reported_as_incomplete_and_what_is_beyond_the_gap_is_not_sent():
    made = batcher()
    made.add(chunk(0), now_ms=1)
    made.add(chunk(3), now_ms=1)
    made.end(end(4), now_ms=10)
    assert made.timer_ms == 51
    flush, *nothing = made.tick(now_ms=60)
    assert seqs(flush) == [0]
    assert nothing == []
    assert made.timer_ms == 1010
    (ended,) = made.tick(now_ms=1010)
    assert ended.report.status is DocumentStatus.INCOMPLETE
    assert ended.report.missing_seqs == (1, 2, 4)
    assert ended.report.reason == "3 of 5 chunks never came"


def test_an_empty_document_ends_empty():
    (ended,) = batcher().end(end(-1), now_ms=1)
    assert ended.report.status is DocumentStatus.EMPTY


def test_a_chunk_of_blanks_is_counted_but_never_sent():
    made = batcher()
    made.add(chunk(0, text=" \n "), now_ms=1)
    (ended,) = made.end(end(0), now_ms=2)
    assert ended.report.status is DocumentStatus.EMPTY
    assert made.counts.blank == 1


def test_a_chunk_over_the_models_limit_becomes_a_dead_letter_and_its_document_goes_on():
    made = batcher()
    (refused,) = made.add(chunk(0, tokens=61), now_ms=1)
    assert isinstance(refused, ChunkRefused)
    made.add(chunk(1), now_ms=1)
    flush, ended = made.end(end(1), now_ms=2)
    assert seqs(flush) == [1]
    assert ended.report.warnings == ("chunk 0 has 61 tokens, over the model's 60",)


def test_duplicates_are_dropped_before_and_after_the_end():
    made = batcher()
    made.add(chunk(0), now_ms=1)
    assert made.add(chunk(0), now_ms=1) == []
    made.end(end(0), now_ms=1)
    assert made.add(chunk(0), now_ms=2) == []
    assert made.end(end(0), now_ms=2) == []
    assert made.counts.duplicates_seen == 2
    assert made.timer_ms is None


def test_a_document_that_begins_again_is_taken_again():
    """An object that was A, then B, then A: the chunks of the first A are gone, and come once more."""
    made = batcher()
    made.group([chunk(0)], [end(0)], now_ms=1)
    made.begin(A)
    flush, ended = made.group([chunk(0)], [end(0)], now_ms=2)
    assert seqs(flush) == [0]
    assert ended.report.status is DocumentStatus.INDEXED


def test_what_comes_too_early_is_handed_back_with_nothing_changed():
    made = batcher()
    for seq in range(1, 9):
        made.add(chunk(seq), now_ms=1)
    before = pack(made.state)
    with pytest.raises(AtCapacity) as refused:
        made.add(chunk(9), now_ms=2)
    assert refused.value.rejected == chunk(9)
    assert pack(made.state) == before


def test_two_contents_for_one_place_are_a_conflict():
    made = batcher()
    made.add(chunk(1), now_ms=1)
    other = ChunkEnvelope(**{**{f: getattr(chunk(1), f) for f in chunk(1).__struct_fields__}, "chunk_id": "other"})
    with pytest.raises(Conflict, match="two different contents"):
        made.add(other, now_ms=1)


def test_a_chunk_of_another_key_is_refused():
    with pytest.raises(InvalidInput, match="t:i:m"):
        batcher().add(chunk(0, model="other"), now_ms=1)


def test_batch_ids_come_from_the_state_and_from_replayed_time():
    made = batcher()
    first = made.group([chunk(0)], [end(0)], now_ms=1_000)[0]
    second = made.group([chunk(0, doc=B)], [end(0, doc=B)], now_ms=900)[0]
    assert first.request.batch_id == "t:i:m:0:1000"
    assert second.request.batch_id == "t:i:m:1:1000", "time never goes back within a key"
    assert first.identity.idempotency_key != second.identity.idempotency_key


def test_a_batch_never_passes_its_limits_even_when_a_gap_closes_at_once():
    made = batcher()
    for seq in range(1, 9):
        made.add(chunk(seq, tokens=30), now_ms=1)
    outputs = made.add(chunk(0, tokens=30), now_ms=2)
    assert [seqs(flush) for flush in outputs] == [[0, 1, 2], [3, 4, 5]]
    assert all(flush.request.tokens_total <= 100 for flush in outputs)


@pytest.mark.parametrize("data", [b"", b"\x02", b"\x01", b"\x01\xc1", b"\x01\x90"])
def test_a_state_that_cannot_be_read_is_never_taken_for_an_empty_one(data):
    with pytest.raises((Corrupt, Unsupported)):
        unpack(data)


@pytest.mark.parametrize(
    "wrong", [{"max_tokens_per_input": 200_000}, {"max_items_per_batch": 0}, {"flush_after_ms": 0}]
)
def test_limits_that_cannot_hold_are_refused(wrong):
    with pytest.raises(InvalidInput):
        BatcherLimits(**wrong)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(0, 6))
def test_every_chunk_is_in_exactly_one_batch_whatever_the_order_the_duplicates_and_the_crashes(seed, count, restarts):
    """Two documents, events in any order within the gap's reach, each up to three times, restarts from packed state."""
    rng = random.Random(seed)
    limits = BatcherLimits(max_tokens_per_batch=100, max_items_per_batch=4, max_tokens_per_input=60, gap_chunks_max=200)
    tokens = {(doc, seq): rng.randint(1, 60) for doc in (A, B) for seq in range(count)}
    sent = [("chunk", doc, seq) for doc in (A, B) for seq in range(count)] + [("end", A, 0), ("end", B, 0)]
    sent = sent * rng.randint(1, 3)
    rng.shuffle(sent)
    crashes = {rng.randrange(len(sent)) for _ in range(restarts)}

    def deliver(to, kind, doc, seq, now):
        if kind == "end":
            return to.end(end(count - 1, doc), now_ms=now)
        return to.add(chunk(seq, doc, tokens[doc, seq]), now_ms=now)

    made, outputs = batcher(limits=limits), []
    for now, (kind, doc, seq) in enumerate(sent):
        packed = pack(made.state)
        result = deliver(made, kind, doc, seq, now)
        if now in crashes:  # what was returned is lost with the process; the replay must return the same
            made = batcher(packed, limits)
            assert deliver(made, kind, doc, seq, now) == result
        outputs += result
    taken = [(i.doc_id, i.seq) for output in outputs if isinstance(output, Flush) for i in output.request.inputs]
    assert sorted(taken) == sorted(tokens)
    for doc in (A, B):
        assert [seq for found, seq in taken if found == doc] == list(range(count))
    batches = [output for output in outputs if isinstance(output, Flush)]
    assert all(batch.request.tokens_total <= 100 and len(batch.request.inputs) <= 4 for batch in batches)
    assert len({batch.identity.place for batch in batches}) == len(batches)
    assert {o.report.doc_id: o.report.status for o in outputs if isinstance(o, DocumentEnded)} == {
        A: DocumentStatus.INDEXED,
        B: DocumentStatus.INDEXED,
    }


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_a_group_gives_the_same_batches_in_whatever_order_its_rows_came(left, right):
    results = []
    for order in (left, right):
        made = batcher()
        results.append((made.group([chunk(seq) for seq in order], [end(7)], now_ms=5), pack(made.state)))
    assert results[0] == results[1]
