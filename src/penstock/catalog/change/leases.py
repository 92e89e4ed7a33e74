"""Leases of compactions and pins of readers: who needs which files until when. Pure changes of a head.

A lease is held as long as the head lists it. It may be taken from its owner once it has expired, by whoever
leases one of its files; until then the owner may still complete. So two owners never hold one file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from penstock.catalog.change.lookup import Blocks, check_open, find_listed
from penstock.catalog.format.head import CatalogHead, LeaseRecord, Pin
from penstock.errors import Conflict, NotFound

__all__ = ["grant_leases", "leased_paths", "pin_seq", "release_lease", "renew_lease", "unpin"]


def leased_paths(head: CatalogHead, now_ms: int) -> set[str]:
    """Files that somebody works on."""
    return {path for lease in head.leases.values() if lease.expires_ms > now_ms for path in lease.paths}


def grant_leases(
    head: CatalogHead,
    asked: Mapping[str, Sequence[str]],
    owner: str,
    blocks: Blocks,
    *,
    now_ms: int,
    expires_ms: int,
) -> CatalogHead:
    """Lease each group of files that is free and still listed, whole or not at all, under the id it was asked with."""
    check_open(head)
    taken = leased_paths(head, now_ms)
    listed = find_listed(head, {path for paths in asked.values() for path in paths}, blocks)
    granted: dict[str, LeaseRecord] = {}
    for lease_id, paths in asked.items():
        if paths and not taken.intersection(paths) and all(path in listed for path in paths):
            granted[lease_id] = LeaseRecord(owner=owner, paths=tuple(paths), expires_ms=expires_ms)
            taken.update(paths)
    if not granted:
        return head
    held = _untouched(head.leases, {path for lease in granted.values() for path in lease.paths})
    return replace(head, leases={**held, **granted}, is_draft=True)


def renew_lease(head: CatalogHead, lease_id: str, expires_ms: int) -> CatalogHead:
    check_open(head)
    held = head.leases.get(lease_id)
    if held is None:
        why = "it had expired and another took its files, or it was completed or released"
        raise Conflict(f"lease {lease_id} cannot be renewed", why, "plan again")
    renewed = msgspec.structs.replace(held, expires_ms=max(held.expires_ms, expires_ms))
    return head if renewed == held else replace(head, leases={**head.leases, lease_id: renewed}, is_draft=True)


def release_lease(head: CatalogHead, lease_id: str) -> CatalogHead:
    check_open(head)
    if lease_id not in head.leases:
        return head
    return replace(head, leases={name: lease for name, lease in head.leases.items() if name != lease_id}, is_draft=True)


def pin_seq(head: CatalogHead, pin_id: str, seq: int, *, now_ms: int, expires_ms: int) -> CatalogHead:
    """Keep every file that is visible at `seq`; the same id again renews the pin."""
    check_open(head)
    if not head.purged_seq <= seq <= head.seq:
        why = f"files are kept from sequence {head.purged_seq} to {head.seq}"
        raise NotFound(f"sequence {seq} cannot be pinned", why, "plan again, and pin that")
    kept = {name: pin for name, pin in head.pins.items() if pin.expires_ms > now_ms}
    before = kept.get(pin_id, Pin(seq=seq, expires_ms=expires_ms))
    pin = msgspec.structs.replace(before, seq=seq, expires_ms=expires_ms)
    return replace(head, pins={**kept, pin_id: pin}, is_draft=True)


def unpin(head: CatalogHead, pin_id: str) -> CatalogHead:
    check_open(head)
    if pin_id not in head.pins:
        return head
    return replace(head, pins={name: pin for name, pin in head.pins.items() if name != pin_id}, is_draft=True)


def _untouched(leases: Mapping[str, LeaseRecord], paths: Iterable[str]) -> dict[str, LeaseRecord]:
    """Leases that share no file with `paths`: an expired one ends when somebody takes a file of it."""
    wanted = set(paths)
    return {name: lease for name, lease in leases.items() if not wanted.intersection(lease.paths)}
