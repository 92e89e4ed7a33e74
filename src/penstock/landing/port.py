"""The heavy stage of the telemetry job as a port: batches in, data files on the store and samples back.

Everything else is decided on the driver. `LocalStage` works in this process; the Spark engine, in
`penstock.pipelines`, on executors. One suite in `tests/contracts` holds both to what is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.buffer import Descriptor
from penstock.errors import Closed, Corrupt, NotFound, PenstockError, Unsupported
from penstock.telemetry import MetricDescription

__all__ = ["LandedFile", "LandingAnswer", "LandingSamples", "LandingStage", "LandingTask", "LostBatch", "given_up"]

# Types of columns by name, for each tenant and table of somebody's own.
Columns = Mapping[str, str]
KnownTables = Mapping[tuple[str, str], Columns]


def given_up() -> Closed:
    """The error of a cancelled call."""
    return Closed("a round of the telemetry job was cancelled", "the job was stopped", "the next run repeats it")


@dataclass(frozen=True, slots=True)
class LandingTask:
    """Batches for one task; `part` distinguishes the tasks of a round in file names."""

    part: int
    # Whose positions these are: the queue of one shard.
    source: str
    first: int
    last: int
    descriptors: tuple[Descriptor, ...]
    writes_files: bool
    writes_samples: bool
    # What is known of tables before this round.
    known: KnownTables = field(default_factory=dict)


class LandedFile(msgspec.Struct, frozen=True):
    """A data file that is on the store, as the catalog is to know it."""

    path: str
    tenant: str
    table: str
    rows: int
    size: int
    min_time_ns: int
    max_time_ns: int
    # Of each column: least, greatest, has nulls, has NaN, all null, type.
    bounds: dict[str, tuple[Any, Any, bool, bool | None, bool, str]]


class LostBatch(msgspec.Struct, frozen=True):
    """A batch that cannot be read, and why."""

    sequence: int
    kind: str
    what: str

    def error(self) -> PenstockError:
        return {"NotFound": NotFound, "Unsupported": Unsupported}.get(self.kind, Corrupt)(self.what)


@dataclass(frozen=True, slots=True)
class LandingSamples:
    """Samples of one tenant: a map of labels a series, and three columns of a row a sample."""

    tenant: str
    labels: Any
    series: npt.NDArray[np.uint32]
    time_ms: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    # Which of them are differences, to be added up by the driver.
    is_delta: npt.NDArray[np.bool_]
    # What the metrics are, by name.
    about: Mapping[str, MetricDescription] = field(default_factory=dict)


@dataclass(slots=True)
class LandingAnswer:
    """The result of a task. `counts` are for the meters, by their own names."""

    part: int
    files: list[LandedFile] = field(default_factory=list)
    samples: list[LandingSamples] = field(default_factory=list)
    lost: list[LostBatch] = field(default_factory=list)
    # Columns that the task met, for each tenant and table of somebody's own.
    tables: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    # Reasons for which rows were quarantined, with their number.
    quarantined: dict[str, int] = field(default_factory=dict)
    # Points that have no series, by the reason.
    refused: dict[str, int] = field(default_factory=dict)
    rows: int = 0


class LandingStage(Protocol):
    """The heavy stage of landing. Blocking; called from several threads at once. A repeated task writes the same files."""

    def land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        """An answer a task, in their order.

        A batch that cannot be read is an outcome and no error; what is wrong with the store or the engine is raised.
        """
        ...

    def cancel(self) -> None:
        """Give up the calls that are under way, from any thread: they raise `Closed`. Nothing happens when there are none."""
        ...
