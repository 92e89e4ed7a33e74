"""A local directory as an object store."""

from penstock.objects.directory.store import DirectoryStore

__all__ = ["DirectoryStore"]
