"""A process of its own for the tests that kill, fence or follow one: `python process.py VERB URL PATH [NUMBER]`.

`write` writes numbered batches for ever and prints each number once it is durable; `obey` writes one
batch for every line it is given and prints what came of it; `follow` prints every new value of the
key `newest` that it sees.
"""

from __future__ import annotations

import asyncio
import random
import sys

from penstock.errors import PenstockError
from penstock.keyvalue import KeyValue, WriteBatch, open_follower, open_keyvalue

ROWS = 5


def batch(number: int) -> WriteBatch:
    """A batch whose wholeness can be seen: every row carries the batch's number and an equal body."""
    entropy = random.Random(number)
    body = entropy.randbytes(entropy.randrange(100, 60_000))
    written = WriteBatch().put(b"newest", b"%d" % number)
    for row in range(ROWS):
        written.put(b"batch/%08d/%d" % (number, row), body)
    return written


async def write(store: KeyValue, number: int) -> None:
    waiting: set[asyncio.Task[None]] = set()
    while True:
        number += 1
        task = asyncio.create_task(report(await store.write(batch(number)), number))
        waiting.add(task)
        task.add_done_callback(waiting.discard)
        if len(waiting) > 8:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)


async def report(handle, number: int) -> None:
    await handle.durable()
    print(number, flush=True)


async def obey(store: KeyValue, number: int) -> None:
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        number += 1
        try:
            await (await store.write(batch(number))).durable()
            print("durable", flush=True)
        except PenstockError as error:
            print(type(error).__name__, flush=True)


async def follow(url: str, path: str) -> None:
    follower = await open_follower(url, path, poll_interval_ms=20)
    print("ready", flush=True)
    last = None
    while True:
        newest = await follower.get(b"newest")
        if newest != last:
            last = newest
            print((newest or b"").decode(), flush=True)


async def main(verb: str, url: str, path: str, number: str = "0") -> None:
    if verb == "follow":
        await follow(url, path)
    store = await open_keyvalue(url, path, flush_interval_ms=2)
    await (write if verb == "write" else obey)(store, int(number))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
