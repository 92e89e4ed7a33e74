"""The fast decoder agrees with the protobuf project's own on every request, and hostile bytes meet our errors only."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest
from tests.telemetry.samples import (
    SOURCE,
    every_kind_of_metric,
    first_write,
    packed,
    second_write,
    some_logs,
    some_spans,
)

from penstock.errors import InvalidInput, PenstockError
from penstock.records import Signal
from penstock.telemetry import DecodedRows, DecodeLimits, decode_arrow, decode_otlp, decode_remote_write, encode_arrow
from penstock.telemetry.otlp.decode import otlp_rows, request_message
from penstock.telemetry.otlp.outline import OUTLINE
from penstock.telemetry.remote_write import decode as remote_write
from penstock.telemetry.remote_write.decode import RemoteWriteVersion
from penstock.telemetry.remote_write.messages import write_request_v1, write_request_v2
from penstock.telemetry.wire.outline import Uncommon, outlined
from penstock.telemetry.wire.protobuf import arrow_schema, has_ptars, parse, to_arrow, walked

SERIES = [({"__name__": "up", "job": "a"}, [(1, 1.0), (2, 0.0)]), ({"__name__": "load"}, [(1, 0.5)])]
MESSAGES = [request_message(signal) for signal in Signal] + [write_request_v1(), write_request_v2()]
SAMPLES = {Signal.METRICS: every_kind_of_metric, Signal.LOGS: some_logs, Signal.TRACES: some_spans}
# Each seed is a few mutations of one request.
MUTATIONS = 1500


def test_the_fast_decoder_is_installed() -> None:
    assert has_ptars()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.DESCRIPTOR.full_name)
def test_both_decoders_have_the_same_columns(message: Any) -> None:
    fast = to_arrow(message, [b""], "request")
    assert fast.schema.equals(arrow_schema(message.DESCRIPTOR))
    assert fast.equals(walked(message()))


@pytest.mark.parametrize("signal", list(Signal))
def test_both_decoders_give_the_same_rows(signal: Signal) -> None:
    body = SAMPLES[signal]().SerializeToString()
    message = request_message(signal)
    slow = otlp_rows(signal, walked(parse(message, body, "request")), SOURCE, DecodeLimits())
    assert decode_otlp(signal, body, SOURCE).batch.equals(slow.batch)


def test_without_the_fast_decoder_the_rows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = every_kind_of_metric().SerializeToString()
    expected = decode_otlp(Signal.METRICS, body, SOURCE)
    for module in ("protobuf", "outline"):
        monkeypatch.setattr(f"penstock.telemetry.wire.{module}.handler_of", lambda descriptor: None)
    assert decode_otlp(Signal.METRICS, body, SOURCE).batch.equals(expected.batch)


def test_of_a_choice_given_twice_the_last_holds_and_parts_of_a_message_are_merged() -> None:
    """What protobuf says; decoders that do not build the message see two values."""
    message = request_message(Signal.LOGS)()
    record = message.resource_logs.add().scope_logs.add().log_records.add()
    record.body.string_value = "first"
    twice = record.SerializeToString() + bytes.fromhex("2a021807")  # body once more: int_value 7
    record.SetInParent()
    scope = _field(2, twice)
    resource = _field(2, scope)
    batch = decode_otlp(Signal.LOGS, _field(1, resource), SOURCE).batch
    assert batch.column("body").to_pylist() == ["7"]


def _field(number: int, body: bytes) -> bytes:
    assert len(body) < 128
    return bytes((number << 3 | 2, len(body))) + body


@pytest.mark.slow
@pytest.mark.parametrize("signal", list(Signal))
def test_mutated_requests_meet_our_errors_or_the_rows_of_the_oracle(signal: Signal) -> None:
    campaign_otlp(signal, MUTATIONS // 3, seed=7)


def test_mutated_remote_writes_meet_our_errors_only() -> None:
    campaign_remote_write(MUTATIONS // 3, seed=7)


def test_what_passes_without_the_oracle_is_what_the_oracle_reads() -> None:
    campaign_of_the_short_way(MUTATIONS, seed=7)


@pytest.mark.slow
@pytest.mark.parametrize("signal", list(Signal))
def test_otlp_that_passes_without_the_oracle_is_what_the_oracle_reads(signal: Signal) -> None:
    campaign_of_outlines(signal, MUTATIONS // 3, seed=7)


@pytest.mark.parametrize("signal", list(Signal))
def test_requests_of_every_kind_pass_without_the_oracle_and_have_its_rows(signal: Signal) -> None:
    body = SAMPLES[signal]().SerializeToString()
    slow = otlp_rows(signal, walked(parse(request_message(signal), body, "request")), SOURCE, DecodeLimits())
    assert outlined_rows(signal, body).batch.equals(slow.batch)


@pytest.mark.parametrize(
    "change",
    [b"\x28\x01", b"\x12\x00", b"\x8a\x00\x00", b"\x0a\x80\x00"],
    ids=["unknown", "number unused", "a long tag", "a long length"],
)
@pytest.mark.parametrize("message", MESSAGES[:4], ids=lambda message: message.DESCRIPTOR.full_name)
def test_what_can_be_spelled_shorter_is_judged_by_the_oracle(message: Any, change: bytes) -> None:
    with pytest.raises(Uncommon):
        outlined(message.DESCRIPTOR, [b"", change], OUTLINE)


def test_entries_that_no_reader_looks_at_are_judged_by_the_oracle() -> None:
    """Their bytes may be malformed, and then the request is refused whole."""
    request = every_kind_of_metric()
    request.resource_metrics[0].scope_metrics[0].metrics[0].metadata.add(key="a")
    with pytest.raises(Uncommon):
        outlined_rows(Signal.METRICS, request.SerializeToString())


@pytest.mark.parametrize(
    "twice",
    ["2100000000000000003100000000000000000000", "29000000000000f03f"],
    ids=["both members of a choice", "unknown number"],
)
def test_a_point_that_decoders_may_read_in_two_ways_is_judged_by_the_oracle(twice: str) -> None:
    point = bytes.fromhex("19" + "05" + 7 * "00") + bytes.fromhex(twice)[:18]
    body = _field(1, _field(2, _field(2, _field(1, b"m") + _field(5, _field(1, point)))))
    with pytest.raises(Uncommon):
        outlined_rows(Signal.METRICS, body)


def test_a_number_that_is_cut_to_32_bits_hides_nothing() -> None:
    """Below zero it is read from five bytes, and written as ten: the rest must not pass for something else."""
    temporality = bytes.fromhex("10ffffffff0f")
    point = bytes.fromhex("19" + "05" + 7 * "00" + "21" + 7 * "00" + "40")
    unknown = bytes.fromhex("7a0361")
    sound = _field(1, point) + temporality
    for data in (sound, sound + unknown + b"aa"):
        body = _field(1, _field(2, _field(2, _field(1, b"m") + _field(7, data))))
        found = decode_otlp(Signal.METRICS, body, SOURCE)
        assert found.rejected == 1
        with contextlib.suppress(Uncommon):
            assert outlined_rows(Signal.METRICS, body).rejected == 1
            assert data is sound, "an unknown field was passed over"


def test_several_requests_are_rows_of_one_batch_and_one_that_is_malformed_refuses_them() -> None:
    message = request_message(Signal.METRICS)
    bodies = [every_kind_of_metric().SerializeToString(), b"", every_kind_of_metric().SerializeToString()]
    together = to_arrow(message, bodies, "request")
    assert together.num_rows == 3
    for row, body in enumerate(bodies):
        assert together.slice(row, 1).to_pylist() == to_arrow(message, [body], "request").to_pylist()
    with pytest.raises(InvalidInput):
        to_arrow(message, [*bodies, b"\xff"], "request")


def test_mutated_arrow_streams_meet_our_errors_only() -> None:
    campaign_arrow(MUTATIONS // 3, seed=7)


@pytest.mark.chaos(seeds=1)
def test_many_more_mutations(seed: int) -> None:
    for signal in Signal:
        campaign_otlp(signal, 200, seed=seed)
        campaign_of_outlines(signal, 200, seed=seed)
    campaign_remote_write(500, seed=seed)
    campaign_of_the_short_way(500, seed=seed)
    campaign_arrow(500, seed=seed)


def campaign_otlp(signal: Signal, mutations: int, *, seed: int) -> None:
    chance = random.Random(seed)
    body = SAMPLES[signal]().SerializeToString()
    message = request_message(signal)
    for number in range(mutations):
        mutated = mutate(body, chance)
        try:
            decoded = decode_otlp(signal, mutated, SOURCE)
        except InvalidInput:
            continue
        slow = otlp_rows(signal, walked(parse(message, mutated, "request")), SOURCE, DecodeLimits())
        # As texts: what is no number does not equal itself.
        assert repr(decoded.batch.to_pydict()) == repr(slow.batch.to_pydict()), (seed, number)
        assert decoded.rejected == slow.rejected, (seed, number)


def campaign_remote_write(mutations: int, *, seed: int) -> None:
    chance = random.Random(seed)
    bodies = {RemoteWriteVersion.V1: first_write(SERIES), RemoteWriteVersion.V2: second_write(SERIES)}
    for number in range(mutations):
        version, message = chance.choice(list(bodies.items()))
        if number % 2:
            body = mutate(packed(message), chance)
        else:
            body = packed(_Raw(mutate(message.SerializeToString(), chance)))
        try:
            decode_remote_write(body, SOURCE, version)
        except PenstockError:
            continue


def campaign_of_the_short_way(mutations: int, *, seed: int) -> None:
    """What passes without the oracle, by its size alone, is what the oracle reads; what that refuses does not pass."""
    chance = random.Random(seed)
    message, passed = write_request_v1(), 0
    for number in range(mutations):
        body = first_write(SERIES * (1 + number % 3)).SerializeToString()
        body = mutate(body, chance) if number % 2 else _byte_changed(body, chance)
        with contextlib.suppress(Uncommon):
            fast = remote_write._first_rows(
                outlined(message.DESCRIPTOR, [body], remote_write._OUTLINE), SOURCE, DecodeLimits()
            )
            passed += 1
            slow = remote_write._first_version(walked(parse(message, body, "request")), DecodeLimits())
            _check_equal(fast, slow.decoded(SOURCE, DecodeLimits()), (seed, number))
    assert passed, "no mutation was taken the short way"


def campaign_of_outlines(signal: Signal, mutations: int, *, seed: int) -> None:
    """The same of OTLP."""
    chance, passed = random.Random(seed), 0
    body, message = SAMPLES[signal]().SerializeToString(), request_message(signal)
    for number in range(mutations):
        changed = mutate(body, chance) if number % 3 == 0 else _byte_changed(body, chance)
        with contextlib.suppress(Uncommon, InvalidInput):
            fast = outlined_rows(signal, changed)
            passed += 1
            slow = otlp_rows(signal, walked(parse(message, changed, "request")), SOURCE, DecodeLimits())
            _check_equal(fast, slow, (seed, number))
    assert passed, "no mutation was taken the short way"


def outlined_rows(signal: Signal, body: bytes) -> DecodedRows:
    outline = outlined(request_message(signal).DESCRIPTOR, [body], OUTLINE)
    return otlp_rows(signal, outline, SOURCE, DecodeLimits())


def _check_equal(fast: DecodedRows, slow: DecodedRows, place: tuple[int, int]) -> None:
    # As texts: what is no number does not equal itself.
    assert repr(fast.batch.to_pydict()) == repr(slow.batch.to_pydict()), place
    assert (fast.rejected, fast.reasons) == (slow.rejected, slow.reasons), place


def _byte_changed(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def campaign_arrow(mutations: int, *, seed: int) -> None:
    chance = random.Random(seed)
    body = encode_arrow(decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch)
    for _ in range(mutations):
        try:
            decode_arrow(mutate(body, chance), SOURCE, Signal.METRICS)
        except PenstockError:
            continue


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def SerializeToString(self) -> bytes:
        return self._body


def mutate(body: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut out, repeated, swapped or cut off."""
    found = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        if not found:
            break
        at = chance.randrange(len(found))
        end = min(len(found), at + chance.randint(1, 12))
        kind = chance.randrange(6)
        if kind == 0:
            found[at] = chance.randrange(256)
        elif kind == 1:
            del found[at:end]
        elif kind == 2:
            found[at:at] = found[at:end]
        elif kind == 3:
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 4:
            found[at:at] = chance.randbytes(chance.randint(1, 8))
        else:
            del found[chance.randrange(len(found)) :]
    return bytes(found)
