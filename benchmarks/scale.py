"""Where one manifest saturates: many producers on one queue at the latencies of S3, and the same on several shards.

Real producers and a real consumer on a simulated clock and store: 15 ms a GET, 40 ms a PUT, no bandwidth. Every producer
is a process of its own that offers a small batch each `INTERVAL` seconds, as a relay does with its segments, at a moment
of its own; the consumer takes batches off once a second. Told are the batches that were durable in the time, how long
each took from its call, and how many writes of a manifest were lost to another writer. A producer that cannot place a
batch within its deadline of 30 s fails, and is counted. Run it with `python benchmarks/scale.py`, which takes some ten
minutes; `--quick` leaves the largest out.
"""

from __future__ import annotations

import asyncio
import sys

from _usage import check_words
from penstock.buffer import Consumer, ConsumerConfig, Producer, ProducerConfig, shard_config
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import PenstockError
from penstock.objects import MemoryStore
from penstock.observability import names
from penstock.testing import FaultPlan, FaultyStore, Latency, RecordingObserver, Simulation, simulate

QUICK = "--quick" in sys.argv
INTERVAL = 5.0
# Simulated; a crowd that has outgrown its manifest costs a minute of processor time for each of these seconds.
SECONDS, SECONDS_CROWDED = 40.0, 15.0
CROWD = 1000
STEPS_MAX = 1 << 40
S3 = FaultPlan(
    latency=Latency(0.015, 0.015),
    latency_by_verb={"put": Latency(0.04, 0.04), "put_if": Latency(0.04, 0.04)},
)
WORLDS = [(10, 1), (50, 1), (100, 1), (200, 1), (400, 1), (400, 8), (1000, 8), (1000, 32), (1000, 1)]


def main() -> None:
    print(f"simulated S3; every producer offers a batch each {INTERVAL:g} s")
    print("producers  shards  offered/s  durable/s  writes/s  lost to others  failed  median wait    99 %    processor")
    for producers, shards in WORLDS:
        if QUICK and producers > 200:
            continue
        began = SYSTEM_CLOCK.monotonic()
        line = simulate(lambda world, p=producers, s=shards: crowd(world, p, s), seed=1, steps_max=STEPS_MAX)
        print(f"{line}  {SYSTEM_CLOCK.monotonic() - began:6.0f} s", flush=True)


async def crowd(world: Simulation, producers: int, shards: int) -> str:
    store = FaultyStore(MemoryStore(clock=world.clock), S3, entropy=world.entropy.fork("s3"), clock=world.clock)
    observer = RecordingObserver()
    seconds = SECONDS_CROWDED if producers // shards >= CROWD else SECONDS
    waits: list[float] = []
    offered = failed = 0

    async def produce(number: int) -> None:
        nonlocal failed, offered
        entropy = world.entropy.fork(f"producer-{number}")
        config = shard_config(ProducerConfig(flush_interval_seconds=0.0), number % shards)
        await world.clock.sleep(entropy.uniform(0.0, INTERVAL))
        producer = Producer(store, config, clock=world.clock, entropy=entropy, observer=observer)

        async def one() -> None:
            nonlocal failed
            began = world.clock.monotonic()
            try:
                await (await producer.produce([b"row"], b"\x01\x02\x01\x00")).durable()
            except PenstockError:
                failed += 1
            else:
                waits.append(world.clock.monotonic() - began)

        async with producer:
            calls = []
            while world.clock.monotonic() < seconds:
                offered += 1
                calls.append(asyncio.ensure_future(one()))
                await world.clock.sleep(INTERVAL)
            await asyncio.gather(*calls)

    async def consume(shard: int) -> None:
        config = shard_config(ConsumerConfig(collect=False), shard)
        doors = {"clock": world.clock, "entropy": world.entropy.fork(f"consumer-{shard}")}
        async with Consumer(store, config, **doors) as consumer:  # type: ignore[arg-type]
            while world.clock.monotonic() < seconds:
                await world.clock.sleep(1.0)
                found = await consumer.next_descriptors(10_000)
                if found:
                    await consumer.ack_through(found[-1].sequence)

    work = [*(produce(number) for number in range(producers)), *(consume(shard) for shard in range(shards))]
    done = await asyncio.gather(*work, return_exceptions=True)
    failed += sum(isinstance(one, BaseException) for one in done)
    took = world.clock.monotonic()
    waits.sort()
    commits = observer.counted(names.REGISTER_COMMITS)
    conflicts = observer.counted(names.REGISTER_CONFLICTS)
    middle, high = (waits[int(len(waits) * part)] if waits else float("nan") for part in (0.5, 0.99))
    return (
        f"{producers:>9}  {shards:>6}  {offered / seconds:9.1f}  {len(waits) / took:9.1f}  {commits / took:8.1f}"
        f"  {conflicts / max(1, commits + conflicts):14.0%}  {failed:>6}  {middle:9.2f} s  {high:6.2f} s"
    )


if __name__ == "__main__":
    check_words(__doc__, ["--quick"])
    main()
