"""Object storage behind one port."""

from penstock.objects.memory import MemoryStore
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore

__all__ = ["Body", "MemoryStore", "Object", "ObjectMeta", "ObjectStore"]
