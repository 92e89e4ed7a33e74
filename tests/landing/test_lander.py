"""The telemetry job lands every row once in the catalog and once in the series, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.landing.world import (
    HOUR,
    START,
    config_at,
    land,
    landed_values,
    metric_rows,
    produce,
    sample_values,
    stage_of,
    table_rows,
)
from tests.telemetry.samples import SOURCE, every_kind_of_metric, metrics_scope, some_logs, some_spans

from penstock.buffer import Consumer, ConsumerConfig, DeadLetterPolicy, DeadLetters, queued_now
from penstock.errors import Corrupt, Unsupported
from penstock.landing import Lander, LandingAnswer, LandingLimits, LandingStage, LandingTask
from penstock.landing.sink import LandingSink
from penstock.landing.tables import gather_tables
from penstock.landing.work import LandingSettings, land_task
from penstock.objects import open_store
from penstock.records import ArrowEnvelope, Signal
from penstock.relay import RelayStamp
from penstock.telemetry import DeltaPolicy, SeriesConfig, decode_otlp, series_of
from penstock.timeseries import TimeSeriesConfig

ALL = Counter(float(number) for number in range(60))


class Killed(Exception):
    """Stands for the end of the process."""


def test_every_row_lands_once_in_both_stores(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"metrics": metric_rows(10 * n, 10)} for n in range(6)]))
    summary = asyncio.run(land(config))
    assert (summary.batches, summary.rows, summary.samples, summary.files) == (6, 60, 60, 1)
    assert asyncio.run(landed_values(config)) == ALL
    assert asyncio.run(sample_values(config)) == ALL
    # What landed has left the queue, and a second run finds nothing.
    assert asyncio.run(land(config)).batches == 0
    assert asyncio.run(landed_values(config)) == ALL


def test_all_signals_and_tables_of_your_own_land(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    tables: dict[str, Any] = {
        "metrics": decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch,
        "logs": decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE).batch,
        "traces": decode_otlp(Signal.TRACES, some_spans().SerializeToString(), SOURCE).batch,
        "orders": pa.table({"tenant": ["acme"], "n": [1]}),
    }
    asyncio.run(produce(config, [tables]))
    asyncio.run(land(config))
    for name, rows in (("metrics", 5), ("logs", 3), ("traces", 1), ("orders", 1)):
        assert len(asyncio.run(table_rows(config, table=name))) == rows


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(
    "step", ["before the state", "before the commit", "files only", "samples only", "before the ack"]
)
def test_a_round_that_dies_anywhere_is_done_again_and_nothing_is_twice(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_at(tmp_path, limits=LandingLimits(batches_per_round=2, interval_seconds=0.0))
    asyncio.run(produce(config, [{"metrics": metric_rows(10 * n, 10)} for n in range(6)]))
    with monkeypatch.context() as patch:
        _die(patch, step)
        with pytest.raises(Killed):
            asyncio.run(land(config))
    asyncio.run(land(config))
    assert asyncio.run(landed_values(config)) == ALL
    assert asyncio.run(sample_values(config)) == ALL


def _die(patch: pytest.MonkeyPatch, step: str) -> None:
    """The second round ends at a step."""
    register, write = LandingSink._register, LandingSink._write
    rounds = {"register": 0, "write": 0, "state": 0, "ack": 0}

    def second(name: str) -> bool:
        rounds[name] += 1
        return rounds[name] == 2

    async def no_register(self: LandingSink, files: Any, position: int) -> dict[str, int]:
        if second("register"):
            raise Killed
        return await register(self, files, position)

    async def no_write(self: LandingSink, samples: Any, position: int) -> dict[str, int]:
        if second("write"):
            raise Killed
        return await write(self, samples, position)

    if step in ("before the commit", "samples only"):
        patch.setattr(LandingSink, "_register", no_register)
    if step in ("before the commit", "files only"):
        patch.setattr(LandingSink, "_write", no_write)
    for name, owner, method in (
        ("before the state", "penstock.landing.state.StateShelf", "write"),
        ("before the ack", "penstock.buffer.Consumer", "ack_through"),
    ):
        if step == name:
            _die_in(patch, owner, method, lambda: second("state"))


def _die_in(patch: pytest.MonkeyPatch, owner: str, method: str, is_time: Any) -> None:
    module, _, kind = owner.rpartition(".")
    target = getattr(__import__(module, fromlist=[kind]), kind)
    genuine = getattr(target, method)

    async def dying(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_time():
            raise Killed
        return await genuine(self, *args, **kwargs)

    patch.setattr(target, method, dying)


@pytest.mark.slow
def test_stores_that_disagree_by_several_rounds_are_brought_together(tmp_path: Path) -> None:
    """The series are given what the catalog has had for long, and the catalog nothing twice."""
    config = config_at(tmp_path, limits=LandingLimits(batches_per_round=1, interval_seconds=0.0))

    async def run() -> None:
        await produce(config, [{"metrics": metric_rows(10 * n, 10)} for n in range(6)])
        lander = await Lander.open(config, stage_of(config))
        genuine = lander._sink._write

        async def lost(samples: Any, position: int) -> dict[str, int]:
            return await genuine(samples, position) if position < 2 else {}

        lander._sink._write = lost  # type: ignore[method-assign]
        # A bug, or a store that was set back: the job believes that both have it.
        ack = lander._consumer.ack_through
        lander._consumer.ack_through = lambda sequence: _nothing()  # type: ignore[method-assign, assignment]
        await lander.run_available()
        lander._consumer.ack_through = ack  # type: ignore[method-assign]
        await lander._shelf.write(msgspec.structs.replace(lander._state, position=1))
        await lander.close()
        assert sum((await sample_values(config)).values()) == 20
        summary = await land(config)
        assert (summary.files, summary.samples) == (0, 40)

    asyncio.run(run())
    assert asyncio.run(landed_values(config)) == ALL
    assert asyncio.run(sample_values(config)) == ALL


@pytest.mark.slow
def test_a_segment_that_a_relay_sent_twice_lands_once(tmp_path: Path) -> None:
    config = config_at(tmp_path)

    async def send(ordinal: int, first: int) -> None:
        stamp = RelayStamp("r", ordinal, 0, 7, 1, 1, ["metrics"]).encode()[ArrowEnvelope.SIZE :]
        await produce(config, [{"metrics": metric_rows(first, 10)}], stamp)

    asyncio.run(send(1, 0))
    asyncio.run(land(config))
    asyncio.run(send(1, 0))
    asyncio.run(send(2, 10))
    asyncio.run(send(2, 10))
    summary = asyncio.run(land(config))
    assert (summary.repeats, summary.rows) == (2, 10)
    assert asyncio.run(landed_values(config)) == Counter(float(n) for n in range(20))


def test_new_columns_are_united_and_a_conflict_is_quarantined_with_the_reason(tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(batches_per_round=2, bytes_per_task=1, interval_seconds=0.0))
    batches = [
        {"orders": pa.table({"tenant": ["a"], "n": [1]})},
        # In the same round, and in another task of it.
        {"orders": pa.table({"tenant": ["a"], "n": ["two"]})},
        {"orders": pa.table({"tenant": ["a"], "n": [3], "note": ["new"]})},
        {"orders": pa.table({"tenant": ["a"], "n": [4], "note": [9.5]})},
        # Another tenant's table is another table.
        {"orders": pa.table({"tenant": ["b"], "n": ["five"]})},
    ]
    asyncio.run(produce(config, batches))
    summary = asyncio.run(land(config))
    assert summary.quarantined == 2
    rows = asyncio.run(table_rows(config, table="orders"))
    assert sorted(str(row["n"]) for row in rows) == ["1", "3", "five"]
    reasons = asyncio.run(_quarantine(config))
    assert any("'n' has type string, and in its table int64" in reason for reason in reasons)
    assert any("'note' has type double" in reason for reason in reasons)


def test_rows_of_several_tenants_that_parquet_cannot_hold_are_all_kept_aside(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    spans: Any = pa.nulls(2, pa.month_day_nano_interval())
    tables = [{"spells": pa.table({"tenant": [tenant] * 2, "spell": spans})} for tenant in ("a", "b", "c")]
    asyncio.run(produce(config, tables))
    assert asyncio.run(land(config)).quarantined == 6
    assert len(asyncio.run(_quarantine(config))) == 3


@pytest.mark.parametrize(
    "columns",
    [
        {"v": pa.array([None, Decimal(1500)], pa.decimal128(10, -2))},
        {"v": pa.array([Decimal(1), None], pa.decimal256(40, 2))},
        {"a": pa.array([1, 2]), "A": pa.array([1, 2])},
        {"a\0b": pa.array([1, 2])},
    ],
    ids=["a negative scale", "a decimal256", "one name in two cases", "a null character"],
)
def test_columns_that_would_spoil_their_table_are_put_aside_and_stop_nobody(
    tmp_path: Path, columns: dict[str, Any]
) -> None:
    config = config_at(tmp_path)
    asyncio.run(
        produce(
            config,
            [{"mine": pa.table({"tenant": ["a", "a"], **columns})}, {"mine": pa.table({"tenant": ["b"], "v": [7]})}],
        )
    )
    summary = asyncio.run(land(config))
    assert (summary.quarantined, summary.rows) == (2, 1)
    assert [row["v"] for row in asyncio.run(table_rows(config, table="mine"))] == [7]


def test_a_column_that_differs_from_its_tables_in_case_alone_is_put_aside(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"mine": pa.table({"tenant": ["a"], name: [1]})} for name in ("n", "N", "n")]))
    summary = asyncio.run(land(config))
    assert (summary.quarantined, summary.rows) == (1, 2)


@pytest.mark.parametrize(
    "times",
    [
        pa.array([2, 1], pa.timestamp("ns")).dictionary_encode(),
        pa.array([[2], [1]]),
        pa.array([b"2", b"1"], pa.binary(1)),
        pa.array([True, False]),
        pa.nulls(2),
        pa.array(["2", "1"], pa.string_view()),
    ],
    ids=lambda times: str(times.type),
)
def test_a_time_without_an_order_is_a_column_like_any_other(tmp_path: Path, times: Any) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"mine": pa.table({"tenant": ["a", "a"], "time": times})}]))
    assert asyncio.run(land(config)).rows == 2


def test_single_rows_that_would_spoil_their_table_are_put_aside_and_their_neighbours_land(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    seconds: Any = pa.array([1, 2**40, 3], pa.timestamp("s"))
    labels: Any = pa.array([[("a", "1")], [], [("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))
    asyncio.run(
        produce(config, [{"mine": pa.table({"tenant": ["a"] * 3, "n": [0, 1, 2], "time": seconds, "m": labels})}])
    )
    summary = asyncio.run(land(config))
    assert (summary.quarantined, summary.rows) == (2, 1)
    assert [row["n"] for row in asyncio.run(table_rows(config, table="mine"))] == [0]
    reasons = asyncio.run(_quarantine(config))
    assert any("'m' has a map with a duplicate key" in reason for reason in reasons)
    assert any("a time beyond" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("tables", "rows"),
    [
        ({"x" * 300: pa.table({"tenant": ["a"], "n": [1]})}, 1),
        ({"mine": pa.table({"tenant": ["\u4e2d" * 60], "n": [1]})}, 1),
        ({"x" * 2000: pa.table({"tenant": ["a"], "n": [1]})}, 0),
        ({"metrics": metric_rows(0, 2, "t" * 2000)}, 0),
        ({"metrics": metric_rows(0, 2).drop_columns(["metric"])}, 2),
        ({"metrics": metric_rows(0, 2).drop_columns(["type"])}, 2),
        ({"metrics": metric_rows(0, 2).set_column(2, "metric", pa.array([None, "m"]))}, 2),
        ({"metrics": pa.table({"tenant": ["a"]})}, 1),
    ],
    ids=["table", "tenant", "long table", "long tenant", "no metric", "no type", "null metric", "only tenant"],
)
def test_odd_names_and_columns_that_are_missing_stop_nobody(
    tmp_path: Path, tables: dict[str, pa.Table], rows: int
) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [tables, {"metrics": metric_rows(100, 5, "other")}]))
    summary = asyncio.run(land(config))
    assert summary.rows == rows + 5
    assert summary.quarantined == (0 if rows else next(iter(tables.values())).num_rows)
    assert asyncio.run(sample_values(config, "other")) == Counter(float(number) for number in range(100, 105))


VIEWS: list[tuple[Any, list[Any]]] = [
    (pa.string_view(), ["a", "b", None]),
    (pa.binary_view(), [b"a", b"b", None]),
    (pa.list_(pa.string_view()), [["a"], ["b", None], None]),
    (pa.struct([("q", pa.string_view())]), [{"q": "a"}, {"q": None}, None]),
    (pa.map_(pa.string_view(), pa.string_view()), [[("k", "a")], [], None]),
    (pa.list_(pa.binary_view(), 2), [[b"a", b"b"], [b"c", b"d"], None]),
]


@pytest.mark.parametrize(("kind", "values"), VIEWS, ids=[str(kind) for kind, _ in VIEWS])
def test_views_of_strings_land_as_strings_whoever_sends_them(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    """Arrow cannot take rows of views: two tenants in one stream, or rows out of order, ended the job for everybody."""
    config = config_at(tmp_path, series_path="")
    rows = pa.table(
        {
            "tenant": ["acme", "beta", "acme"],
            "time": pa.array([START + 1, START, START], pa.timestamp("ns", "UTC")),
            "what": pa.array(values, kind),
        }
    )

    async def check() -> None:
        await produce(config, [{"views": rows}])
        done = await land(config)
        assert (done.rows, done.quarantined) == (3, 0)
        found = await table_rows(config, tenant="acme") + await table_rows(config, tenant="beta")
        assert [row["what"] for row in found] == [values[2], values[0], values[1]]

    asyncio.run(check())


def test_strings_and_views_of_them_are_one_type_and_a_table_that_has_views_keeps_them() -> None:
    def rows(kind: Any) -> pa.Table:
        return pa.table({"tenant": ["acme"], "what": pa.array(["a"], kind)})

    mixed = gather_tables([("t", rows(pa.string())), ("t", rows(pa.string_view()))], {})
    assert (mixed.tables["acme", "t"].num_rows, mixed.misfits) == (2, [])
    assert mixed.known["acme", "t"]["what"] == "string"
    earlier = {("acme", "t"): {"tenant": "string", "what": "string_view"}}
    kept = gather_tables([("t", rows(pa.string_view()))], earlier)
    assert (kept.tables["acme", "t"].schema.field("what").type, kept.misfits) == (pa.string_view(), [])


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_tenant_is_a_tenant_in_every_layout_of_strings(kind: Any) -> None:
    rows = pa.table({"tenant": pa.array(["acme", "beta", "acme"]).cast(kind), "n": [1, 2, 3]})
    found = gather_tables([("t", rows)], {}).tables
    assert {tenant: table["n"].to_pylist() for (tenant, _), table in found.items()} == {"acme": [1, 3], "beta": [2]}


def test_a_stream_that_cannot_be_shared_out_is_put_aside_and_its_neighbours_land(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails_at_one(table: pa.Table) -> pa.Table:
        if "broken" in table.schema.names:
            raise pa.ArrowNotImplementedError("no kernel")
        return table

    monkeypatch.setattr("penstock.landing.tables.plain_views", fails_at_one)
    broken, good = pa.table({"tenant": ["a"], "broken": [1]}), pa.table({"tenant": ["a"], "n": [1]})
    gathered = gather_tables([("t", broken), ("u", good)], {})
    assert list(gathered.tables) == [("a", "u")]
    assert [(one.name, "no kernel" in one.reason, one.rows.num_rows) for one in gathered.misfits] == [("t", True, 1)]


@pytest.mark.parametrize("is_one_round", [True, False])
def test_a_column_without_values_has_no_type_until_one_comes(tmp_path: Path, is_one_round: bool) -> None:
    """The type null was kept as that of the column, and every row with a value was put aside from then on."""
    config = config_at(tmp_path, series_path="")

    def rows(value: Any, kind: Any = None) -> dict[str, pa.Table]:
        times = pa.array([START], pa.timestamp("ns", "UTC"))
        return {"own": pa.table({"tenant": ["acme"], "time": times, "what": pa.array([value], kind)})}

    async def check() -> None:
        batches = [rows(None), rows(7), rows(None), rows("text")]
        quarantined = 0
        for group in [batches] if is_one_round else [[one] for one in batches]:
            await produce(config, group)
            quarantined += (await land(config)).quarantined
        # A conflict is a conflict as soon as there is a type.
        assert quarantined == 1
        assert sorted(str(row["what"]) for row in await table_rows(config)) == ["7", "None", "None"]

    asyncio.run(check())


def test_a_series_that_the_store_refuses_keeps_none_of_its_neighbours(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    good = metric_rows(0, 5)
    bad = good.slice(0, 1).set_column(good.schema.get_field_index("metric"), "metric", pa.array([""]))

    async def check() -> None:
        await produce(config, [{"metrics": pa.concat_tables([good, bad.cast(good.schema)])}])
        done = await land(config)
        assert (done.rows, done.samples) == (6, 5)
        assert sum(done.refused.values()) == 1
        assert await sample_values(config) == Counter(float(number) for number in range(5))

    asyncio.run(check())


def test_columns_stay_known_over_a_restart(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"orders": pa.table({"tenant": ["a"], "n": [1]})}]))
    asyncio.run(land(config))
    asyncio.run(produce(config, [{"orders": pa.table({"tenant": ["a"], "n": ["two"]})}]))
    assert asyncio.run(land(config)).quarantined == 1


def test_late_rows_go_to_their_hour(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 60, hours=3)}]))
    assert asyncio.run(land(config)).files == 3
    hour = asyncio.run(table_rows(config, start=START, end=START + HOUR))
    assert {row["value"] for row in hour} == {float(n) for n in range(0, 60, 3)}
    assert asyncio.run(sample_values(config)) == ALL


def test_rows_of_very_many_hours_make_few_files(tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(partitions_max=10, interval_seconds=0.0))
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 60, hours=50)}]))
    assert asyncio.run(land(config)).files <= 4
    assert asyncio.run(landed_values(config)) == ALL


def test_an_unreadable_batch_is_set_aside_and_the_others_land(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(_spoil(config))
    summary = asyncio.run(land(config))
    assert (summary.set_aside, summary.rows) == (2, 20)
    assert asyncio.run(_letters(config)) == {1, 2}


def test_an_unreadable_batch_stops_the_job_if_the_queue_says_so(tmp_path: Path) -> None:
    config = config_at(tmp_path, consumer=ConsumerConfig(dead_letter=DeadLetterPolicy.HALT))
    asyncio.run(_spoil(config))
    with pytest.raises((Corrupt, Unsupported)):
        asyncio.run(land(config))
    assert asyncio.run(landed_values(config)) == Counter()


def test_rows_of_hundreds_of_tenants_that_lie_among_each_other_land_with_their_own(tmp_path: Path) -> None:
    config = config_at(tmp_path, series_path="")
    numbers = list(range(900))
    mixed = pa.table({"tenant": [f"t{number % 300}" if number % 7 else None for number in numbers], "a": numbers})
    asyncio.run(produce(config, [{"mine": mixed}]))
    assert asyncio.run(land(config)).rows == 900
    for tenant, of in {"": 7, "t5": 300}.items():
        found = [row["a"] for row in asyncio.run(table_rows(config, tenant=tenant, table="mine"))]
        # In the order in which they came.
        assert found == [number for number in numbers if (f"t{number % of}" if number % 7 else "") == tenant]


@pytest.mark.slow
def test_the_files_of_one_tenant_do_not_wait_for_those_of_another(tmp_path: Path) -> None:
    """Each put waits until another one is there: put one after the other, none would ever end."""
    config = config_at(tmp_path, series_path="")

    async def check() -> None:
        await produce(config, [{"metrics": pa.concat_tables(metric_rows(0, 2, f"t{one}") for one in range(4))}])
        store = await open_store(config.url)
        consumer = Consumer(store, config.consumer)
        await consumer.start()
        descriptors = tuple(await consumer.next_descriptors(1))
        met, waiting = asyncio.Event(), 0
        put = store.put

        async def put_in_company(key: str, *args: Any, **options: Any) -> Any:
            nonlocal waiting
            waiting += 1
            if waiting == 2:
                met.set()
            await met.wait()
            return await put(key, *args, **options)

        store.put = put_in_company  # type: ignore[method-assign]
        task = LandingTask(0, "queue", 0, 0, descriptors, writes_files=True, writes_samples=False)
        answer = await asyncio.wait_for(land_task(LandingSettings.of(config), task, store), 30)
        assert {file.tenant for file in answer.files} == {"t0", "t1", "t2", "t3"}
        await consumer.close()
        await store.close()

    asyncio.run(check())


def test_many_tenants_and_one_that_sends_most_of_it(tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(batches_per_round=8, interval_seconds=0.0))
    loud = [{"metrics": metric_rows(1000 * n, 1000, "loud")} for n in range(3)]
    quiet = [{"metrics": pa.concat_tables([metric_rows(n, 1, f"t{n}") for n in range(20)])}]
    asyncio.run(produce(config, [*loud, *quiet]))
    summary = asyncio.run(land(config))
    assert summary.rows == 3020
    assert sum(asyncio.run(sample_values(config, "loud")).values()) == 3000
    for number in (0, 7, 19):
        assert asyncio.run(sample_values(config, f"t{number}")) == Counter({float(number): 1})


@pytest.mark.slow
def test_a_tenant_that_sends_a_thousand_times_as_much_bounds_neither_the_others_nor_the_memory(tmp_path: Path) -> None:
    """Rows that pack a hundredfold come in pieces and in smaller rounds; whoever stands behind them is in the next one."""
    limits = LandingLimits(unpacked_bytes_per_task=200_000, rows_per_round=5000, interval_seconds=0.0)
    config = config_at(tmp_path, limits=limits)
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 20_000, "loud")}] * 2))
    rest = [{"metrics": metric_rows(20_000 + 2000 * n, 2000, "loud")} for n in range(8)]
    quiet = {"metrics": metric_rows(7, 20, "quiet")}

    async def session() -> list[tuple[int, int]]:
        lander = await Lander.open(config, stage_of(config))
        seen = []
        try:
            await lander.step()
            await produce(config, [*rest[:1], quiet, *rest[1:]])
            while await lander.step():
                seen.append((lander.summary.rows, (await landed_values(config, "quiet")).total()))
        finally:
            await lander.close()
        return seen

    seen = asyncio.run(session())
    rounds = [later - earlier for (earlier, _), (later, _) in zip([(40_000, 0), *seen], seen, strict=False)]
    # After the round of 40,000 rows none has many more than it should, and the quiet tenant is in the first of them.
    assert max(rounds) <= 2 * limits.rows_per_round
    assert len(rounds) > 2
    assert seen[0][1] == 20
    assert asyncio.run(landed_values(config, "loud")).total() == 56_000
    assert asyncio.run(sample_values(config, "quiet")).total() == 20


def test_a_small_record_waits_for_the_rounds_that_lie_before_it_and_for_no_more(tmp_path: Path) -> None:
    """What comes behind a flood is bounded by the flood that was there first, never by what comes after."""
    config = config_at(tmp_path, series_path="", limits=LandingLimits(interval_seconds=0.0, batches_per_round=4))

    async def check() -> None:
        await produce(config, [{"metrics": metric_rows(number * 10, 10, "large")} for number in range(9)])
        await produce(config, [{"metrics": metric_rows(0, 3, "small")}])
        lander = await Lander.open(config, stage_of(config))
        try:
            for number in range(3):
                assert not await table_rows(config, tenant="small")
                # The flood goes on while it waits.
                await produce(config, [{"metrics": metric_rows(1000 + number * 10, 10, "large")}])
                await lander.step()
            assert len(await table_rows(config, tenant="small")) == 3
        finally:
            await lander.close()

    asyncio.run(check())


def test_pieces_of_a_task_have_the_same_files_when_they_are_made_again(tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(unpacked_bytes_per_task=1, interval_seconds=0.0))
    batches = [
        {"metrics": metric_rows(100 * n, 100), "mine": pa.table({"tenant": ["acme"], "a": [n]})} for n in range(3)
    ]
    asyncio.run(produce(config, [*batches, {"mine": pa.table({"tenant": ["acme"], "a": ["text"]})}]))
    stage = Recorded(stage_of(config))
    summary = asyncio.run(land(config, stage))
    assert (summary.files, summary.rows, summary.quarantined) == (6, 303, 1)
    (task,) = stage.tasks
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    assert len(before) == 6
    again = stage_of(config).land([task])
    assert {file.path for file in again[0].files} == {str(path.relative_to(tmp_path / "lake")) for path in before}
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


class Recorded:
    """A stage that keeps the tasks it was given."""

    def __init__(self, inner: LandingStage) -> None:
        self._inner = inner
        self.tasks: list[LandingTask] = []

    def land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        self.tasks += tasks
        return self._inner.land(tasks)

    def cancel(self) -> None:
        self._inner.cancel()


def test_points_without_a_series_are_counted_and_their_rows_kept(tmp_path: Path) -> None:
    config = config_at(tmp_path, mapping=SeriesConfig())
    batch = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    asyncio.run(produce(config, [{"metrics": pa.Table.from_batches([batch])}]))
    summary = asyncio.run(land(config))
    assert (summary.rows, summary.refused) == (5, {"exponential histogram": 1})


def test_samples_that_the_store_would_refuse_are_counted_as_refused_and_not_as_written(tmp_path: Path) -> None:
    config = config_at(tmp_path, series=TimeSeriesConfig(labels_max=1))
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
    summary = asyncio.run(land(config))
    assert (summary.rows, summary.samples, summary.refused) == (10, 0, {"series over a bound": 10})


def test_a_row_of_which_no_series_can_be_made_stops_neither_the_job_nor_its_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the mapping fails at: what was acknowledged is met again and again until it has landed."""

    def failing(batch: Any, mapping: SeriesConfig) -> Any:
        if 13.0 in batch.column("value").to_pylist():
            raise IndexError("a fault that nobody knows of")
        return series_of(batch, mapping)

    monkeypatch.setattr("penstock.landing.work.series_of", failing)
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 20)}]))
    summary = asyncio.run(land(config))
    assert (summary.rows, summary.samples) == (20, 19)
    assert summary.refused == {"no series can be made of it: IndexError": 1}


def test_points_of_delta_temporality_are_added_up_once_also_over_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LandingLimits(batches_per_round=1, interval_seconds=0.0)
    config = config_at(tmp_path, mapping=SeriesConfig(delta=DeltaPolicy.ACCUMULATE, target_info=False), limits=limits)

    def deltas(first: int) -> pa.Table:
        request, scope = metrics_scope()
        total = scope.metrics.add(name="jobs").sum
        total.aggregation_temporality, total.is_monotonic = 1, True
        for number in (1, 0):
            total.data_points.add(time_unix_nano=START + (first + number) * 10**9, as_int=10 + first + number)
        batch = decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch
        return pa.Table.from_batches([batch])

    asyncio.run(produce(config, [{"metrics": deltas(2 * n)} for n in range(3)]))
    with monkeypatch.context() as patch:
        _die(patch, "files only")
        with pytest.raises(Killed):
            asyncio.run(land(config))
    asyncio.run(land(config))
    assert asyncio.run(sample_values(config)) == Counter([10.0, 21.0, 33.0, 46.0, 60.0, 75.0])


def test_a_series_over_a_bound_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    bad = metric_rows(100, 1).to_pylist()[0]
    bad["labels"] = [(f"l{n:03}", "x") for n in range(100)]
    rows = pa.concat_tables([metric_rows(0, 60), pa.Table.from_pylist([bad], metric_rows(0, 1).schema)])
    asyncio.run(produce(config, [{"metrics": rows}]))
    summary = asyncio.run(land(config))
    assert summary.rows == 61
    assert asyncio.run(sample_values(config)) == ALL


def test_without_series_only_the_catalog_is_written(tmp_path: Path) -> None:
    config = config_at(tmp_path, series_path="")
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 60)}]))
    asyncio.run(land(config))
    assert asyncio.run(landed_values(config)) == ALL
    # Series that are wanted later begin where the queue is then.
    asyncio.run(produce(config, [{"metrics": metric_rows(60, 5)}]))
    later = config_at(tmp_path)
    asyncio.run(land(later))
    assert sum(asyncio.run(sample_values(later)).values()) == 5
    assert sum(asyncio.run(landed_values(later)).values()) == 65


def test_an_empty_queue_is_nothing_to_do(tmp_path: Path) -> None:
    assert asyncio.run(land(config_at(tmp_path))).rounds == 0


async def _spoil(config: Any) -> None:
    """Four batches, of which one is no batch object any more and one holds something else."""
    await produce(config, [{"metrics": metric_rows(10 * n, 10)} for n in range(2)])
    from penstock.buffer import Producer

    store = await open_store(config.url)
    async with Producer(store) as producer:
        await (await producer.produce([b"no Arrow"], ArrowEnvelope(None).encode())).durable()
    await produce(config, [{"metrics": metric_rows(10, 10)}])
    manifest = await queued_now(store, config.consumer.manifest_path)
    second = next(one for one in manifest if one.sequence == 1)
    await store.put(second.location, b"damaged")
    await store.close()


async def _letters(config: Any) -> set[int]:
    store = await open_store(config.url)
    try:
        return await DeadLetters(store, config.consumer.data_path_prefix).sequences(0, 100)
    finally:
        await store.close()


async def _quarantine(config: Any) -> list[str]:
    store = await open_store(config.url)
    try:
        keys = [meta.key async for page in store.list("landing/quarantine/") for meta in page]
        found = []
        for key in keys:
            with pa.ipc.open_stream(bytes((await store.get(key)).data)) as reader:
                found.append((reader.schema.metadata or {})[b"penstock.reason"].decode())
        return found
    finally:
        await store.close()


async def _nothing() -> None:
    return None
