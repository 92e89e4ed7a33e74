"""Fetching batch objects: touches no cursor, so any number of tasks and processes may do it at once.

A `FetchHandle` pickles into a handle on the same store, opened again where it arrives and first used.
Being fenced does not stop it: what it fetches counts only once the consumer that owns the manifest
acknowledges it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from penstock.buffer.format.batch import DECODED_BYTES_MAX, DECODED_RECORDS_MAX, Records, decode_batch, takes_long
from penstock.buffer.format.manifest import Descriptor, MetadataRange
from penstock.buffer.location import key_of
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Corrupt, NotFound, PenstockError, Unsupported
from penstock.objects import ObjectStore, StoreSpec
from penstock.observability import SILENT, Observer, names

__all__ = ["UNREADABLE", "ConsumedBatch", "FetchHandle"]

# The errors that no retry will cure: the object is gone, or its bytes are not a batch.
UNREADABLE: Final = (NotFound, Corrupt, Unsupported)

_REPAIR: Final = "put the object back, or let the consumer set it aside as a dead letter"


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """A batch as it was produced. `records` are views: they keep the fetched bytes alive, and copy nothing."""

    descriptor: Descriptor
    records: Records

    @property
    def sequence(self) -> int:
        return self.descriptor.sequence

    @property
    def location(self) -> str:
        return self.descriptor.location

    @property
    def metadata(self) -> tuple[MetadataRange, ...]:
        return self.descriptor.metadata

    def metadata_of(self, record: int) -> MetadataRange | None:
        """What was given with this record; None when its producer gave none."""
        return self.descriptor.metadata_of(record)


class FetchHandle:
    """Fetches and decodes batches, one call each. Share it, or pickle it: both cost nothing."""

    def __init__(
        self,
        store: ObjectStore | None,
        spec: StoreSpec,
        *,
        decoded_bytes_max: int = DECODED_BYTES_MAX,
        decoded_records_max: int = DECODED_RECORDS_MAX,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._store = store
        self._spec = spec
        self._owned: ObjectStore | None = None
        self._decoded_bytes_max = decoded_bytes_max
        self._decoded_records_max = decoded_records_max
        self._clock = clock
        self._observer = observer

    async def fetch(self, descriptor: Descriptor) -> ConsumedBatch:
        """The batch this descriptor names.

        `NotFound`, `Corrupt` and `Unsupported` will not go away by themselves (see `Consumer.set_aside`);
        after any other error the same call may succeed.
        """
        began, outcome = self._clock.monotonic(), "failed"
        try:
            with self._observer.span(names.BUFFER_FETCH, sequence=descriptor.sequence):
                body = await self._get(descriptor.location)
                records = await self._decode(body)
            outcome = "fetched"
        except UNREADABLE as error:
            outcome = "unreadable"
            raise _named(error, descriptor, _REPAIR) from error
        except AtCapacity as error:
            raise _named(error, descriptor, error.remedy) from error
        finally:
            self._observer.count(names.BUFFER_FETCHES, outcome=outcome)
        self._observer.observe(names.BUFFER_FETCH_SECONDS, self._clock.monotonic() - began)
        self._observer.count(names.BUFFER_FETCH_BYTES, len(body))
        self._observer.count(names.BUFFER_FETCH_RECORDS, len(records))
        return ConsumedBatch(descriptor, records)

    async def close(self) -> None:
        """Close the store if this handle opened it: a handle that came by pickle owns its own. Idempotent."""
        if self._owned is not None:
            await self._owned.close()
            self._store = self._owned = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._spec, self._decoded_bytes_max, self._decoded_records_max)

    async def _opened(self) -> ObjectStore:
        if self._store is not None:
            return self._store
        store = await self._spec.open(clock=self._clock, observer=self._observer)
        if self._owned is not None:
            # Two first fetches at once: one store is enough.
            await store.close()
            return self._owned
        self._store = self._owned = store
        return store

    async def _get(self, location: str) -> bytes:
        store = await self._opened()
        return (await store.get(key_of(location, store.url))).data

    async def _decode(self, body: bytes) -> Records:
        bounds = {"bytes_max": self._decoded_bytes_max, "records_max": self._decoded_records_max}
        if not takes_long(body):
            return decode_batch(body, **bounds)
        return await asyncio.to_thread(decode_batch, body, **bounds)


def _named(error: PenstockError, descriptor: Descriptor, remedy: str) -> PenstockError:
    """The same kind of error, which names the batch it is about; one remedy is enough."""
    what = f"batch {descriptor.sequence} at {descriptor.location!r} cannot be read"
    return type(error)(what, f"{error.what}: {error.why}" if error.why else error.what, remedy)


def _reopened(spec: StoreSpec, decoded_bytes_max: int, decoded_records_max: int) -> FetchHandle:
    return FetchHandle(None, spec, decoded_bytes_max=decoded_bytes_max, decoded_records_max=decoded_records_max)
