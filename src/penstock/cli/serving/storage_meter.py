"""What tenants keep, in bytes: their data files as the catalog lists them, and their uploads."""

from __future__ import annotations

from collections import Counter

from penstock.cli.serving.house_view import KeptCatalog
from penstock.errors import NotFound
from penstock.objects import ObjectStore

__all__ = ["StorageMeter"]


class StorageMeter:
    """Measures when it is called. Uploads lie below the name of their tenant."""

    def __init__(self, catalog: KeptCatalog, uploads: ObjectStore) -> None:
        self._catalog, self._uploads = catalog, uploads

    async def __call__(self) -> Counter[str]:
        kept = Counter(await self._data_files())
        async for page in self._uploads.list():
            for meta in page:
                kept[meta.key.partition("/")[0]] += meta.size
        return kept

    async def _data_files(self) -> dict[str, int]:
        try:
            catalog = await self._catalog.catalog()
        except NotFound:
            return {}
        table = (await catalog.plan(columns=())).table
        sums = table.group_by("tenant").aggregate([("size_bytes", "sum")])
        return {str(row["tenant"]): int(row["size_bytes_sum"]) for row in sums.to_pylist()}
