import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def languages() -> dict[str, str]:
    """Two plain sentences in each of sixty languages and scripts; emoji count as one."""
    return json.loads((Path(__file__).parent / "languages.json").read_text(encoding="utf-8"))
