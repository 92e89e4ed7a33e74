"""Code is read by its structure: what is defined stands under its qualified name, and no line is lost."""

from __future__ import annotations

import pytest

from penstock.documents.parsers import Format, Sandbox, sniff
from penstock.documents.parsers.plain.code import CODE_SUFFIXES, parse_code

PYTHON = b'''"""Module."""
import os

@cached
class Otter:
    """Swims."""
    def dive(self):
        # down
        return 1

def main():
    pass
'''


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_definitions_stand_under_their_names_with_their_decorators():
    parsed = parse_code(PYTHON, "src/otter.py")
    text = parsed.text.decode()
    assert parsed.title == "otter.py"
    assert headings(text) == ["## Otter", "### Otter.dive", "## main"]
    assert text.index("## Otter") < text.index("@cached") < text.index("### Otter.dive") < text.index("def dive")


def test_no_line_of_code_is_lost():
    text = parse_code(PYTHON, "otter.py").text.decode()
    kept = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert kept == [line.strip() for line in PYTHON.decode().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.go", "package a\nfunc Dive(n int) {}\ntype Otter struct{}\n", ["## Dive", "## Otter"]),
        ("a.rs", "struct Otter;\nimpl Otter {\n  fn dive(&self) {}\n}\n", ["## Otter", "## Otter", "### Otter.dive"]),
        ("a.java", "class Otter {\n  void dive() {}\n}\n", ["## Otter", "### Otter.dive"]),
        ("a.ts", "export class Otter {\n  dive(): void {}\n}\n", ["## Otter", "### Otter.dive"]),
        ("a.js", "function dive() {}\n", ["## dive"]),
        ("a.c", "static int *dive(int n) { return 0; }\n", ["## dive"]),
        ("a.hpp", "namespace river {\nclass Otter {\n void dive() {}\n};\n}\n", ["## river", "### river.Otter", "#### river.Otter.dive"]),
        ("a.cs", "class Otter {\n void Dive() {}\n}\n", ["## Otter", "### Otter.Dive"]),
        ("a.rb", "class Otter\n  def dive\n  end\nend\n", ["## Otter", "### Otter.dive"]),
        ("a.php", "<?php\nfunction dive() {}\n", ["## dive"]),
    ],
)  # fmt: skip
def test_the_languages_that_have_a_grammar(name, source, expected):
    assert headings(parse_code(source.encode(), name).text.decode()) == expected


@pytest.mark.parametrize("suffix", sorted(CODE_SUFFIXES))
def test_broken_and_empty_code_of_every_language_is_still_read(suffix):
    assert parse_code(b"", f"a.{suffix}").text == b""
    text = parse_code(b"}}} class def ((( fn \xff otter", f"a.{suffix}").text
    assert b"otter" in text


def test_a_minified_file_of_nested_calls_takes_no_stack():
    source = b"f(" * 20_000 + b")" * 20_000
    assert len(parse_code(source, "a.js").text) >= 40_000


@pytest.mark.slow
def test_code_whose_definitions_take_too_long_to_find_is_read_as_it_stands():
    # The grammar of C takes time by the third power of these: minutes for 15 KB.
    source = b"x=>" * 5_000
    with Sandbox() as sandbox:
        parsed = sandbox.parse(source, tenant="t", name="broken.c")
        assert (parsed.format, parsed.title, parsed.text.strip()) == (Format.CODE, "broken.c", source)
        assert "read as plain text" in parsed.warnings[-1]
        sound = sandbox.parse(PYTHON, tenant="t", name="otter.py")
        assert (headings(sound.text.decode())[0], sound.warnings) == ("## Otter", ())


def test_code_attached_to_a_message_is_read_as_it_stands():
    head = b"Subject: patch\nContent-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/plain\n\nSee.\n"
    attached = b'--B\nContent-Disposition: attachment; filename="otter.py"\n\n' + PYTHON + b"--B--\n"
    with Sandbox() as sandbox:
        text = sandbox.parse(head + attached, tenant="t", name="mail.eml").text.decode()
    assert "def dive" in text
    assert "### Otter.dive" not in text


@pytest.mark.parametrize("name", ["a.sh", "deploy.yaml", "a.toml", "a.ini", "a.pl"])
def test_comments_of_scripts_and_settings_are_no_headings(name: str) -> None:
    source = b"# Licence: free\n\nriver = 1\n\n## more\n"
    assert sniff(source, name=name) is Format.CODE
    parsed = parse_code(source, name)
    assert (parsed.title, parsed.text) == (name, b" # Licence: free\n\nriver = 1\n\n ## more")
