"""The language of a text, guessed from its function words: enough to choose a stemmer, and fast over whole columns.

The numbers and the words are part of the stored form (docs/format/vector.md): which language a text is taken to be in
decides under which hashes its words lie. Languages may be added behind the last one; nothing here may change otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Set
from enum import IntEnum
from typing import Final

import numpy as np

from penstock.vector.arrays import Array, Indices

__all__ = ["Language", "evidence_of", "guess_languages", "is_function_word"]


class Language(IntEnum):
    """A language with a stemmer. English comes first: it is what a text without function words is taken for."""

    ENGLISH = 1
    GERMAN = 2
    FRENCH = 3
    SPANISH = 4
    ITALIAN = 5
    PORTUGUESE = 6
    DUTCH = 7
    SWEDISH = 8
    DANISH = 9
    NORWEGIAN = 10
    FINNISH = 11
    HUNGARIAN = 12
    ROMANIAN = 13
    TURKISH = 14
    RUSSIAN = 15
    GREEK = 16
    ARABIC = 17


_FUNCTION_WORDS: Final = {
    Language.ENGLISH: "the of and to in is that for it with as be this are by not or an from which you can at have will"
    " how do does what when where",
    Language.GERMAN: "der die das und ist nicht ein eine zu den von mit sich des auf für im dem werden als auch wird"
    " oder wie sind nach bei einer wenn kann",
    Language.FRENCH: "le la les des et est une du dans que pour qui pas sur au avec sont par ce il plus ou vous cette"
    " aux être comment ne",
    Language.SPANISH: "el la los las de y que es una en del por con para se no al como más pero su está son cómo"
    " puede cuando",
    Language.ITALIAN: "il lo la gli le di e che è una del della per con non sono si nel dei da come più alla questo"
    " anche delle",
    Language.PORTUGUESE: "o os as de e que é uma do da em para com não se por dos das no na mais como ao são pelo foi",
    Language.DUTCH: "de het een en van is dat niet op te zijn voor met die aan er als ook door wordt naar bij hoe om"
    " kan worden",
    Language.SWEDISH: "och att det som en är av för på med inte den till har om ett kan eller var från när hur vara",
    Language.DANISH: "og at det som en er af for på med ikke den til har et kan eller fra når hvordan være der blive",
    Language.NORWEGIAN: "og å det som en er av for på med ikke den til har et kan eller fra når hvordan være hvis blir",
    Language.FINNISH: "ja on ei että se ovat tai kun myös joka mutta niin kuin voi ole sen tämä jos miten oli siitä",
    Language.HUNGARIAN: "a az és hogy nem is egy ez de meg ha vagy mint csak már van volt lehet hogyan kell azt",
    Language.ROMANIAN: "și de la cu este pe nu în că din sau o pentru sunt mai ca se un fi prin care cum să",
    Language.TURKISH: "ve bir bu için ile de da olarak daha çok gibi en ne değil kadar olan sonra nasıl veya olur",
    Language.RUSSIAN: "и в не на что с по как это для из от или но а к у за же бы если он его при так",
    Language.GREEK: "και το η ο να του της των με για από που είναι τα δεν στο στην θα σε πώς ή αν",
    Language.ARABIC: "في من على إلى أن هذا هذه التي الذي عن مع ما لا كان أو هو هي كيف و",
}
# Further words that hold a question together. They decide on no language, so that this list may change.
_QUESTION_WORDS: Final = {
    Language.ENGLISH: "a i my me we our your its these those there on was were did why who could should would if so than"
    " then such some any all into",
    Language.GERMAN: "ich mein meine wir man es er sie was wo wann warum wer welche welcher welches an in aus um so"
    " gibt es einem einen",
    Language.FRENCH: "je mon ma mes nous on un de à en se sa son ses où quand pourquoi quel quelle quels quelles faire",
    Language.SPANISH: "yo mi mis un a lo qué dónde cuándo quién cuál cuáles hacer puedo hay",
    Language.ITALIAN: "io mio mia un a in al i dove quando perché chi quale quali posso fare cosa",
    Language.PORTUGUESE: "eu meu minha um a à onde quando quem qual quais posso fazer há",
    Language.DUTCH: "ik mijn we wat waar wanneer waarom wie welke in uit",
}
_LANGUAGES: Final = np.array(list(Language), np.int64)
# Different function words that a text must have to be taken for a language: tables and code have the odd `a` or `no`.
# Of a script that English texts do not have, one will do.
_OTHER_SCRIPTS: Final = (Language.RUSSIAN, Language.GREEK, Language.ARABIC)
_EVIDENCE: Final = tuple(1 if language in _OTHER_SCRIPTS else 3 for language in Language)
_EVIDENCE_MIN: Final = np.array(_EVIDENCE, np.int64)
_MEMBERS: Final[dict[bytes, list[int]]] = {}
for _place, _language in enumerate(Language):
    for _word in _FUNCTION_WORDS[_language].split():
        _MEMBERS.setdefault(_word.encode(), []).append(_place)
_MEMBER_PLACES: Final = {word.decode(): places for word, places in _MEMBERS.items()}

_ASKING: Final[dict[bytes, list[int]]] = {}
for _language, _words in _QUESTION_WORDS.items():
    for _word in _words.split():
        _ASKING.setdefault(_word.encode(), []).append(int(_LANGUAGES.tolist().index(_language)))


def guess_languages(words: list[bytes], codes: Indices, parents: Indices, texts: int) -> Array:
    """The language of each text. Word `k` of all texts is `words[codes[k]]`, and stands in text `parents[k]`."""
    known = [(code, places) for code, word in enumerate(words) if (places := _MEMBERS.get(word))]
    # By code, the place of a function word among those that are here.
    place_of = np.full(len(words), -1, np.int64)
    place_of[[code for code, _ in known]] = np.arange(len(known))
    members = np.zeros((len(known), len(Language)), np.float32)
    for place, (_, languages) in enumerate(known):
        members[place, languages] = 1
    found = place_of[codes]
    inside = found >= 0
    # Each function word counts once in a text, however often it stands there.
    present = np.zeros((texts, len(known)), np.float32)
    present[parents[inside], found[inside]] = 1
    scores = present @ members
    scores[scores < _EVIDENCE_MIN] = 0
    # Of equals the first: English where there is nothing to go by.
    guessed: Array = _LANGUAGES[scores.argmax(axis=1)]
    return guessed


def evidence_of(words: Set[str]) -> Language | None:
    """The language whose function words a text has, told by its different words; None if they do not suffice."""
    scores = [0] * len(_EVIDENCE)
    for word in words & _MEMBER_PLACES.keys():
        for place in _MEMBER_PLACES[word]:
            scores[place] += 1
    enough = [score if score >= least else 0 for score, least in zip(scores, _EVIDENCE, strict=True)]
    best = max(enough)
    return Language(int(_LANGUAGES[enough.index(best)])) if best else None


def is_function_word(word: bytes, languages: Container[int]) -> bool:
    """Whether a word only holds sentences together in one of some languages."""
    return any(_LANGUAGES[place] in languages for place in (*_MEMBERS.get(word, ()), *_ASKING.get(word, ())))
