"""Stores the records of a queue in SQLite, each once, whatever happens in between."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from pathlib import Path

from penstock.buffer import Consumer
from penstock.objects import open_store


class LineTable:
    """Lines, and the position of the queue up to which they are stored."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file)
        with self._database:
            self._database.execute("CREATE TABLE IF NOT EXISTS lines (line TEXT)")
            self._database.execute("CREATE TABLE IF NOT EXISTS position (queue TEXT PRIMARY KEY, sequence INTEGER)")

    def position(self) -> int | None:
        row = self._database.execute("SELECT sequence FROM position WHERE queue = 'lines'").fetchone()
        return None if row is None else int(row[0])

    def store(self, lines: list[str], sequence: int) -> None:
        """The lines and the position in one transaction: that is what makes it exactly once."""
        with self._database:
            self._database.executemany("INSERT INTO lines VALUES (?)", [(line,) for line in lines])
            self._database.execute("INSERT OR REPLACE INTO position VALUES ('lines', ?)", (sequence,))

    def count(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM lines").fetchone()[0])


async def consume(folder: Path, table: LineTable, *, follow: bool) -> None:
    store = await open_store(folder.absolute().as_uri())
    try:
        async with Consumer(store, last_acked=table.position()) as consumer:
            while follow or (await consumer.lag()).batches:
                batch = await consumer.next_batch()
                if batch is None:
                    await asyncio.sleep(0.2)
                    continue
                table.store([bytes(record).decode() for record in batch.records], batch.sequence)
                # Tells the queue that the batch may be collected. Lost without harm: the position is in the table.
                await consumer.ack(batch.sequence)
    finally:
        await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("queue", type=Path, help="directory of the queue")
    parser.add_argument("database", type=Path, help="file of the SQLite database")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until interrupted")
    given = parser.parse_args()
    table = LineTable(given.database)
    asyncio.run(consume(given.queue, table, follow=given.follow))
    print(f"{table.count()} lines are stored, through batch {table.position()}")


if __name__ == "__main__":
    main()
