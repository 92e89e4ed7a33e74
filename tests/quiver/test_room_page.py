"""What the room's page shows works as it is shown."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent.parent / "docs" / "rooms" / "quiver.md"


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    text = example.replace("/var/lib/penstock", str(tmp_path / "store"))
    names: dict[str, Any] = {}
    asyncio.run(eval(compile(text, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names))
    assert names["table"].column("body").to_pylist() == ["hello"]
