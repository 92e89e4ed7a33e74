"""The identities of the indexing pipeline: which object, which version, which chunk, which batch.

Every identity is a pure function of what it names, so that a replay, a second executor or another machine arrives at
the same one. Parts are percent-encoded where a separator could appear in them, so that no two lists of parts join to
the same text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.documents.contracts import Notification, UploadNotification

__all__ = ["BatchIdentity", "chunk_id", "content_key", "doc_id", "doc_id_of", "object_key", "object_key_of", "vo_key"]


def doc_id(tenant_id: str, bucket: str, key: str, version_id: str | None, etag: str | None) -> str:
    """The identity of one version of one object: SHA-256, in hex, over `tenantId|bucket|key|versionId|etag`."""
    return _joined_digest(tenant_id, bucket, key, version_id or "", etag or "")


def doc_id_of(upload: UploadNotification) -> str:
    return doc_id(upload.tenant_id, upload.bucket, upload.key, upload.version_id, upload.etag)


def object_key(event: Notification) -> str:
    """The unit of "current version": one object of one tenant, whatever its version."""
    return object_key_of(event.tenant_id, event.bucket, event.key)


def object_key_of(tenant_id: str, bucket: str, key: str) -> str:
    """The same by its parts."""
    return _joined_digest(tenant_id, bucket, key)


def chunk_id(document: str, start: int, end: int) -> str:
    return f"{document}:{start}-{end}"


def vo_key(tenant_id: str, index_id: str, model: str) -> str:
    """The batcher's key. The model comes last and unescaped, so that `provider:model` stays readable."""
    return f"{_escaped(tenant_id, ':')}:{_escaped(index_id, ':')}:{model}"


def content_key(text: str, model: str) -> str:
    """The key under which an embedding is cached: the same text costs a model once."""
    digest = hashlib.sha256(model.encode("utf-8"))
    # A NUL cannot be in a model's name, so that no (model, text) pair reads as another.
    digest.update(b"\0")
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The counter and the time come from replayed state, so that a flush after a crash has the same identity."""

    vo_key: str
    counter: int
    timestamp_ms: int
    digest: str

    @classmethod
    def of(cls, vo_key: str, counter: int, timestamp_ms: int, chunk_ids: Iterable[str]) -> BatchIdentity:
        digest = hashlib.sha256("\n".join(chunk_ids).encode("utf-8")).hexdigest()
        return cls(vo_key, counter, timestamp_ms, digest)

    @property
    def batch_id(self) -> str:
        return f"{self.vo_key}:{self.counter}:{self.timestamp_ms}"

    @property
    def idempotency_key(self) -> str:
        """What is sent downstream: the place of the batch, then the digest of what is in it."""
        return f"{self.place}#{self.digest}"

    @property
    def place(self) -> str:
        return f"{self.vo_key}:{self.counter}"


def _joined_digest(*parts: str) -> str:
    joined = "|".join(_escaped(part, "|") for part in parts)
    return hashlib.sha256(joined.encode("utf-8")).hexdigest()


def _escaped(part: str, separator: str) -> str:
    return part.replace("%", "%25").replace(separator, f"%{ord(separator):02X}")
