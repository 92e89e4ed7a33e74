"""A relay into several queues: every row once, in the shard of its tenant, also when the layout changes on the way.

The relay is ended at each of its steps in turn, and the layout is changed while it is dead.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.relay.edge import filled, numbers, opened, queue_outlet
from tests.relay.test_steps import EndingStore, Scene, ended, steps_tried

from penstock.buffer import (
    ConsumedBatch,
    Consumer,
    ConsumerConfig,
    ProducerConfig,
    RoutingWatch,
    ShardKey,
    ShardLayout,
    change_routing,
    shard_config,
)
from penstock.observability import names
from penstock.quiver import Bundle
from penstock.relay import QueueOutletConfig, Relay, RelayMarks, RelayStamp, ShardedOutlet, rows_by_shard
from penstock.testing import Simulation, simulate

TENANTS = ("acme", "beta", "gamma", "delta", "", None)
FOLDER = "/store/relay"
ALL = Counter(range(48))


def mixed(first: int) -> Bundle:
    """24 rows of six tenants, told apart by `n`."""
    tenants = [TENANTS[number % len(TENANTS)] for number in range(24)]
    batch = pa.record_batch({"n": pa.array(range(first, first + 24)), "tenant": pa.array(tenants, pa.string())})
    return Bundle({"logs": batch}, signal="logs", identity=f"b{first}")


class ShardedScene(Scene):
    """Two segments of all tenants, and as many queues as the layout has."""

    def __init__(self, simulation: Simulation, *, alone: bool = True) -> None:
        super().__init__(simulation, QueueOutletConfig(part_bytes=256, alone=alone))
        self.by_shard: dict[int, list[ConsumedBatch]] = {}

    def outlet(self, store: Any, quiver: Any) -> ShardedOutlet:
        def open_shard(shard: int) -> Any:
            return queue_outlet(
                store,
                quiver,
                self.disk,
                journal=f"{FOLDER}/queue-000{f'-shard-{shard:04}' if shard else ''}.json",
                producer=shard_config(ProducerConfig(), shard),
                config=self.config,
                clock=self.clock,
                entropy=self.entropy.fork(f"outlet-{self.starts}-{shard}"),
                offload=self.offload,
                observer=self.observer,
            )

        watch = RoutingWatch(self.store, clock=self.clock, entropy=self.entropy.fork(f"watch-{self.starts}"))
        return ShardedOutlet(
            watch,
            open_shard,
            f"{FOLDER}/queue-000-layouts.json",
            disk=self.disk,
            offload=self.offload,
            observer=self.observer,
        )

    async def relay(self, store: Any, *, until_empty: bool = True) -> None:
        self.starts += 1
        quiver = await opened(self.disk, clock=self.clock, offload=self.offload)
        doors: dict[str, Any] = {"clock": self.clock, "entropy": self.entropy.fork("relay")}
        outlet = self.outlet(store, quiver)
        await Relay(quiver, "queue", outlet, **doors).run(until_empty=until_empty)
        await outlet.close()
        await quiver.close()

    async def fill(self) -> None:
        quiver = await opened(self.disk, clock=self.clock)
        await filled(quiver, [[mixed(0)], [mixed(24)]], "queue")
        await quiver.close()

    async def shards(self, count: int, by: ShardKey = ShardKey.TENANT) -> None:
        await change_routing(self.store, ShardLayout(count, by), clock=self.clock, entropy=self.entropy.fork("routing"))

    async def consume(self) -> None:
        for shard in range(8):
            config = shard_config(ConsumerConfig(collect=False), shard)
            found = self.by_shard.setdefault(shard, [])
            last = found[-1].sequence if found else None
            doors: dict[str, Any] = {"clock": self.clock, "entropy": self.simulation.entropy.fork(f"consumer-{shard}")}
            async with Consumer(self.store, config, last, **doors) as consumer:
                while (batch := await consumer.next_batch()) is not None:
                    found.append(batch)
                    await consumer.ack(batch.sequence)

    def new_batches(self, shard: int) -> list[ConsumedBatch]:
        """What a consumer of this shard keeps."""
        marks, kept = RelayMarks(), []
        for batch in self.by_shard.get(shard, []):
            stamp = RelayStamp.decode(batch.metadata[0].payload)
            assert stamp is not None
            if marks.admit(stamp):
                kept.append(batch)
        return kept

    def check(self) -> None:
        kept = [batch for shard in range(8) for batch in self.new_batches(shard)]
        assert Counter(numbers(kept)) == ALL


def test_each_tenant_arrives_in_its_own_shard() -> None:
    async def main(simulation: Simulation) -> None:
        scene = ShardedScene(simulation)
        await scene.fill()
        await scene.shards(4)
        await scene.relay(scene.store)
        await scene.consume()
        scene.check()
        for shard in range(4):
            tenants = set(numbers(scene.by_shard[shard], "tenant"))
            assert all(ShardLayout(4).shard_of(one or "", "logs") == shard for one in tenants)
        assert sum(bool(scene.by_shard[shard]) for shard in range(4)) > 2

    simulate(main, 1)


def test_without_a_routing_everything_is_as_it_was() -> None:
    async def main(simulation: Simulation) -> None:
        scene = ShardedScene(simulation)
        await scene.fill()
        await scene.relay(scene.store)
        await scene.consume()
        scene.check()
        assert {shard for shard, found in scene.by_shard.items() if found} == {0}
        with pytest.raises(FileNotFoundError):
            scene.disk.read(f"{FOLDER}/queue-000-layouts.json")

    simulate(main, 1)


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize(
    ("before", "after", "lands", "drained"),
    [(1, 4, True, False), (3, 5, True, True), (4, 1, True, True)],
)
def test_a_relay_that_ends_at_any_request_while_the_layout_changes_sends_each_row_once(
    before: int, after: int, lands: bool, drained: bool
) -> None:
    async def at(simulation: Simulation, step: int) -> bool:
        scene = ShardedScene(simulation)
        await scene.fill()
        await scene.shards(before)
        ending = EndingStore(scene.store, step, lands=lands)
        was_ended = await ended(scene, ending, ending.ended)
        scene.disk.revive()
        await scene.shards(after)
        if drained:
            await scene.consume()
        await scene.relay(scene.store)
        await scene.consume()
        scene.check()
        return was_ended

    assert steps_tried(at) > 10


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "power"), [(3, 2, True)])
def test_a_relay_that_ends_at_any_write_of_its_disk_while_the_layout_changes_sends_each_row_once(
    before: int, after: int, power: bool
) -> None:
    async def at(simulation: Simulation, step: int) -> bool:
        scene = ShardedScene(simulation)
        await scene.fill()
        await scene.shards(before)
        scene.disk.cut_power(after_writes=step)
        was_ended = await ended(scene, scene.store, scene.dark)
        if power:
            scene.disk.crash()
        else:
            scene.disk.revive()
        await scene.shards(after)
        await scene.relay(scene.store)
        await scene.consume()
        scene.check()
        return was_ended

    assert steps_tried(at) > 20


def test_rows_in_doubt_that_were_consumed_are_sent_again_under_their_stamp() -> None:
    """Somebody else produces too, so that nobody can tell; the consumer of the shard knows the repeat."""

    async def at(simulation: Simulation, step: int) -> bool:
        scene = ShardedScene(simulation, alone=False)
        await scene.fill()
        await scene.shards(3)
        ending = EndingStore(scene.store, step, lands=True)
        was_ended = await ended(scene, ending, ending.ended)
        scene.disk.revive()
        await scene.consume()
        await scene.relay(scene.store)
        await scene.consume()
        scene.check()
        return was_ended

    assert steps_tried(at) > 10


def test_a_damaged_note_of_layouts_is_told_and_the_layout_in_force_is_taken() -> None:
    async def main(simulation: Simulation) -> None:
        scene = ShardedScene(simulation)
        await scene.fill()
        await scene.shards(4)
        await scene.relay(scene.store)
        path = f"{FOLDER}/queue-000-layouts.json"
        data, _ = scene.disk.read(path)
        scene.disk.unlink(path)
        scene.disk.create(path, bytes(data[:-3]) + b"000")
        quiver = await opened(scene.disk, clock=scene.clock, offload=scene.offload)
        await filled(quiver, [[mixed(48)]], "queue")
        await quiver.close()
        await scene.relay(scene.store)
        await scene.consume()
        assert len(scene.observer.events(names.RELAY_JOURNAL_LOST)) == 1
        kept = [batch for shard in range(8) for batch in scene.new_batches(shard)]
        assert Counter(numbers(kept)) == Counter(range(72))

    simulate(main, 1)


def test_rows_are_cut_by_tenant_and_by_table() -> None:
    table = pa.table({"n": range(24), "tenant": pa.array([TENANTS[n % 6] for n in range(24)], pa.string())})
    layout = ShardLayout(8, ShardKey.TENANT_AND_TABLE)
    found = rows_by_shard({"logs": [table], "otlp_metrics": [pa.table({"request": [b"x"]})]}, layout)
    assert Counter(
        n for some in found.values() for one in some.get("logs", []) for n in one.column("n").to_pylist()
    ) == (Counter(range(24)))
    assert "otlp_metrics" in found[layout.shard_of("", "metrics")]
    assert rows_by_shard({"logs": [table.slice(0, 0)]}, layout) == {0: {"logs": [table.slice(0, 0)]}}
