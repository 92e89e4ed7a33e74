"""Object storage behind one port."""

from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore

__all__ = ["Body", "Object", "ObjectMeta", "ObjectStore"]
