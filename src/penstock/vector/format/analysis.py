"""How the texts of a collection are indexed: what a caller chooses, and the rule for words that goes with it.

Words lie in stores under their hashes, so a collection keeps the rule that it was made with, in texts and in queries.
A new rule is a new stored name: software that does not know it refuses the collection instead of missing its words.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["StoredAnalysis", "TextAnalysis"]


class TextAnalysis(StrEnum):
    """What of a text is indexed: its words as they are, or also their stems in the language it is taken for.

    With leads, what stands before the first empty line of a text is its lead. The words of its first line, the section,
    count several times; those of its other lines tell what the whole document is about, and are a text of their own.
    """

    WORDS = "words"
    STEMS = "stems"
    LEADS = "leads"


class StoredAnalysis(StrEnum):
    """An analysis as a collection's record names it, with the rule by which words are told apart and written alike."""

    PLAIN_WORDS = "words"
    PLAIN_STEMS = "stems"
    PLAIN_LEADS = "leads"
    FOLDED_WORDS = "folded-words"
    FOLDED_STEMS = "folded-stems"
    FOLDED_LEADS = "folded-leads"

    @classmethod
    def newest(cls, analysis: TextAnalysis) -> StoredAnalysis:
        """What a new collection gets."""
        return cls(f"folded-{analysis}")

    @property
    def analysis(self) -> TextAnalysis:
        return TextAnalysis(self.removeprefix("folded-"))

    @property
    def folds(self) -> bool:
        """Whether words are folded, and identifiers, emoji and pairs of characters are words too."""
        return self.startswith("folded-")
