"""Where an uploaded document lies: under a key that the gateway chooses, by tenant and index."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.documents import UploadNotification
from penstock.errors import InvalidInput, NotFound
from penstock.gateway.access.naming import check_key
from penstock.indexing import DocumentEntry, upload_of
from penstock.objects import ObjectMeta, ObjectStore, StoreUrl, parse_url
from penstock.vector import CollectionName

__all__ = ["UploadPlace"]


@dataclass(frozen=True, slots=True)
class UploadPlace:
    """Where an upload lies: as the job finds it, and as the store of uploads has it."""

    bucket: str
    key: str
    store_key: str

    @classmethod
    def of(cls, uploads_url: str, name: CollectionName, key: str) -> UploadPlace:
        url = parse_url(uploads_url)
        store_key = f"{name.tenant}/{name.index}/{key}"
        if url.scheme == "file":
            return cls(str(StoreUrl("file", f"{url.place}/{name.tenant}/{name.index}")), key, store_key)
        bucket = url.place if url.scheme == "s3" else f"{url.scheme}://{url.place}"
        return cls(bucket, f"{url.prefix}/{store_key}" if url.prefix else store_key, store_key)

    async def holds(self, key: str, uploads: ObjectStore) -> bool:
        """Whether a document was uploaded there under `key`, whatever the index has heard of it."""
        try:
            check_key(key)
            await uploads.head(self.store_key)
        except (InvalidInput, NotFound):
            return False
        return True

    def event(self, name: CollectionName) -> UploadNotification:
        """A notification of the object, of which only the identity counts."""
        return upload_of(name, self.bucket, ObjectMeta(self.key, 0, "", 0), 0)

    def uploaded_key(self, entry: DocumentEntry) -> str:
        """The key under which a document was uploaded here; one that came from another bucket has its own."""
        return entry.key.removeprefix(self.key) if entry.bucket == self.bucket else entry.key
