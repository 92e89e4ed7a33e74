"""What the pages of the rooms show works as it is shown; only buckets are replaced by a directory."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock import buffer, keyvalue, objects, testing
from penstock.clock import Clock
from penstock.errors import OutcomeUnknown, Unavailable
from penstock.ids import Entropy

ROOMS = Path(__file__).parent.parent / "docs" / "rooms"


class Sink:
    """Stores batches together with their sequence, as the queue's page asks."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.stored = asyncio.Event()

    def position(self) -> int | None:
        return max(self.batches, default=None)

    def store(self, records: buffer.Records, *, position: int) -> None:
        self.batches[position] = [bytes(record) for record in records]
        self.stored.set()


async def write(store: objects.ObjectStore, clock: Clock, entropy: Entropy) -> None:
    """The process that the simulation's example kills."""
    register = objects.Register(store, "key", objects.StampedFormat(objects.BytesCodec()), clock=clock, entropy=entropy)
    while True:
        await register.update(lambda value: value.map(lambda payload: payload + b"."))


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOMS / page).read_text(), re.MULTILINE | re.DOTALL)


async def play(example: str, names: dict[str, Any], root: Path) -> None:
    """Run it as if typed, with `...` for whatever the reader puts there."""
    text = re.sub(r'"(?:s3://bucket/[a-z]+|file:///var/lib/penstock)"', f'"file://{root}"', example)
    text = text.replace(', endpoint="http://127.0.0.1:8333"', "")
    made = eval(compile(text, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if inspect.iscoroutine(made):
        await made


def test_the_example_of_the_stores_runs(tmp_path: Path) -> None:
    async def session() -> None:
        names: dict[str, Any] = {"body": b"1", "newer": b"2"}
        for example in examples("objects.md"):
            await play(example, names, tmp_path)
        assert names["found"].data == b"2"
        await names["store"].close()

    asyncio.run(session())


def test_the_example_of_the_register_runs(tmp_path: Path) -> None:
    async def session() -> None:
        names: dict[str, Any] = {}
        for example in examples("register.md"):
            await play(example, names, tmp_path)
        assert names["value"].payload == b"."
        await names["store"].close()

    asyncio.run(session())


def test_the_examples_of_the_key_value_store_run(tmp_path: Path) -> None:
    async def session() -> None:
        names: dict[str, Any] = {
            **vars(keyvalue),
            "block": bytes(1000),
            "clock": testing.ManualClock(),
            "Unavailable": Unavailable,
            "OutcomeUnknown": OutcomeUnknown,
        }
        on_a_store, in_tests = examples("keyvalue.md")
        await play(on_a_store, names, tmp_path)
        assert await names["follower"].get(b"block/1") == bytes(1000)
        await names["follower"].close()
        await names["store"].close()
        await play(in_tests, names, tmp_path)

    asyncio.run(session())


def test_the_examples_of_the_queue_run(tmp_path: Path) -> None:
    async def session() -> None:
        sink = Sink()
        names: dict[str, Any] = {**vars(buffer), "open_store": objects.open_store, "sink": sink, "Sequence": Sequence}
        produce, one_by_one, ahead, loop, run = examples("buffer.md")
        await play(produce, names, tmp_path)
        await play(one_by_one, names, tmp_path)
        assert sink.batches == {0: [b"one", b"two"]}
        await play(produce, names, tmp_path)
        names |= {"consumer": buffer.Consumer(names["store"], last_acked=0), "sequence": 1}
        await play(ahead, names, tmp_path)
        assert names["consumer"].last_acked == 1
        await play(produce, names, tmp_path)
        sink.stored.clear()
        looping = asyncio.create_task(play(loop, names, tmp_path))
        await sink.stored.wait()
        looping.cancel()
        await asyncio.wait((looping,))
        assert sink.position() == 2
        await names["consumer"].close()
        await play(produce, names, tmp_path)
        await play(run, names, tmp_path)
        assert sink.batches[3] == [b"one", b"two"]
        await names["store"].close()

    asyncio.run(session())


def test_the_example_of_the_simulation_runs() -> None:
    names: dict[str, Any] = {**vars(testing), "MemoryStore": objects.MemoryStore, "write": write}
    # A simulation owns the thread's only loop, so this one is played without.
    exec(compile(examples("testing.md")[0], "example", "exec"), names)
    assert inspect.iscoroutinefunction(names["main"])


def test_the_example_of_the_catalog_runs(tmp_path: Path) -> None:
    async def session() -> None:
        names: dict[str, Any] = {}
        for example in examples("catalog.md"):
            await play(example, names, tmp_path)
        assert names["plan"].paths == [names["file"].path]
        assert (names["progress"].complete, names["done"].repeated) == (None, ())

    asyncio.run(session())
