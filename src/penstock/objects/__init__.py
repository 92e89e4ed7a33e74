"""Object storage behind one port."""

from penstock.objects.directory import DirectoryStore
from penstock.objects.memory import MemoryStore
from penstock.objects.open import StoreSpec, open_store
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore
from penstock.objects.register import Format, Register, RegisterPolicy, Token
from penstock.objects.retry import RetryPolicy
from penstock.objects.stamp import BytesCodec, Codec, Stamped, StampedFormat

__all__ = [
    "Body",
    "BytesCodec",
    "Codec",
    "DirectoryStore",
    "Format",
    "MemoryStore",
    "Object",
    "ObjectMeta",
    "ObjectStore",
    "Register",
    "RegisterPolicy",
    "RetryPolicy",
    "Stamped",
    "StampedFormat",
    "StoreSpec",
    "Token",
    "open_store",
]
