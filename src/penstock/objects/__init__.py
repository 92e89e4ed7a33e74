"""Object storage behind one interface: memory, local directories, S3, Azure and Google Cloud Storage."""

from penstock.objects.directory import DirectoryStore
from penstock.objects.encryption import ENCRYPTION_OPTIONS, check_encryption, without_encryption
from penstock.objects.memory import MemoryStore
from penstock.objects.open import StoreSpec, open_store
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore, check_key
from penstock.objects.readonly import DirectRead, direct_read
from penstock.objects.register import (
    BytesCodec,
    Codec,
    Register,
    RegisterFormat,
    RegisterPolicy,
    Stamped,
    StampedFormat,
    Token,
)
from penstock.objects.retry import RetryPolicy
from penstock.objects.url import StoreUrl, check_endpoint, check_sendable, parse_url

__all__ = [
    "ENCRYPTION_OPTIONS",
    "Body",
    "BytesCodec",
    "Codec",
    "DirectRead",
    "DirectoryStore",
    "MemoryStore",
    "Object",
    "ObjectMeta",
    "ObjectStore",
    "Register",
    "RegisterFormat",
    "RegisterPolicy",
    "RetryPolicy",
    "Stamped",
    "StampedFormat",
    "StoreSpec",
    "StoreUrl",
    "Token",
    "check_encryption",
    "check_endpoint",
    "check_key",
    "check_sendable",
    "direct_read",
    "open_store",
    "parse_url",
    "without_encryption",
]
