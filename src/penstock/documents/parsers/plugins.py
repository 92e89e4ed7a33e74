"""Parsers of your own: a small class, registered by an entry point or in the configuration, run in the same sandbox.

```python
from penstock.documents.parsers import DocumentParser

class SubtitleParser(DocumentParser):
    suffixes = (".srt",)

    def parse(self, data: bytes, name: str) -> str:
        return "\\n".join(line for line in data.decode().splitlines() if not line[:1].isdigit())
```

Which documents it takes is declared, not computed: nothing of it sees a document outside the sandbox. Its module is
imported there before the process gives up files and network; `parse` runs after that. It comes before the parsers that
Penstock brings.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import ClassVar, Final

from penstock.documents.parsers.formats import Format, ParsedDocument, ParserOptions
from penstock.errors import InvalidInput

__all__ = ["ENTRY_POINTS", "DocumentParser", "Plugins", "load_plugin", "parsed_by"]

ENTRY_POINTS: Final = "penstock.parsers"


class DocumentParser:
    """What a parser of your own derives from. One instance parses one document after another in one process."""

    # Endings of names, such as ".srt"; declared types; first bytes. Any of them is enough.
    suffixes: ClassVar[tuple[str, ...]] = ()
    content_types: ClassVar[tuple[str, ...]] = ()
    magic: ClassVar[tuple[bytes, ...]] = ()

    def parse(self, data: bytes, name: str) -> str | ParsedDocument:
        """The text of a document; whatever is raised sets the document aside with that reason."""
        raise InvalidInput(f"parser {type(self).__name__} has no parse method", "add a parse method")


def load_plugin(spec: str) -> type[DocumentParser]:
    """The class that `module:Class` names."""
    module, colon, name = spec.partition(":")
    try:
        found = getattr(import_module(module), name) if colon else None
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(
            f"parser {spec!r} cannot be loaded", str(error), "install its package, or correct `module:Class`"
        ) from error
    if not (isinstance(found, type) and issubclass(found, DocumentParser)):
        raise InvalidInput(
            f"parser {spec!r} cannot be used", "it must be `module:Class`, a subclass of DocumentParser", "correct it"
        )
    return found


class Plugins:
    """The parsers that were added, and which of them takes a document."""

    def __init__(self, options: ParserOptions) -> None:
        installed = (point.value.replace(" ", "") for point in entry_points(group=ENTRY_POINTS))
        # What the configuration names comes first.
        self._classes = {spec: load_plugin(spec) for spec in (*options.plugins, *installed)}

    @property
    def specs(self) -> Sequence[str]:
        return tuple(self._classes)

    def find(self, head: bytes, name: str, content_type: str | None) -> str | None:
        """The first that takes it, `module:Class`: by its first bytes, its declared type or its name."""
        kind = (content_type or "").partition(";")[0].strip().lower()
        for spec, parser in self._classes.items():
            if (
                (parser.magic and head.startswith(parser.magic))
                or (kind and kind in parser.content_types)
                or (parser.suffixes and name.lower().endswith(parser.suffixes))
            ):
                return spec
        return None


def parsed_by(parser: DocumentParser, data: bytes, name: str) -> ParsedDocument:
    """What a parser makes of a document, as one of ours."""
    made = parser.parse(data, name)
    if isinstance(made, str):
        return ParsedDocument(made.encode("utf-8", "replace"), Format.PLUGIN)
    if isinstance(made, ParsedDocument):
        return made
    raise InvalidInput(
        f"parser {type(parser).__name__} gave {type(made).__name__}",
        "it must return text or a ParsedDocument",
        "correct it",
    )
