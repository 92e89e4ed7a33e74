"""Puts each argument on a queue as one record, and returns once all are durable."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from penstock.buffer import Producer
from penstock.objects import open_store


async def produce(folder: Path, lines: Sequence[str]) -> int:
    store = await open_store(folder.absolute().as_uri())
    try:
        async with Producer(store) as producer:
            handle = await producer.produce([line.encode() for line in lines])
            # Before this returns, a crash may lose the records; after it, nothing does.
            return await handle.durable()
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue", type=Path, help="directory of the queue")
    parser.add_argument("lines", nargs="+", help="records")
    given = parser.parse_args()
    sequence = asyncio.run(produce(given.queue, given.lines))
    print(f"{len(given.lines)} records are durable, in batch {sequence}")


if __name__ == "__main__":
    main()
