"""A parser that was taken over, in the real sandbox: what it tries, and what it gets."""

import errno
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.documents.parsers import Format, ParserLimits, Sandbox
from penstock.documents.parsers.isolation.confinement import readable_paths
from penstock.documents.parsers.isolation.seccomp import ARCHITECTURES, numbers
from penstock.documents.parsers.processes.messages import ParserSetup, Request
from penstock.documents.parsers.processes.process import ParserProcess

pytestmark = pytest.mark.processes

LIMITS = ParserLimits(cpu_seconds=5, wall_seconds=30.0, text_bytes=1 << 20)
REQUEST = Request(Format.TEXT, b"a document")
ATTACK = """
import os
from penstock.documents.parsers.processes import worker
from penstock.documents.parsers.formats import Format, ParsedDocument

def tried(attempt):
    try:
        return repr(attempt())
    except BaseException as error:
        return type(error).__name__

class Taken(worker.DocumentReader):
    def parse(self, request, depth=0):
{}
        return ParsedDocument(str(found).encode(), Format.TEXT)

worker.main(Taken)
"""


@pytest.fixture(scope="module")
def layers() -> dict[str, str]:
    with Sandbox(LIMITS) as sandbox:
        return {layer.name: layer.missing for layer in sandbox.layers()}


def need(layers: dict[str, str], name: str) -> None:
    if layers[name]:
        pytest.skip(f"this kernel has no {name}: {layers[name]}")


def found_by(code: str, limits: ParserLimits = LIMITS) -> str:
    """What an attacker finds with `code`, which sets `found`."""
    process = ParserProcess(ParserSetup(limits), ATTACK.format(textwrap.indent(textwrap.dedent(code), " " * 8)))
    try:
        return process.parse(REQUEST).text.decode()
    finally:
        process.stop()


def test_every_layer_is_told_and_those_every_linux_has_are_there(layers):
    assert list(layers) == [
        "hard limits",
        "no_new_privs",
        "network namespace",
        "landlock",
        "capabilities",
        "seccomp",
    ]
    assert not layers["hard limits"]
    if sys.platform == "linux":
        assert not layers["no_new_privs"]


def test_it_finds_no_key_in_its_environment(monkeypatch):
    monkeypatch.setenv("EMBEDDING_API_KEY", "secret")
    assert found_by("found = sorted(set(os.environ) - {'LC_CTYPE'})") == "[]"


def test_it_cannot_read_the_environment_of_its_parent(layers, monkeypatch):
    need(layers, "landlock")
    monkeypatch.setenv("EMBEDDING_API_KEY", "secret")
    assert found_by(f"found = tried(lambda: open('/proc/{os.getpid()}/environ', 'rb').read())") == "PermissionError"


def test_it_inherits_no_descriptor_but_its_pipes(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    with secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        code = """
        found = []
        for descriptor in range(256):
            try:
                os.fstat(descriptor)
            except OSError:
                continue
            found.append(descriptor)
        """
        open_there = eval(found_by(code))
    assert len(open_there) == 5, "nothing thrice, and two pipes"


def test_what_it_prints_reaches_nobody(capfd):
    found_by("os.write(1, b'printed'); os.write(2, b'printed'); found = ''")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc", "/proc/self/environ", "/", "/tmp", "SECRET"])
def test_it_reads_no_file_but_the_interpreters(layers, tmp_path, path):
    need(layers, "landlock")
    secret = tmp_path / "secret"
    secret.write_text("key")
    path = str(secret) if path == "SECRET" else path
    assert found_by(f"found = tried(lambda: os.listdir({path!r}))").startswith(("PermissionError", "NotADirectory"))
    assert found_by(f"found = tried(lambda: open({path!r}).read())") in ("PermissionError", "IsADirectoryError")


@pytest.mark.parametrize(
    "attempt",
    [
        "open({path!r}, 'w').write('x')",
        "open({path!r}, 'a').write('x')",
        "os.unlink({path!r})",
        "os.rename({path!r}, {path!r} + '2')",
        "os.truncate({path!r}, 0)",
        "os.chmod({path!r}, 0o777)",
        "os.symlink('/etc/passwd', {path!r} + '3')",
        "os.mkdir({path!r} + '4')",
    ],
)
def test_it_changes_no_file(layers, tmp_path, attempt):
    need(layers, "seccomp")
    kept = tmp_path / "kept"
    kept.write_text("kept")
    assert found_by(f"found = tried(lambda: {attempt.format(path=str(kept))})") == "PermissionError"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "kept"


def test_it_reaches_no_listener_on_this_machine(layers):
    need(layers, "seccomp")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        code = f"import socket; found = tried(lambda: socket.create_connection({address!r}, 5))"
        assert found_by(code) == "PermissionError"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "attempt", ["os.fork()", "os.execv('/bin/true', ['true'])", "os.posix_spawn('/bin/true', ['true'], {})"]
)
def test_it_starts_no_process_and_no_program(layers, attempt):
    need(layers, "seccomp")
    assert found_by(f"found = tried(lambda: {attempt})") in ("PermissionError", "BlockingIOError")


def test_it_signals_nobody_and_changes_no_limits_of_others(layers):
    need(layers, "seccomp")
    pid = os.getpid()
    assert found_by(f"found = tried(lambda: os.kill({pid}, 0))") == "PermissionError"
    code = f"import resource; found = tried(lambda: resource.prlimit({pid}, resource.RLIMIT_NOFILE, (1, 1)))"
    assert found_by(code) == "PermissionError"


@pytest.mark.parametrize(
    "attempt",
    [
        "os.setpriority(os.PRIO_PROCESS, 0, 19)",
        "os.sched_setaffinity(0, {0})",
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
    ],
)
def test_it_slows_no_process_of_its_user(layers, attempt):
    need(layers, "seccomp")
    # Root's processes are out of its reach by their privileges: itself stands for another process of a plain user.
    assert found_by(f"found = tried(lambda: {attempt})") == "PermissionError"


@pytest.mark.parametrize("command", ["F_SETOWN", "F_SETSIG", "F_NOTIFY"])
def test_no_pipe_of_its_own_signals_others_for_it(layers, command):
    need(layers, "seccomp")
    code = f"import fcntl; found = tried(lambda: fcntl.fcntl(os.pipe()[0], fcntl.{command}, {os.getpid()}))"
    assert found_by(code) == "PermissionError"


# By their numbers on x86_64: (call, arguments). Each acts beyond the process, or would where it has no namespace of its
# own, and each is answered before the kernel looks at its arguments.
BEYOND_ITSELF = {
    "sync": (162,),
    "syncfs": (306, 0),
    "flock": (73, 0, 2),
    "shmctl": (31, 0, 0, 0),
    "semctl": (66, 0, 0, 0),
    "semop": (65, 0, 0, 1),
    "semtimedop": (220, 0, 0, 1, 0),
    "msgctl": (71, 0, 0, 0),
    "msgsnd": (69, 0, 0, 1, 0o4000),
    "msgrcv": (70, 0, 0, 1, 0, 0o4000),
    "mq_unlink": (241, 0),
    "fcntl F_SETLEASE": (72, 0, 1024, 0),
    "ioctl FIOSETOWN": (16, 0, 0x8901, 0),
    "ioctl SIOCSPGRP": (16, 0, 0x8902, 0),
    "ioctl TIOCSTI": (16, 0, 0x5412, 0),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_it_holds_up_no_disk_locks_no_file_and_shares_no_memory_or_message(layers):
    need(layers, "seccomp")
    code = f"""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    found = [
        name
        for name, call in {BEYOND_ITSELF!r}.items()
        if (libc.syscall(*map(ctypes.c_long, call)), ctypes.get_errno()) != (-1, {errno.EPERM})
    ]
    """
    assert found_by(code) == "[]"


WITH_THREADS = """
import fcntl, os, socket, struct, threading
from penstock.documents.parsers.isolation.confinement import _filter_calls, no_new_privileges
# The filter alone: what it lets pass, a kernel without Landlock lets happen.
no_new_privileges()
_filter_calls(threads=True)

def tried(attempt):
    try:
        return repr(attempt())
    except BaseException as error:
        return type(error).__name__

{}
print(found)
"""


def found_with_threads(code: str) -> str:
    """What an attacker finds in a process that may start threads."""
    program = WITH_THREADS.format(textwrap.dedent(code))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_with_threads_sends_to_no_socket_but_its_own_pair(layers, tmp_path):
    need(layers, "seccomp")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        code = f"""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        found = tried(lambda: one.sendto(b"a line", {str(tmp_path / "log")!r}))
        """
        assert found_with_threads(code) == "PermissionError"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.recv(100)


def test_no_pair_of_sockets_signals_others_for_a_process_with_threads(layers):
    need(layers, "seccomp")
    code = f"""
    one, other = socket.socketpair()
    found = tried(lambda: fcntl.ioctl(one, 0x8901, struct.pack("i", {os.getpid()})))
    """
    assert found_with_threads(code) == "PermissionError"


def test_a_process_with_threads_wakes_them_through_its_own_pair(layers):
    need(layers, "seccomp")
    code = """
    one, other = socket.socketpair()
    thread = threading.Thread(target=lambda: one.send(b"awake"))
    thread.start()
    thread.join()
    found = other.recv(10)
    """
    assert found_with_threads(code) == "b'awake'"


def test_it_does_not_watch_files_that_it_may_not_read(layers):
    need(layers, "seccomp")
    code = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); found = libc.inotify_init1(0), ctypes.get_errno()"
    assert found_by(code) == str((-1, errno.EPERM))


@pytest.mark.parametrize("number", [463, 466, 469, 4_000])
def test_a_system_call_newer_than_the_filter_is_answered_as_an_older_kernel_would(layers, number):
    """Linux 6.13 has `setxattrat`, 6.17 `file_setattr`: new doors to what the filter refuses by its old names."""
    need(layers, "seccomp")
    code = f"""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall({number}, -100, b"/", 0, b"user.name", None, 0), ctypes.get_errno()
    """
    assert found_by(code) == str((-1, errno.ENOSYS))


def test_it_cannot_raise_its_hard_limits(layers):
    need(layers, "capabilities")
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NPROC", "RLIMIT_CORE", "RLIMIT_NOFILE"):
        code = f"""
        import resource
        hard = resource.getrlimit(resource.{name})[1]
        found = (hard, tried(lambda: resource.setrlimit(resource.{name}, (hard + 1, hard + 1))))
        """
        hard, outcome = eval(found_by(code))
        assert hard >= 0, f"{name} has no hard limit"
        assert outcome in ("ValueError", "PermissionError"), name


def test_it_has_a_session_of_its_own_and_no_way_back():
    assert found_by("found = os.getsid(0) == os.getpid() == os.getpgrp()") == "True"


@pytest.mark.slow
def test_an_attack_that_spins_for_ever_ends_at_the_hard_limit_though_it_ignores_the_soft_one():
    code = """
    import signal, resource
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    while True:
        pass
    """
    with pytest.raises(Exception, match=r"memory|processor"):
        found_by(code)


HOLDS_A_CHILD = """
import os, signal, msgspec
from penstock.documents.parsers.isolation.confinement import own_pipes
from penstock.documents.parsers.processes.exchange import receive, send
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.processes.messages import Answer, Hello
inbound, outbound = own_pipes()
child = os.fork()
if child == 0:
    while True:
        signal.pause()
send(outbound, msgspec.msgpack.encode(Hello(())))
receive(inbound)
send(outbound, msgspec.msgpack.encode(Answer(ParsedDocument(str(child).encode(), Format.TEXT))))
{}
"""


@pytest.mark.parametrize("end", ["signal.pause()", "os._exit(0)", "os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_child_it_left_behind_dies_with_it_even_where_the_kernel_lets_it_fork(end):
    process = ParserProcess(ParserSetup(LIMITS), HOLDS_A_CHILD.format(end))
    try:
        child = os.pidfd_open(int(process.parse(REQUEST).text))
    finally:
        process.stop()
    ended, _, _ = select.select([child], [], [], 10)
    os.close(child)
    assert ended, "it lives on"


def test_a_parser_may_still_abort_itself(layers):
    need(layers, "seccomp")
    with pytest.raises(Exception, match="memory"):
        found_by("os.abort()")
    assert signal.SIGABRT


def test_parsers_still_find_their_libraries_and_codecs():
    code = """
    import selectolax.lexbor, pypdfium2, docx, mistune, charset_normalizer, lxml.etree, zoneinfo
    found = [name for name in ('shift_jis', 'gb18030', 'koi8_r', 'cp874') if not b'a'.decode(name)]
    """
    assert found_by(code) == "[]"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_of_system_calls_are_the_kernels(machine):
    named = dict(numbers(machine))
    assert len(set(named.values())) == len(named), "two names for one number"
    header = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }[machine]
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    defined = {
        parts[1].removeprefix("__NR3264_").removeprefix("__NR_"): int(parts[2])
        for line in header.read_text().splitlines()
        if line.startswith("#define __NR") and (parts := line.split())[2:] and parts[2].isdigit()
    }
    wrong = {name: number for name, number in named.items() if defined.get(name, number) != number}
    assert wrong == {}
    assert len(set(named) & set(defined)) > 60


def test_only_architectures_whose_numbers_are_known_are_filtered():
    assert set(ARCHITECTURES) == {"x86_64", "aarch64"}


def test_folders_of_libraries_may_be_read_and_other_folders_on_the_path_may_not(tmp_path, monkeypatch):
    installed, own, archive = tmp_path / "deps", tmp_path / "project", tmp_path / "packed.zip"
    (installed / "msgspec-1.0.dist-info").mkdir(parents=True)
    own.mkdir()
    archive.write_bytes(b"PK")
    monkeypatch.setattr(sys, "path", [str(own), str(installed), str(archive), *sys.path])
    readable = set(readable_paths())
    assert {installed, archive} <= readable
    assert own not in readable
    assert not {Path("/"), Path("/etc"), Path.home(), Path("/tmp")} & readable
