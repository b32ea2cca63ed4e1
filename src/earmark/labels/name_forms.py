"""The spellings by which names of classes are compared, and what the names mean.

"Sneezing" and "Sneeze", "gun_shot" and "Gunshot", "crying_baby" and "Baby cry" are the same in some
form. ``class_synonyms.csv`` holds what spelling does not tell: other words for AudioSet's classes,
and words that mean several sounds.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import resources

_AND = ("and", "etc")
_PLURALS = {
    **{"children": "child", "men": "man", "women": "woman", "mice": "mouse", "geese": "goose"},
    **{"feet": "foot", "teeth": "tooth", "wolves": "wolf", "leaves": "leaf", "knives": "knife"},
}

_SHORT = re.compile("[^aeiouy][aeiouy][^aeiouwxy]")
"""What is left of "biting" without its -ing, and of "bite" without its e."""


class NameForms:
    """A name in the spellings by which it is compared, the strictest first.

    A name without a letter or digit has no forms, and so is like no other.
    """

    def __init__(self, name: str) -> None:
        self._all_words = _split_words(name)
        self.words = tuple(word for word in self._all_words if word not in _AND)

    @cached_property
    def plain(self) -> tuple[str, ...]:
        """As it stands, without spaces, and in the singular."""
        if not self.words:
            return ()
        text, singular = " ".join(self.words), " ".join(map(_singular, self.words))
        return f"words {text}", f"letters {text.replace(' ', '')}", f"singular {singular}"

    @cached_property
    def stems(self) -> tuple[str, ...]:
        """The words without plurals and -ing."""
        return tuple(map(word_stem, self.words))

    @cached_property
    def loose(self) -> tuple[str, ...]:
        """By stems, and by stems in any order; "Drum and bass" is no "Bass drum"."""
        if not self.words:
            return ()
        in_any_order = " ".join(sorted(map(word_stem, self._all_words)))
        return f"stems {' '.join(self.stems)}", f"any order {in_any_order}"

    @cached_property
    def letters(self) -> frozenset[str]:
        """Pairs of neighbouring letters."""
        text = "".join(self.words)
        return frozenset(text[place : place + 2] for place in range(len(text) - 1))


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name in lower case, without ``and``.

    >>> name_words("Accelerating_and_revving"), name_words("Bee, wasp, etc.")
    (('accelerating', 'revving'), ('bee', 'wasp'))
    """
    return NameForms(name).words


def _split_words(name: str) -> tuple[str, ...]:
    """Return all words of a name.

    >>> _split_words("dogBark"), _split_words("Dentist's drill"), _split_words("R&B")
    (('dog', 'bark'), ('dentists', 'drill'), ('r', 'and', 'b'))
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFKC", name))
    text = re.sub(r"['’]", "", text.casefold()).replace("&", " and ")
    return tuple(re.findall(r"[^\W_]+", text))


def _singular(word: str) -> str:
    """Return a word without its plural, where that is safe.

    >>> [_singular(word) for word in ("dogs", "dishes", "flies", "glass", "bus", "children")]
    ['dog', 'dish', 'fly', 'glass', 'bus', 'child']
    """
    if word in _PLURALS:
        return _PLURALS[word]
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("sses", "shes", "ches", "xes")) else word[:-1]


def word_stem(word: str) -> str:
    """Return what a word has in common with its plural and its form in -ing.

    >>> [word_stem(word) for word in ("sneezing", "sneeze", "clapping", "yelling", "string")]
    ['sneez', 'sneez', 'clap', 'yell', 'string']
    >>> [word_stem(word) for word in ("biting", "bite", "caring", "car")]
    ['bite', 'bite', 'care', 'car']
    """
    word = _singular(word)
    if word.endswith("ing") and len(word) >= 6 and re.search("[aeiouy]", word[:-3]):
        word = word[:-3]
        if _SHORT.fullmatch(word):
            return f"{word}e"
        if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsfzo":
            word = word[:-1]
    return word if len(word) <= 3 or _SHORT.fullmatch(word[:-1]) else word.removesuffix("e")


@dataclass(frozen=True)
class Meaning:
    """One row of ``class_synonyms.csv``: what a name means in AudioSet."""

    means: str
    """The name of the class; empty where AudioSet has none."""
    is_sure: bool
    """Whether it is just another word; otherwise one of several meanings, or something near."""
    above: frozenset[str]
    """Stems of words that tell this meaning where they stand above the name."""


@lru_cache
def read_synonyms() -> Mapping[str, tuple[Meaning, ...]]:
    """Read what names mean, by every form of them; the rows of a form are all sure, or none is."""
    found: dict[str, dict[str, list[Meaning]]] = defaultdict(lambda: defaultdict(list))
    text = resources.files("earmark.labels").joinpath("class_synonyms.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        above = frozenset(map(word_stem, row["above"].split()))
        forms = NameForms(row["name"])
        for form in {*forms.plain, *forms.loose}:
            found[form][row["name"]].append(Meaning(row["means"], row["trust"] == "sure", above))
    return {form: _agreed(list(rows.values())) for form, rows in found.items()}


@lru_cache(maxsize=1)
def other_names() -> Mapping[str, tuple[str, ...]]:
    """Return what else AudioSet's classes are called, by their names in lower case."""
    found: dict[str, list[str]] = defaultdict(list)
    text = resources.files("earmark.labels").joinpath("class_synonyms.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        found[row["means"].lower()].append(row["name"])
    return {name: tuple(others) for name, others in found.items()}


def _agreed(names: Sequence[Sequence[Meaning]]) -> tuple[Meaning, ...]:
    """Join the rows of names that are alike in some form; they are sure only if they agree."""
    rows = tuple(dict.fromkeys(meaning for name in names for meaning in name))
    is_sure = all(row.is_sure for row in rows) and len({row.means for row in rows}) == 1
    return rows if is_sure else tuple(replace(row, is_sure=False) for row in rows)


def audioset_words(name: NameForms) -> str:
    """Return AudioSet's words for a name where the table is sure of them, or its own words."""
    rows = next((rows for form in name.plain if (rows := read_synonyms().get(form, ()))), ())
    if not rows or not rows[0].is_sure:
        return " ".join(name.words)
    return " ".join(name_words(rows[0].means))


def told_above(rows: Iterable[Meaning], above: Iterable[str]) -> tuple[Meaning, ...]:
    """Return the meanings that the names of what stands above a name tell."""
    words = {word_stem(word) for name in above for word in name_words(name)}
    return tuple(row for row in rows if row.above & words)
