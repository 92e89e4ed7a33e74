"""S3, Azure Blob Storage and Google Cloud Storage as object stores, through obstore."""

from penstock.objects.cloud.store import CloudStore

__all__ = ["CloudStore"]
