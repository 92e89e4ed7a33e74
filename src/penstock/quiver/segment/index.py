"""The segments of an instance by number, with the sum of their bytes: asked for with every bundle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from penstock.quiver.segment.format import SegmentMeta

__all__ = ["SegmentIndex"]


class SegmentIndex(MutableMapping[int, SegmentMeta]):
    def __init__(self, metas: Iterable[SegmentMeta] = ()) -> None:
        self._metas: dict[int, SegmentMeta] = {}
        self.bytes = 0
        for meta in metas:
            self[meta.segment_seq] = meta

    def __getitem__(self, segment_seq: int) -> SegmentMeta:
        return self._metas[segment_seq]

    def __setitem__(self, segment_seq: int, meta: SegmentMeta) -> None:
        old = self._metas.get(segment_seq)
        self.bytes += meta.bytes - (old.bytes if old else 0)
        self._metas[segment_seq] = meta

    def __delitem__(self, segment_seq: int) -> None:
        self.bytes -= self._metas.pop(segment_seq).bytes

    def __iter__(self) -> Iterator[int]:
        return iter(self._metas)

    def __len__(self) -> int:
        return len(self._metas)
