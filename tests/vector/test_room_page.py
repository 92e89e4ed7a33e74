"""The example of the room's page runs as it is shown."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "rooms" / "vector.md"


def test_the_example_of_the_page_runs_and_answers_as_one_would_expect(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    text = example.replace("/tmp/penstock", str(tmp_path))
    code = compile(text, "vector.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        await eval(code, names)

    asyncio.run(run())
    assert names["near"]["id"].to_pylist() == ["a", "b"]
    assert names["late"]["id"].to_pylist() == ["b", "c"]
    assert names["both"]["text"].to_pylist()[0] == "a write ahead log"
    assert names["exact"]["id"].to_pylist() == ["a", "c"]
    assert names["complete"]
    assert [row["id"] for page in names["everything"] for row in page.to_pylist()] == ["a", "b", "c"]
