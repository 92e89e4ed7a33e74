"""The demo's act on telemetry: samples into the queue, a landing job that is killed, and two answers that must agree.

Samples go in durably, and are counted and added up. `penstock telemetry run` is killed with SIGKILL between two rounds or
inside one, and run again to the end. Then PromQL on the time series and SQL on the data files are asked for the number
of samples and for their sum.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from typing import Any, Final

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.buffer import SyncProducer
from penstock.cli.settings.telemetry_place import telemetry_url
from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.errors import PenstockError
from penstock.telemetry import METRICS, encode_records

__all__ = ["TelemetryAct"]

_BATCHES: Final = 24
_SERIES: Final = 200
# Steps take seconds; a machine with much else to do takes many times as long.
_STEP_SECONDS_MAX: Final = 900.0
_POLL_SECONDS: Final = 0.01
# One batch a round: there is something to kill in between.
_SETTINGS: Final = "[landing]\nbatches_per_round = 1\n"
_METRIC: Final = "demo_temperature"
_QUERY: Final = "SELECT count(*), sum(value) FROM metrics WHERE metric = 'demo_temperature'"


@dataclass(frozen=True)
class _Totals:
    """How many samples, and their sum."""

    samples: int
    sum: float


class TelemetryAct:
    """One store of telemetry in the demo's directory."""

    def __init__(self, directory: Path, console: Console) -> None:
        self._store = directory / "telemetry-demo"
        self._settings = directory / "telemetry-demo.toml"
        self._console = console

    def play(self) -> bool:
        self._settings.write_text(_SETTINGS)
        self._console.print("\n[bold]telemetry[/]: samples go in, and PromQL and SQL count them")
        sent, now_ms = self._send()
        self._console.print(f"{sent.samples:,} samples of {_SERIES} series are durable in the queue")
        first = self._job()
        try:
            self._await_progress(first)
        finally:
            first.kill()
            first.wait()
        self._console.print("[red]kill -9[/] of `penstock telemetry run`, after its first rounds; it is run again")
        if self._job().wait(_STEP_SECONDS_MAX):
            raise PenstockError("the telemetry job of the demo failed", remedy="its own message is above")
        at = str(now_ms / 1000)
        selector = f"{_METRIC}[1h]"
        answers = {
            "PromQL": _Totals(
                int(self._promql(f"sum(count_over_time({selector}))", at)),
                self._promql(f"sum(sum_over_time({selector}))", at),
            ),
            "SQL": self._sql(_QUERY),
        }
        return self._report(sent, answers)

    def _send(self) -> tuple[_Totals, int]:
        now_ms = SYSTEM_CLOCK.now_ms()
        total = 0.0
        with SyncProducer(telemetry_url(str(self._store))) as producer:
            for number in range(_BATCHES):
                values = np.arange(_SERIES) + number * 1000.0
                time_ns = (now_ms - (_BATCHES - number) * 15_000) * 1_000_000
                producer.produce(*encode_records({"metrics": _rows(values, time_ns)})).durable()
                total += float(values.sum())
        return _Totals(_BATCHES * _SERIES, total), now_ms

    def _job(self) -> Popen[bytes]:
        command = ["telemetry", "run", "--engine", "local", "--store", str(self._store)]
        arguments = [sys.executable, "-m", "penstock.cli", *command, "--config", str(self._settings)]
        return Popen(arguments, stdin=DEVNULL, stdout=DEVNULL, env=dict(os.environ))

    def _await_progress(self, job: Popen[bytes]) -> None:
        """Until the job has begun its third round, or has ended, which a fast machine may see."""
        states = self._store / "telemetry" / "landing" / "queue"

        async def poll() -> None:
            deadline = Deadline(SYSTEM_CLOCK, _STEP_SECONDS_MAX)
            while job.poll() is None and not any(int(path.stem) >= 2 for path in states.glob("*.json")):
                deadline.check("the demo makes no progress", remedy="run `penstock doctor`, then try again")
                await SYSTEM_CLOCK.sleep(_POLL_SECONDS)

        asyncio.run(poll())

    def _promql(self, expression: str, at: str) -> float:
        told = self._ask("timeseries", "query", str(self._store), expression, "--time", at, "--tenant", "demo")
        return float(told["data"]["result"][0]["value"][1])

    def _sql(self, query: str) -> _Totals:
        ((samples, total),) = self._ask("sql", query, "--store", str(self._store), "--tenant", "demo")["rows"]
        return _Totals(int(samples), float(total))

    def _ask(self, *command: str) -> dict[str, Any]:
        arguments = [sys.executable, "-m", "penstock.cli", *command, "--json"]
        done = run(arguments, stdin=DEVNULL, stdout=PIPE, check=False, timeout=_STEP_SECONDS_MAX)
        if done.returncode:
            raise PenstockError(f"`penstock {command[0]}` of the demo failed", remedy="its own message is above")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _report(self, sent: _Totals, answers: dict[str, _Totals]) -> bool:
        table = Table(box=None, pad_edge=False)
        for name, side in (("", "left"), ("samples", "right"), ("sum", "right")):
            table.add_column(name, justify=side)  # type: ignore[arg-type]
        for name, totals in {"went in": sent, **answers}.items():
            table.add_row(name, f"{totals.samples:,}", f"{totals.sum:,.0f}")
        self._console.print(table)
        passed = all(totals == sent for totals in answers.values())
        self._console.print("[bold green]exactly once[/]" if passed else "[bold red]not exactly once[/]")
        return passed


def _rows(values: np.ndarray[Any, Any], time_ns: int) -> pa.Table:
    count = len(values)
    columns: dict[str, Any] = {
        "tenant": ["demo"] * count,
        "time": np.full(count, time_ns),
        "metric": [_METRIC] * count,
        "type": ["gauge"] * count,
        "convention": ["prometheus"] * count,
        "labels": [[("sensor", f"{number:03}")] for number in range(count)],
        "value": values,
    }
    return pa.table(
        [
            pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in METRICS
        ],
        schema=METRICS,
    )
