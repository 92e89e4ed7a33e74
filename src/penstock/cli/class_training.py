"""Makes an archive of Spark's classes: indexes one small document in a temporary folder, with Java recording.

Run as a module by the first command that finds no archive. What is recorded is what `penstock index` really loads: a
session, a streaming query, a micro-batch and its Python workers.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from penstock.cli.main import penstock

_LOWEST_PRIORITY: Final = 19


def main() -> None:
    os.nice(_LOWEST_PRIORITY)
    with TemporaryDirectory(prefix="penstock-classes-") as folder:
        document, store = Path(folder, "document.md"), Path(folder, "store")
        document.write_text("# A document\n\nIt is indexed once, for the classes that this takes.\n")
        os.chdir(folder)
        penstock(["index", str(document), "--store", str(store)], standalone_mode=False)


if __name__ == "__main__":
    main()
