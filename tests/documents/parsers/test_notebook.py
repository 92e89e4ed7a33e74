"""A notebook is its prose, its code and what the code printed; pictures in it are no text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.documents.parsers import Format, ParserLimits, sniff
from penstock.documents.parsers.web.notebook import parse_notebook
from penstock.errors import InvalidInput


def notebook(*cells: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}).encode()


PROSE = {"cell_type": "markdown", "source": ["# Otters\n", "\n", "They *swim* in rivers."]}
CODE = {
    "cell_type": "code",
    "source": ["import otter\n", "\n", "# count them\n", "print(otter.count())"],
    "outputs": [
        {"output_type": "stream", "name": "stdout", "text": ["42 otters\n"]},
        {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 9999, "text/plain": ["<Figure>"]}},
        {"output_type": "execute_result", "data": {"text/html": "<p>x</p>", "text/plain": "forty-two"}},
        {"output_type": "error", "ename": "ValueError", "evalue": "no river", "traceback": ["\x1b[31mlong\x1b[0m"]},
    ],
}


def test_prose_code_and_what_it_printed_are_text_in_their_order() -> None:
    parsed = parse_notebook(notebook(PROSE, CODE), ParserLimits())
    assert (parsed.format, parsed.title) == (Format.NOTEBOOK, "Otters")
    assert parsed.text.decode() == (
        "# Otters\n\nThey swim in rivers.\n\nimport otter\n \n # count them\nprint(otter.count())\n\n"
        "42 otters\n\n<Figure>\n\nforty-two\n\nValueError: no river"
    )


def test_notebooks_are_known_by_their_name_or_type() -> None:
    assert sniff(notebook(PROSE), name="a/B.IPYNB") is Format.NOTEBOOK
    assert sniff(notebook(PROSE), content_type="application/x-ipynb+json") is Format.NOTEBOOK


def test_notebooks_of_version_three_are_read() -> None:
    old = {"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": ["swim()"], "outputs": []}]}]}
    assert parse_notebook(json.dumps(old).encode(), ParserLimits()).text == b"swim()"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"cells": 1}', b'{"cells": [1]}', b"{" * 100_000, b"\xff{}"],
)
def test_what_is_no_notebook_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="notebook"):
        parse_notebook(data, ParserLimits())


def test_odd_cells_cost_their_own_text_and_no_other() -> None:
    odd: list[dict[str, Any]] = [
        {"cell_type": "code", "source": "a = 1", "outputs": [{"output_type": "stream", "text": 5}, 7, {"data": []}]},
        {"cell_type": "raw", "source": "raw words"},
        {"cell_type": "code"},
        PROSE,
    ]
    parsed = parse_notebook(notebook(*odd), ParserLimits())
    assert parsed.text.decode() == "a = 1\n\nraw words\n\n# Otters\n\nThey swim in rivers."
