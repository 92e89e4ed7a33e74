"""The system calls that a parser may not make, as a seccomp filter.

A parser reads a pipe, computes and writes a pipe. It is refused (with EPERM) the network, other processes, programs,
signals to others, tracing, scheduling, changes to the file system, watching it, keys, mounts, modules and the kernel's
larger interfaces. Files may be opened for reading only; which of them is Landlock's part. A call under another
architecture's numbers ends the process. A call that is newer than this list is answered as an older kernel would. Any
other is allowed: an interpreter's needs change with its release, and a list of all of them would break parsers more
often than it stops attackers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from errno import ENOSYS, EPERM
from typing import Final

__all__ = ["ARCHITECTURES", "filter_program"]

# Refused whatever their arguments: (x86_64, aarch64), None where the call does not exist.
REFUSED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # The network.
    "socket": (41, 198),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "bind": (49, 200),
    "listen": (50, 201),
    "socketpair": (53, 199),
    "accept4": (288, 242),
    "sendmmsg": (307, 269),
    # Processes and programs. Parsers need no threads either.
    "clone": (56, 220),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    # How other processes of the same user are scheduled, and where their memory lies.
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # Memory and messages that outlive or are shared between processes; their numbers can be guessed, so that those who
    # open none are refused as well.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # The file system: what others wait for, first.
    "sync": (162, 81),
    "syncfs": (306, 267),
    "flock": (73, 32),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "creat": (85, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # Watching files that may not be read: their names and when they are used.
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    # The machine.
    "syslog": (103, 116),
    "modify_ldt": (154, None),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "personality": (135, 92),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Large interfaces of the kernel, and the way past this filter.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
# Their arguments lie in memory, where a filter cannot look: callers fall back to the older call.
ABSENT: Final = {"clone3": (435, 435), "openat2": (437, 437)}
# The last call that this list was checked against, `mseal` of Linux 6.10; every architecture numbers them alike. Later
# kernels bring new doors to what is refused here, such as `setxattrat` and `file_setattr`.
_NEWEST_CALL: Final = 462
# Refused when the second argument names the process or the signal that is told of a pipe's bytes, a socket's or a
# folder's changes, makes writers of a file wait, or types into a terminal: F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE,
# F_NOTIFY; FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX.
CONTROLS: Final = {"fcntl": (72, 25), "ioctl": (16, 29)}
_COMMANDS: Final = {"fcntl": (8, 10, 15, 1024, 1026), "ioctl": (0x8901, 0x8902, 0x5412, 0x541C)}
# Allowed when the argument has none of these flags: O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND.
_WRITING: Final = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000
OPENING: Final = {"open": (2, None, 1), "openat": (257, 56, 2)}
# What a process with threads and an event loop needs of the above. A new one must be a thread of its process, and what is
# sent goes to the other end of its own pair: a datagram with an address would reach every socket that has a name.
THREADS: Final = frozenset({"clone", "socketpair", "sendto"})
_CLONE_THREAD: Final = 0x10000
# Allowed on this process alone: `abort` signals itself, and limits are set on "the caller".
SIGNALS: Final = {"kill": (62, 129), "tgkill": (234, 131)}
LIMITS: Final = {"prlimit64": (302, 261)}

# The kernel's names of the architectures, and the column of the tables.
ARCHITECTURES: Final = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_X32_CALLS: Final = 0x40000000

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_KILL: Final = 0x80000000
_ERROR: Final = 0x00050000
_ALLOW: Final = 0x7FFF0000
_CALL_OFFSET: Final = 0
_ARCHITECTURE_OFFSET: Final = 4
_ARGUMENTS_OFFSET: Final = 16


def filter_program(machine: str, pid: int, *, threads: bool = False) -> bytes:
    """The filter for a process on `machine`, eight bytes an instruction.

    With `threads` it may start threads, though no processes, and wake them through a pair of sockets of its own.
    """
    name, column = ARCHITECTURES[machine]
    refused = {call: row for call, row in REFUSED.items() if not (threads and call in THREADS)}
    parts = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        _instruction(_EQUAL, name, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _CALL_OFFSET),
        _instruction(_AT_LEAST, _X32_CALLS, 0, 1),
        _instruction(_RETURN, _ERROR | EPERM),
        _instruction(_AT_LEAST, _NEWEST_CALL + 1, 0, 1),
        _instruction(_RETURN, _ERROR | ENOSYS),
    ]
    parts += [_answered(row[column], _ERROR | EPERM) for row in refused.values()]
    if threads:
        parts.append(_only_with_flag(REFUSED["clone"][column], _CLONE_THREAD))
        parts.append(_only_without_address(REFUSED["sendto"][column]))
    parts += [_answered(row[column], _ERROR | ENOSYS) for row in ABSENT.values()]
    parts += [_unless_flags(row[column], row[2]) for row in OPENING.values()]
    parts += [_unless_command(row[column], _COMMANDS[call]) for call, row in CONTROLS.items()]
    parts += [_only_for(row[column], pid) for row in SIGNALS.values()]
    parts += [_only_for(row[column], 0) for row in LIMITS.values()]
    return b"".join([*parts, _instruction(_RETURN, _ALLOW)])


def numbers(machine: str) -> Iterator[tuple[str, int]]:
    """Every call that the filter speaks of, with its number on `machine`."""
    column = ARCHITECTURES[machine][1]
    tables: tuple[Mapping[str, tuple[int | None, ...]], ...] = (REFUSED, ABSENT, OPENING, CONTROLS, SIGNALS, LIMITS)
    for table in tables:
        for name, row in table.items():
            number = row[column]
            if number is not None:
                yield name, number


def _answered(call: int | None, answer: int) -> bytes:
    if call is None:
        return b""
    return _instruction(_EQUAL, call, 0, 1) + _instruction(_RETURN, answer)


def _unless_flags(call: int | None, argument: int) -> bytes:
    if call is None:
        return b""
    return b"".join(
        (
            _instruction(_EQUAL, call, 0, 4),
            _instruction(_LOAD, _ARGUMENTS_OFFSET + 8 * argument),
            _instruction(_ANY_BIT, _WRITING, 0, 1),
            _instruction(_RETURN, _ERROR | EPERM),
            _instruction(_RETURN, _ALLOW),
        )
    )


def _unless_command(call: int, commands: tuple[int, ...]) -> bytes:
    """Refuse a call whose second argument is one of `commands`."""
    refusals = b"".join(_answered(command, _ERROR | EPERM) for command in commands)
    return b"".join(
        (
            _instruction(_EQUAL, call, 0, 2 + 2 * len(commands)),
            _instruction(_LOAD, _ARGUMENTS_OFFSET + 8),
            refusals,
            _instruction(_RETURN, _ALLOW),
        )
    )


def _only_with_flag(call: int | None, flag: int) -> bytes:
    if call is None:
        return b""
    return b"".join(
        (
            _instruction(_EQUAL, call, 0, 4),
            _instruction(_LOAD, _ARGUMENTS_OFFSET),
            _instruction(_ANY_BIT, flag, 1, 0),
            _instruction(_RETURN, _ERROR | EPERM),
            _instruction(_RETURN, _ALLOW),
        )
    )


def _only_without_address(call: int | None) -> bytes:
    """Refuse a call whose fifth argument, an address of 64 bits, is not null."""
    if call is None:
        return b""
    address = _ARGUMENTS_OFFSET + 8 * 4
    return b"".join(
        (
            _instruction(_EQUAL, call, 0, 6),
            _instruction(_LOAD, address),
            _instruction(_EQUAL, 0, 0, 2),
            _instruction(_LOAD, address + 4),
            _instruction(_EQUAL, 0, 1, 0),
            _instruction(_RETURN, _ERROR | EPERM),
            _instruction(_RETURN, _ALLOW),
        )
    )


def _only_for(call: int | None, first_argument: int) -> bytes:
    if call is None:
        return b""
    return b"".join(
        (
            _instruction(_EQUAL, call, 0, 4),
            _instruction(_LOAD, _ARGUMENTS_OFFSET),
            _instruction(_EQUAL, first_argument, 1, 0),
            _instruction(_RETURN, _ERROR | EPERM),
            _instruction(_RETURN, _ALLOW),
        )
    )


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)
