"""The relay to the queue, ended at each of its steps in turn: before a request, behind it, and at every disk write.

Whatever the next relay finds, and whether or not a consumer has emptied the queue in between: every row, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.relay.edge import JOURNAL, filled, numbers, opened, queue_outlet, rows, stamps, taken

from penstock.buffer import Producer
from penstock.objects import MemoryStore
from penstock.objects.port import Body, Object, ObjectMeta
from penstock.observability import names
from penstock.relay import QueueOutletConfig, Relay, RelayMarks, RelayStamp, UnprovedPolicy
from penstock.testing import PowerCut, RecordingObserver, Simulation, TornDisk, simulate
from penstock.testing.storage.hostile_stores import PassingStore

# Above the number of requests, and of disk writes, that the two segments take.
STEPS_MAX = 200


class EndingStore(PassingStore):
    """Lets so many requests through, then never answers; the last one lands or not."""

    def __init__(self, inner: MemoryStore, requests: int, *, lands: bool) -> None:
        super().__init__(inner)
        self._left = requests
        self._lands = lands
        self.ended = asyncio.Event()

    async def _pass(self, work: Any) -> Any:
        self._left -= 1
        if self._left > 0:
            return await work
        if self._left == 0 and self._lands:
            await work
        else:
            work.close()
        self.ended.set()
        return await asyncio.get_running_loop().create_future()

    async def get(self, key: str) -> Object:
        return await self._pass(super().get(key))  # type: ignore[no-any-return]

    async def get_durable(self, key: str) -> Object:
        return await self._pass(super().get_durable(key))  # type: ignore[no-any-return]

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        return await self._pass(super().get_if_changed(key, version=version))  # type: ignore[no-any-return]

    async def put(self, key: str, data: Body) -> ObjectMeta:
        return await self._pass(super().put(key, data))  # type: ignore[no-any-return]

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        return await self._pass(super().put_if(key, data, version=version))  # type: ignore[no-any-return]


class Scene:
    def __init__(self, simulation: Simulation, config: QueueOutletConfig) -> None:
        self.simulation = simulation
        self.clock = simulation.clock
        self.disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=self.clock)
        self.store = MemoryStore(clock=self.clock)
        self.config = config
        self.entropy = simulation.entropy.fork("scene")
        self.observer = RecordingObserver()
        self.dark = asyncio.Event()
        self.starts = 0
        self.arrived: list[Any] = []
        self.position: int | None = None

    async def offload(self, work: Any, /, *args: Any) -> Any:
        try:
            return work(*args)
        except PowerCut:
            self.dark.set()
            return await asyncio.get_running_loop().create_future()

    async def relay(self, store: Any, *, until_empty: bool = True) -> None:
        self.starts += 1
        quiver = await opened(self.disk, clock=self.clock, offload=self.offload)
        outlet = queue_outlet(
            store,
            quiver,
            self.disk,
            config=self.config,
            clock=self.clock,
            entropy=self.entropy.fork(f"outlet-{self.starts}"),
            offload=self.offload,
            observer=self.observer,
        )
        doors: dict[str, Any] = {"clock": self.clock, "entropy": self.entropy.fork("relay")}
        await Relay(quiver, "queue", outlet, **doors).run(until_empty=until_empty)
        await quiver.close()

    async def fill(self) -> None:
        quiver = await opened(self.disk, clock=self.clock)
        await filled(quiver, [[rows(1)], [rows(2)]], "queue")
        await quiver.close()

    async def consume(self) -> None:
        doors: dict[str, Any] = {"clock": self.clock, "entropy": self.simulation.entropy.fork("consumer")}
        batches = await taken(self.store, self.position, **doors)
        self.arrived += batches
        self.position = batches[-1].sequence if batches else self.position

    async def produce_beside(self) -> None:
        doors: dict[str, Any] = {"clock": self.clock, "entropy": self.simulation.entropy.fork("other")}
        async with Producer(self.store, **doors) as producer:  # type: ignore[arg-type]
            await (await producer.produce([b"another's"], b"\x01\x02\x01\x00")).durable()


async def ended(scene: Scene, store: Any, moment: asyncio.Event) -> bool:
    """Whether the relay was ended at its step, and not by having nothing more to do."""
    process = scene.simulation.start("relay", scene.relay(store))
    joined, waited = asyncio.create_task(process.join()), asyncio.create_task(moment.wait())
    await asyncio.wait([joined, waited], return_when=asyncio.FIRST_COMPLETED)
    process.crash()
    waited.cancel()
    return moment.is_set()


async def go_on(scene: Scene, *, drained: bool, beside: bool) -> None:
    if beside:
        await scene.produce_beside()
    if drained:
        await scene.consume()
    await scene.relay(scene.store)
    await scene.consume()


def steps_tried(at: Callable[..., Coroutine[Any, Any, bool]]) -> int:
    """How many steps there were, each tried in a world of its own, up to the first that lies behind the end."""
    for step in range(1, STEPS_MAX):
        if not simulate(partial(at, step=step), step):
            return step
    raise AssertionError("there was no end")


def check(scene: Scene, *, beside: bool) -> None:
    own = [batch for batch in scene.arrived if stamps([batch])]
    marks = RelayMarks()
    new = [batch for batch in own if marks.admit(RelayStamp.decode(batch.metadata[0].payload))]
    assert sorted(numbers(new)) == [1] * 16 + [2] * 16
    repeats = len(own) - len(new)
    if not beside:
        assert repeats == 0
    assert repeats == 0 or scene.observer.events(names.RELAY_UNPROVED)


@pytest.mark.cases(quick=3)
@pytest.mark.parametrize(
    ("beside", "drained"),
    [(False, True), (True, False), (True, True)],
    ids=["alone, consumed", "shared, queued", "shared, consumed"],
)
@pytest.mark.parametrize("lands", [False, True], ids=["lost", "landed"])
def test_a_relay_that_ends_at_any_request_is_followed_by_one_that_sends_each_row_once(
    lands: bool, beside: bool, drained: bool
) -> None:
    async def at(simulation: Simulation, step: int) -> bool:
        scene = Scene(simulation, QueueOutletConfig(part_bytes=96, alone=not beside))
        await scene.fill()
        ending = EndingStore(scene.store, step, lands=lands)
        was_ended = await ended(scene, ending, ending.ended)
        scene.disk.revive()
        await go_on(scene, drained=drained, beside=beside)
        check(scene, beside=beside)
        return was_ended

    assert steps_tried(at) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beside", "drained"),
    [(False, True), (True, False), (True, True)],
    ids=["alone, consumed", "shared, queued", "shared, consumed"],
)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_relay_that_ends_at_any_write_of_its_disk_is_followed_by_one_that_sends_each_row_once(
    power: bool, beside: bool, drained: bool
) -> None:
    async def at(simulation: Simulation, step: int) -> bool:
        scene = Scene(simulation, QueueOutletConfig(part_bytes=96, alone=not beside))
        await scene.fill()
        scene.disk.cut_power(after_writes=step)
        was_ended = await ended(scene, scene.store, scene.dark)
        if power:
            scene.disk.crash()
        else:
            scene.disk.revive()
        await go_on(scene, drained=drained, beside=beside)
        check(scene, beside=beside)
        return was_ended

    assert steps_tried(at) > 20


def test_a_segment_that_nobody_can_prove_is_set_aside_where_that_is_the_policy() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation, QueueOutletConfig(part_bytes=96, unproved=UnprovedPolicy.SET_ASIDE))
        await scene.fill()
        for step in range(1, STEPS_MAX):
            ending = EndingStore(scene.store, step, lands=True)
            await ended(scene, ending, ending.ended)
            scene.disk.revive()
            await scene.consume()
            if scene.arrived:
                break
        await scene.produce_beside()
        await scene.consume()
        await scene.relay(scene.store)
        await scene.consume()
        own = [batch for batch in scene.arrived if stamps([batch])]
        assert sorted(numbers(own)) == [1] * 16 + [2] * 16, "nothing twice"
        assert scene.observer.counted(names.RELAY_UNPROVED_SEGMENTS, policy="set_aside") == 1
        quiver = await opened(scene.disk, clock=scene.clock)
        assert await quiver.replay("queue") == [1]
        await quiver.close()
        await scene.relay(scene.store)
        await scene.consume()
        own = [batch for batch in scene.arrived if stamps([batch])]
        assert sorted(numbers(own)) == [1] * 32 + [2] * 16, "a person has asked for it again"

    simulate(main, 1)


def test_a_damaged_journal_is_moved_away_and_told() -> None:
    async def main(simulation: Simulation) -> None:
        scene = Scene(simulation, QueueOutletConfig())
        await scene.fill()
        await scene.relay(scene.store)
        scene.disk.unlink(JOURNAL)
        scene.disk.create(JOURNAL, b'{"version":1,"relay":"x"}\n00000000\n')
        await scene.relay(scene.store)
        quiver = await opened(scene.disk, clock=scene.clock)
        await filled(quiver, [[rows(3)]], "queue")
        await quiver.close()
        await scene.relay(scene.store)
        await scene.consume()
        assert len(scene.observer.events(names.RELAY_JOURNAL_LOST)) == 1
        assert len({stamp.relay for stamp in stamps(scene.arrived)}) == 2
        assert sorted(set(numbers(scene.arrived))) == [1, 2, 3]

    simulate(main, 1)
