"""What the README shows works as it is shown: its examples run in order, as a newcomer would type them."""

import ast
import asyncio
import inspect
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from penstock.cli import penstock

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\.venv/bin/penstock (.*?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_the_examples_run_one_after_the_other_in_one_session(tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 3

    async def session() -> dict[str, object]:
        names: dict[str, object] = {}
        for example in EXAMPLES:
            text = example.replace("/tmp/penstock", str(tmp_path))
            code = compile(text, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            made = eval(code, names)
            if inspect.iscoroutine(made):
                await made
        return names

    names = asyncio.run(session())
    assert names["sequence"] == 0
    assert list(names["batch"].records) == [b"hello", b"world"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_line_is_one_that_the_command_line_takes(line: str) -> None:
    name, *arguments = shlex.split(line)
    command = penstock.get_command(click.Context(penstock), name)
    assert command is not None
    while isinstance(command, click.Group):
        name, *arguments = arguments
        command = command.commands[name]
    with command.make_context(name, arguments) as context:
        assert context.params


@pytest.mark.parametrize("target", ["demo", "test", "check", "bench", "chaos", "docs", "help"])
def test_make_help_explains_every_target(target: str) -> None:
    answer = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"make {target}\s+\S", answer.stdout)


@pytest.mark.parametrize("page", sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}), ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
