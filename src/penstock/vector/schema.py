"""What writes to a collection are checked against: its specification, and the types of its attributes.

An attribute has the type that the first accepted write gave it. A write that is on its way has a claim: nobody else
may give the attribute another type meanwhile, and if the write is not taken, nothing is left of the claim. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from penstock.errors import InvalidInput
from penstock.vector.attributes import ATTRIBUTES_MAX, AttributeType
from penstock.vector.operations import CollectionSpec

__all__ = ["Schema"]


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
