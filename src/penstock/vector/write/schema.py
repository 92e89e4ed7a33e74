"""What writes to a collection are checked against: its specification, and the types of its attributes.

An attribute has the type that the first accepted write gave it. A write that is on its way has a claim: nobody else
may give the attribute another type meanwhile, and if the write is not taken, nothing is left of the claim. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from penstock.coordinator import WriteHandle
from penstock.errors import InvalidInput
from penstock.vector.attributes import ATTRIBUTES_MAX, AttributeType
from penstock.vector.format.keys import CollectionName
from penstock.vector.operations import Change, CollectionSpec

__all__ = ["Schema", "Schemas"]


class Schema:
    """One collection's."""

    def __init__(self, spec: CollectionSpec, types: Mapping[str, AttributeType]) -> None:
        self.spec = spec
        # Of accepted writes, and of those on their way.
        self.types = dict(types)
        self._accepted = set(types)
        self._claims: Counter[str] = Counter()

    def check(self, spec: CollectionSpec) -> None:
        """Refuse rows that were made for a collection of this name which has been dropped since."""
        spec.check(self.spec.dimensions, self.spec.metric)

    def claim(self, types: Mapping[str, AttributeType]) -> None:
        """Hold attributes to the types of a write that is about to be offered."""
        for name, found in types.items():
            known = self.types.get(name, found)
            if found is not known:
                raise InvalidInput(
                    f"attribute {name!r} is {found}", f"in this collection it is {known}", "convert the column"
                )
        if len({*self.types, *types}) > ATTRIBUTES_MAX:
            names = ", ".join(sorted({*types} - {*self.types})[:5])
            raise InvalidInput(f"new attributes {names}", f"a collection has at most {ATTRIBUTES_MAX} attributes")
        self.types.update(types)
        self._claims.update(types.keys())

    def settle(self, types: Mapping[str, AttributeType], *, accepted: bool) -> None:
        """End a claim: the write was accepted, or it was not."""
        if accepted:
            self._accepted.update(types)
        self._claims.subtract(types.keys())
        for name in types:
            if not self._claims[name]:
                del self._claims[name]
                if name not in self._accepted:
                    del self.types[name]


class Schemas:
    """Those of the collections that a writer was asked for, and which of them were dropped."""

    def __init__(self) -> None:
        self._known: dict[CollectionName, Schema] = {}
        # Collections that were dropped, and the write that did it.
        self._dropped: dict[CollectionName, WriteHandle] = {}

    def get(self, name: CollectionName) -> Schema | None:
        return self._known.get(name)

    def announce(self, schema: Schema) -> None:
        """A collection was looked up, or is about to be made. What is known of it already stays."""
        self._known.setdefault(schema.spec.name, schema)

    def drop(self, name: CollectionName, write: WriteHandle) -> None:
        """A collection is gone with this write; rows that are offered from now on make it anew."""
        self._dropped[name] = write
        self._known.pop(name, None)

    async def drop_flushed(self, name: CollectionName) -> None:
        """Wait until a collection that was dropped is gone from what is read, too."""
        if name in self._dropped:
            await self._dropped[name].flushed()

    def of(self, spec: CollectionSpec) -> Schema:
        """What rows for a collection are checked against; one that was dropped begins anew with them."""
        if spec.name not in self._known:
            if spec.name not in self._dropped:
                raise InvalidInput(
                    f"rows for {spec.name}", "this store was not asked for it", "call `collection` first"
                )
            self._known[spec.name] = Schema(spec, {})
        self._known[spec.name].check(spec)
        return self._known[spec.name]

    @contextmanager
    def claimed(self, change: Change) -> Iterator[None]:
        """Hold attributes to the types of a change while it is offered; they stay so if it is accepted."""
        claims = [(self.of(spec), types) for spec, types in change.attributes().items()]
        held: list[tuple[Schema, Mapping[str, AttributeType]]] = []
        accepted = False
        try:
            for schema, types in claims:
                schema.claim(types)
                held.append((schema, types))
            yield
            accepted = True
        finally:
            for schema, held_types in held:
                schema.settle(held_types, accepted=accepted)
