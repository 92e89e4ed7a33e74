"""The demo's first act: producers and a consumer share a queue in a directory, and some of them are killed.

It kills one producer and one consumer with SIGKILL, freezes another consumer until a newer one has taken over, and then
counts: every record that was acknowledged must be in the sink once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Final

from rich.console import Console
from rich.table import Table

from penstock.buffer import Consumer, ConsumerConfig
from penstock.cli.demonstration.workers import FENCED_EXIT, POSITION, SINK_PATH, records_in
from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.errors import PenstockError
from penstock.keyvalue import open_keyvalue
from penstock.objects import open_store

__all__ = ["QueueAct"]

_PRODUCERS: Final = 4
# Steps take seconds; a machine with much else to do takes many times as long.
_STEP_SECONDS_MAX: Final = 900.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True)
class _Count:
    """What the producers were told against what the sink holds."""

    acknowledged: int
    stored: int
    lost: int
    doubled: int

    @classmethod
    def of(cls, acknowledged: list[bytes], stored: list[bytes]) -> _Count:
        times = Counter(stored)
        lost = sum(1 for record in acknowledged if record not in times)
        return cls(len(acknowledged), len(stored), lost, sum(count - 1 for count in times.values()))

    @property
    def exactly_once(self) -> bool:
        return self.acknowledged > 0 and self.lost == 0 and self.doubled == 0


class QueueAct:
    """Producers and consumers around one queue, in one directory."""

    def __init__(self, directory: Path, records: int, console: Console) -> None:
        self._directory = directory
        self._url = (self._directory / "store").as_uri()
        self._stop = self._directory / "stop"
        self._console = console
        self._children: list[Popen[bytes]] = []
        self._consumers = 0
        self._expected = _PRODUCERS * records
        self._records = records

    def run(self) -> bool:
        try:
            self._play()
            return self._report()
        finally:
            for child in self._children:
                if child.poll() is None:
                    child.kill()
                    child.wait()

    def _play(self) -> None:
        self._say(f"a queue in the directory [bold]{self._directory}/store[/]: no broker, no server")
        consumer = self._consumer()
        producers = [self._producer(number) for number in range(_PRODUCERS)]
        self._say(f"{_PRODUCERS} producers send {self._expected:,} records, one consumer stores them")

        self._await(lambda: self._acknowledged() > self._expected // 8)
        consumer.send_signal(signal.SIGKILL)
        self._say("[red]kill -9[/] of the consumer, in the middle of its work")

        self._await(lambda: self._acknowledged() > self._expected // 4)
        producers[0].send_signal(signal.SIGKILL)
        self._say("[red]kill -9[/] of a producer; another one takes its place")
        producers[0] = self._producer(_PRODUCERS)

        zombie = self._consumer()
        self._say("a new consumer resumes behind the last sequence in the sink")
        self._await(lambda: self._acknowledged() > self._expected // 2 and self._stored_by(zombie))
        zombie.send_signal(signal.SIGSTOP)
        self._say("[red]freeze[/] that consumer, and start yet another: it takes the fence")
        last = self._consumer()

        for producer in producers:
            self._end(producer)
        self._stop.touch()
        self._end(last)
        zombie.send_signal(signal.SIGCONT)
        self._end(zombie, FENCED_EXIT)
        self._say("wake the frozen one: it is [green]fenced[/] and stops, having changed nothing")

    def _report(self) -> bool:
        acknowledged = [line for path in self._notes() for line in path.read_bytes().splitlines()]
        count, queued = asyncio.run(self._look(acknowledged))
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(justify="right")
        for number, meaning in (
            (count.acknowledged, "records acknowledged to producers"),
            (count.stored, "records in the sink (some landed just before their producer was killed)"),
            (count.lost, "acknowledged and lost"),
            (count.doubled, "stored twice"),
            (queued, "batches left in the queue"),
        ):
            table.add_row(f"{number:,}", meaning)
        self._console.print(table)
        passed = count.exactly_once and queued == 0
        self._console.print("[bold green]exactly once[/]" if passed else "[bold red]not exactly once[/]")
        return passed

    async def _look(self, acknowledged: list[bytes]) -> tuple[_Count, int]:
        sink = await open_keyvalue(self._url, SINK_PATH)
        stored = await records_in(sink)
        position = int.from_bytes(await sink.get(POSITION) or b"", "big")
        await sink.close()
        store = await open_store(self._url)
        async with Consumer(store, ConsumerConfig(collect=False), last_acked=position) as consumer:
            queued = (await consumer.lag()).batches
        await store.close()
        return _Count.of(acknowledged, stored), queued

    # Processes ---------------------------------------------------------------------------------------------

    def _producer(self, number: int) -> Popen[bytes]:
        noted = self._directory / f"acknowledged-{number}"
        return self._spawn("demo-produce", self._url, f"producer{number}", str(self._records), str(noted))

    def _consumer(self) -> Popen[bytes]:
        self._consumers += 1
        return self._spawn(
            "demo-consume", self._url, str(self._stop), str(self._directory / f"stored-{self._consumers}")
        )

    def _stored_by(self, consumer: Popen[bytes]) -> bool:
        """Whether this consumer, and not only the one before it, has stored something."""
        return Path(str(consumer.args[-1])).exists()  # type: ignore[index] # always started from a list

    def _spawn(self, *arguments: str) -> Popen[bytes]:
        child = Popen([sys.executable, "-m", "penstock.cli", *arguments], stdin=DEVNULL, env=dict(os.environ))
        self._children.append(child)
        return child

    def _end(self, child: Popen[bytes], expected: int = 0) -> None:
        code = child.wait(_STEP_SECONDS_MAX)
        if code != expected:
            raise PenstockError("a process of the demo failed", f"it ended with {code}", "its own message is above")

    # Progress ----------------------------------------------------------------------------------------------

    def _notes(self) -> list[Path]:
        return sorted(self._directory.glob("acknowledged-*"))

    def _acknowledged(self) -> int:
        # Every record has the same length, so sizes count them without reading.
        return sum(path.stat().st_size for path in self._notes()) // len("producer0-000000\n")

    def _await(self, reached: Callable[[], bool]) -> None:
        async def poll() -> None:
            deadline = Deadline(SYSTEM_CLOCK, _STEP_SECONDS_MAX)
            while not reached():
                deadline.check("the demo makes no progress", remedy="run `penstock doctor`, then try again")
                await SYSTEM_CLOCK.sleep(_POLL_SECONDS)

        asyncio.run(poll())

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{self._acknowledged():>7,} acknowledged[/]  {text}")
