"""What S3 can be asked to encrypt with, and which options go together.

The service encrypts; nothing is encrypted here. A combination that the service would refuse, or worse, would take and
leave the data without the key that was meant, is refused before anything is sent.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from penstock.errors import InvalidInput

__all__ = ["ENCRYPTION_OPTIONS", "check_encryption", "without_encryption"]

ENCRYPTION_OPTIONS: Final = ("encryption", "kms_key_id", "kms_bucket_key", "customer_key")
_KMS: Final = ("aws:kms", "aws:kms:dsse")
_CUSTOMER: Final = "sse-c"
_KINDS: Final = ("AES256", *_KMS, _CUSTOMER)
_KEY_BYTES: Final = 32


def check_encryption(
    encryption: str | None, kms_key_id: str | None, kms_bucket_key: bool | None, customer_key: str | None
) -> None:
    """`InvalidInput` for options that do not go together. The key itself is never repeated."""
    if encryption is not None and encryption not in _KINDS:
        raise _refused(f"encryption = {encryption!r}", "S3 has no such encryption", f"use one of {', '.join(_KINDS)}")
    if (kms_key_id is not None or kms_bucket_key is not None) and encryption not in _KMS:
        raise _refused("kms_key_id and kms_bucket_key", "they are of a key in KMS", 'give encryption = "aws:kms" too')
    if (customer_key is not None) != (encryption == _CUSTOMER):
        raise _refused("customer_key", "it goes with one kind of encryption alone", 'give it with encryption = "sse-c"')
    if customer_key is not None and not _is_key(customer_key):
        raise _refused("customer_key", f"it is not {_KEY_BYTES} bytes in base64", "make one: openssl rand -base64 32")


def without_encryption(options: Mapping[str, Any]) -> dict[str, Any]:
    """For buckets that are only read: S3 refuses a customer's key for an object that was written without it."""
    return {name: value for name, value in options.items() if name not in ENCRYPTION_OPTIONS}


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def _refused(what: str, why: str, remedy: str) -> InvalidInput:
    return InvalidInput(f"{what} cannot be used", why, remedy)
