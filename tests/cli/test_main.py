"""The command line names its commands, refuses others, and explains expected failures without a traceback."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli import penstock
from penstock.cli.main import _COMMANDS
from penstock.cli.terminal.explanation import system_refusal
from penstock.errors import NotFound, PenstockError, PermissionDenied, StorageFull

# What is left of 80 columns beside the longest name of a command.
HELP_LINE_MAX = 63


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_every_command_can_be_found_and_explains_itself(name: str) -> None:
    answer = CliRunner().invoke(penstock, [name, "--help"])
    assert answer.exit_code == 0, answer.output
    assert "Usage:" in answer.output


def test_an_unknown_command_is_refused_by_name() -> None:
    answer = CliRunner().invoke(penstock, ["fly"])
    assert answer.exit_code == 2
    assert "fly" in answer.output


def test_a_command_that_is_nearly_right_is_told_the_right_one() -> None:
    answer = CliRunner().invoke(penstock, ["bufer", "inspect"])
    assert answer.exit_code == 2
    assert "Did you mean 'buffer'?" in answer.output


def test_a_failure_is_told_as_what_why_and_remedy() -> None:
    answer = CliRunner().invoke(penstock, ["buffer", "inspect", "ftp://nowhere/[x]"])
    assert answer.exit_code == 1
    assert "ftp" in answer.output
    assert "remedy:" in answer.output
    assert "Traceback" not in answer.output


def test_what_the_system_refuses_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("not a folder")
    answer = CliRunner().invoke(penstock, ["demo", "--directory", str(tmp_path / "a file" / "demo")])
    assert answer.exit_code == 1
    assert "Not a directory" in answer.output
    assert "Traceback" not in answer.output


@pytest.mark.parametrize(
    ("number", "kind", "remedy"),
    [
        (errno.ENOENT, NotFound, "folder that exists"),
        (errno.EACCES, PermissionDenied, "owner and the mode"),
        (errno.ENOSPC, StorageFull, "free some room"),
        (errno.EIO, PenstockError, "its disk"),
    ],
)
def test_what_the_system_refuses_has_a_name_and_a_remedy(number: int, kind: type[PenstockError], remedy: str) -> None:
    told = system_refusal(OSError(number, os.strerror(number), "notes.txt"))
    assert type(told) is kind
    assert told.what == "notes.txt cannot be used"
    assert told.why == os.strerror(number)
    assert remedy in told.remedy


class Interrupted(BytesIO):
    """Standard input at which somebody presses Ctrl-C."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size == 0:
            # Whether there are bytes to be had is asked before.
            return b""
        raise KeyboardInterrupt


def test_ctrl_c_ends_a_command_that_has_nothing_to_end_with_130_and_no_word(tmp_path: Path) -> None:
    arguments = ["notify", "-", "--source", "s3", "--store", str(tmp_path)]
    answer = CliRunner().invoke(penstock, arguments, input=Interrupted())
    assert (answer.exit_code, answer.output) == (130, "")


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), [(path, command) for path, command in _commands(penstock, "penstock")])
def test_a_command_is_explained_in_one_line_that_a_list_of_commands_does_not_cut(
    path: str, command: click.Command
) -> None:
    if command.hidden:
        return
    line = command.get_short_help_str(limit=1000)
    assert line.endswith("."), path
    assert len(line) <= HELP_LINE_MAX, path


LEAVING = """
import atexit, os, sys
from importlib import import_module
cli = import_module("penstock.cli.main")

class Taken:
    def __del__(self, write=os.write):
        write(1, b" taken apart")

def ended(**_):
    atexit.register(print, "tidied", end="")
    sys.exit({code})

kept = sys.kept = Taken()
cli.penstock = ended
cli.main()
"""


@pytest.mark.parametrize(("given", "code"), [("0", 0), ("None", 0), ("3", 3), ("'why'", 1)])
def test_a_command_ends_with_its_code_before_python_is_taken_apart_under_native_threads(given: str, code: int) -> None:
    program = LEAVING.replace("{code}", given)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (code, "tidied"), done.stderr


_CONFINED = """
import os, sys
from penstock.cli import penstock
from penstock.documents.parsers.isolation import confine_with_threads

def answering(**_):
    confine_with_threads()
    os.write(1, b"answer")

penstock.get_command(None, "doctor").callback = answering
penstock(["doctor"])
"""


def test_a_confined_process_whose_reader_is_gone_ends_without_a_word() -> None:
    """It may not open what others write the rest to."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-c", _CONFINED],
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


# Sends this process Ctrl-C in the middle of an import, of a kind that hides it: an error of a class body's making.
_INTERRUPTED_IMPORT = """
import os, signal, sys

# Whoever started the tests may ignore Ctrl-C, and this process would too.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Descriptor:
    def __set_name__(self, owner, name):
        os.kill(os.getpid(), signal.SIGINT)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("penstock.cli.commands"):
            type("Made", (), {"member": Descriptor()})

from penstock.cli.main import main
sys.meta_path.insert(0, Interrupting())
sys.argv = ["penstock", "search", "pumps"]
main()
"""


def test_ctrl_c_while_modules_are_loaded_ends_with_130_and_no_word() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_a_failure_is_explained_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("penstock.cli.main"), "explain", interrupted)
    answer = CliRunner().invoke(penstock, ["search", "pumps", "--store", "/nowhere/at/all"])
    assert (answer.exit_code, answer.output) == (130, "")


def test_names_with_colons_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A console that turns `:b:` into a picture would name a model or a file that does not exist."""
    import_module("penstock.cli.main").explain(PenstockError("model a:b:c is away"))
    assert "model a:b:c is away" in capsys.readouterr().err
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "x:100:.md").symlink_to("/nowhere")
    places = [str(tmp_path / "shelf"), "--store", str(tmp_path / "store"), "--engine", "local", "--dry-run"]
    assert "x:100:.md" in CliRunner().invoke(penstock, ["index", *places]).output
