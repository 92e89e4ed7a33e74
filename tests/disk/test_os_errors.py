"""Each error of the operating system has one meaning to a store's caller."""

from __future__ import annotations

import errno
import os

import pytest

from penstock.disk.os_errors import explain
from penstock.errors import InvalidInput, NotFound, PenstockError, PermissionDenied, StorageFull, Unavailable


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EFBIG, StorageFull),
        (errno.EACCES, PermissionDenied),
        (errno.EPERM, PermissionDenied),
        (errno.EROFS, PermissionDenied),
        (errno.ENAMETOOLONG, InvalidInput),
        (errno.ELOOP, InvalidInput),
        (errno.ENOTDIR, InvalidInput),
        (errno.EISDIR, InvalidInput),
        (errno.ENOENT, NotFound),
        (errno.EIO, Unavailable),
        (errno.EMFILE, Unavailable),
        (errno.EXDEV, Unavailable),
    ],
)
def test_an_error_is_told_by_what_the_caller_can_do_about_it(code: int, kind: type[PenstockError]) -> None:
    told = explain("what happened", OSError(code, os.strerror(code), "/path"))
    assert type(told) is kind
    assert told.what == "what happened"
    assert told.why
