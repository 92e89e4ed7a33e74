"""Object storage behind one port."""

from penstock.objects.memory import MemoryStore
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore
from penstock.objects.register import Format, Register, RegisterPolicy, Token
from penstock.objects.stamp import BytesCodec, Codec, Stamped, StampedFormat

__all__ = [
    "Body",
    "BytesCodec",
    "Codec",
    "Format",
    "MemoryStore",
    "Object",
    "ObjectMeta",
    "ObjectStore",
    "Register",
    "RegisterPolicy",
    "Stamped",
    "StampedFormat",
    "Token",
]
