"""The kernel's list of locks is read for the process that has one, not for those that wait for it."""

from __future__ import annotations

from penstock.disk.lock_holder import holder_pid, lock_holder

LOCKS = """\
1: POSIX  ADVISORY  WRITE 4711 08:01:131 128 128
2: FLOCK  ADVISORY  WRITE 4712 08:01:131 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4713 08:01:132 0 EOF
3: FLOCK  ADVISORY  WRITE 0 08:01:133 0 EOF
torn line
"""


def test_the_holder_is_the_process_that_has_the_lock() -> None:
    assert holder_pid(LOCKS, 131) == 4712


def test_one_that_waits_and_one_of_another_container_are_no_holders() -> None:
    assert holder_pid(LOCKS, 132) is None
    assert holder_pid(LOCKS, 133) is None
    assert holder_pid("", 131) is None


def test_a_file_that_is_not_there_has_an_unknown_holder() -> None:
    assert lock_holder("/nonexistent/lock") == "another process"
