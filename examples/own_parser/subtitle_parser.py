"""A parser of your own: subtitles (`.srt`) become text without numbers and times.

Name it in the configuration, with this folder on the path:

    [parsing]
    plugins = ["subtitle_parser:SubtitleParser"]

or let an installed package bring it, by an entry point in its pyproject.toml:

    [project.entry-points."penstock.parsers"]
    subtitles = "subtitle_parser:SubtitleParser"
"""

from penstock.documents.parsers import DocumentParser

__all__ = ["SubtitleParser"]


class SubtitleParser(DocumentParser):
    """Takes documents by their suffix; `content_types` and `magic` would work as well."""

    suffixes = (".srt",)

    def parse(self, data: bytes, name: str) -> str:
        scenes = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n")
        return "\n\n".join(text for text in map(_spoken, scenes) if text)


def _spoken(scene: str) -> str:
    lines = scene.strip().splitlines()
    return " ".join(line for line in lines if not line.isdigit() and "-->" not in line)
