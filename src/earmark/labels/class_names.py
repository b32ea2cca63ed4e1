"""Match the classes of two lists by identifier and name.

AudioSet, FSD50K, ESC-50, UrbanSound8K and people name the same sounds differently. Each wanted
class is matched with a target, in this order:

1. ``id``: the identifiers are equal.
2. ``name``: the names are equal but for letter case, hyphens, underscores, ``and`` or commas,
   spaces ("chain saw"), plurals, ``-ing``, or the order of words ("clock_alarm").
3. ``path``: the name is a path ("Animal/Dog/Bark") whose last part matches, and what stands above
   it does not speak against it.
4. ``part of a name``: it is one of the names between AudioSet's commas ("Vehicle horn, car horn,
   honking"), and no other target's.
5. ``synonym``: ``class_synonyms.csv`` says so ("sea waves" are "Waves, surf").

Nothing is guessed. A word that means several sounds ("mouse", "horn", "fly": the rows ``maybe`` of
the table) is matched only if it is spelt as the target is, or stands under a class that tells its
meaning. Where several targets fit equally well, or several wanted classes fit one target equally
well, none is matched. Those targets, or else those with similar names, are suggestions.

Names are compared in several spellings (:class:`NameForms`): "Sneezing" and "Sneeze", "gun_shot"
and "Gunshot", "crying_baby" and "Baby cry" agree in one of them. ``class_synonyms.csv`` lists other
words for AudioSet's classes, and words that mean several sounds.
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
from typing import Literal

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


How = Literal["id", "name", "path", "part of a name", "synonym"]

_STRENGTHS: tuple[How, ...] = ("id", "name", "path", "part of a name", "synonym")

_MOST_SUGGESTIONS = 3
_LEAST_SHARED_WORDS = 1 / 3
_LEAST_SHARED_LETTERS = 0.8
"""How much of two names (Jaccard of words, Dice of pairs of letters) makes them similar."""

_AUDIOSET_ID = re.compile(r"/(m|t|g)/\w+")
_ABOVE = re.compile(r"\s*(?:[/\\>|:›→]|\s[-–]\s|(?<=[^\W\d_])\.(?=[^\W\d_]))+\s*")
_OR = re.compile(r"[/\\|]")
"""What stands between the parts of a path, and also between two classes: "cough/sneeze"."""

_COMMA = re.compile(r"[,;](?![^(]*\))")
_SMALL_WORDS = frozenset(
    map(word_stem, ("a", "an", "the", "of", "in", "on", "at", "to", "with", "or", "by", "sound"))
)


@dataclass(frozen=True)
class NamedClass:
    """A class as one of two lists to be matched knows it."""

    class_id: str
    name: str
    parents: tuple[str, ...] = ()
    """Names of classes above it, near or far, where they are known."""


@dataclass(frozen=True)
class NameMatch:
    """What was found for one wanted class; targets are places in the list of targets."""

    target: int | None = None
    how: How | None = None
    """None where nothing matched for sure."""
    suggestions: tuple[int, ...] = ()
    """Targets that might be meant, the likeliest first; empty where one matched."""
    is_same_spelling: bool = False
    """Whether the names are equal letter by letter."""


def match_classes(
    wanted: Sequence[NamedClass], targets: Sequence[NamedClass]
) -> tuple[NameMatch, ...]:
    """Match each wanted class with a target, or with none and suggestions.

    A target is matched at most once: of several wanted classes the one that matches best has it,
    and where two match equally well neither does, since whoever has two classes means two things.
    The order of the lists changes nothing but the order of what is returned.

    >>> targets = [NamedClass("/m/05tny_", "Bark"), NamedClass("/m/04rmv", "Mouse")]
    >>> match_classes([NamedClass("0", "dog_bark"), NamedClass("1", "mouse")], targets)[0].how
    'synonym'
    """
    known, folders = _Targets(targets), _folders(wanted)
    found = [known.find(each, folders) for each in wanted]
    rivals = defaultdict(list)
    for place, match in enumerate(found):
        if match.target is not None:
            rivals[match.target].append(place)
    for target, places in rivals.items():
        best = min(_weakness(found[place]) for place in places)
        winners = [place for place in places if _weakness(found[place]) == best]
        for place in places:
            if [place] != winners:
                found[place] = NameMatch(suggestions=(target,))
    return tuple(found)


def _weakness(match: NameMatch) -> tuple[int, bool]:
    return _STRENGTHS.index(match.how or "synonym"), not match.is_same_spelling


@dataclass(frozen=True)
class _Found:
    """Targets that fit; the match is sure if there is one and nothing speaks against it."""

    targets: tuple[int, ...] = ()
    how: How = "name"
    is_asked: bool = False

    @property
    def sure(self) -> int | None:
        return self.targets[0] if len(self.targets) == 1 and not self.is_asked else None

    @property
    def is_final(self) -> bool:
        """Whether looser ways of matching have nothing to add."""
        return bool(self.targets) or self.is_asked


class _Targets:
    """The targets of a match, by every form of their names."""

    def __init__(self, targets: Sequence[NamedClass]) -> None:
        self.targets = targets
        self.names = [NameForms(target.name) for target in targets]
        self.parts = [[NameForms(part) for part in _parts_of(target.name)] for target in targets]
        self.by_id = _places((target.class_id, i) for i, target in enumerate(targets))
        self.by_spelling = _places((target.name, i) for i, target in enumerate(targets))
        self.by_name = _places((f, i) for i, n in enumerate(self.names) for f in n.plain)
        each = [(n, i) for i, parts in enumerate(self.parts) for n in (self.names[i], *parts)]
        self.by_part = _places((form, i) for name, i in each for form in name.plain)
        self.loosely = _places((form, i) for name, i in each for form in name.loose)
        self.by_meaning = _places((audioset_words(n), i) for i, n in enumerate(self.names))

    def find(self, wanted: NamedClass, folders: frozenset[str]) -> NameMatch:
        """Return the one target that a class surely is, or suggestions."""
        for known in (wanted.class_id, wanted.name):
            same = self.by_id.get(known, ()) if known else ()
            if len(same) == 1:
                return NameMatch(same[0], "id", is_same_spelling=True)
        spelt = self.by_spelling.get(wanted.name, ())
        if len(spelt) == 1 and not self._is_denied(wanted, spelt[0]):
            return NameMatch(spelt[0], "name", is_same_spelling=True)
        found = self._by_path(wanted, folders)
        if found is None:
            found = self._by_name(NameForms(wanted.name), wanted.parents)
        if found.sure is not None and not self._has_another_id(wanted, found.sure):
            return NameMatch(found.sure, self._how(wanted, found))
        return NameMatch(suggestions=self._suggestions(wanted, spelt, found))

    def _how(self, wanted: NamedClass, found: _Found) -> How:
        """Say how a class matched; what the table says is no news where names are alike."""
        if found.sure is None or found.how != "synonym":
            return found.how
        name = NameForms(wanted.name)
        forms = {*name.plain, *name.loose}
        if not forms.isdisjoint((*self.names[found.sure].plain, *self.names[found.sure].loose)):
            return "name"
        is_part = any(forms & {*part.plain, *part.loose} for part in self.parts[found.sure])
        return "part of a name" if is_part else "synonym"

    def _is_denied(self, wanted: NamedClass, target: int) -> bool:
        """Tell whether a class spelt as a target has another identifier, or another meaning.

        Only AudioSet's classes have the meanings of the table, and only classes above tell them.
        """
        if self._has_another_id(wanted, target):
            return True
        is_audioset = _AUDIOSET_ID.fullmatch(self.targets[target].class_id)
        rows = read_synonyms().get(next(iter(NameForms(wanted.name).plain), ""), ())
        if not is_audioset or not wanted.parents or not rows or rows[0].is_sure:
            return False
        meanings = {
            audioset_words(NameForms(row.means)) for row in told_above(rows, wanted.parents)
        }
        return audioset_words(self.names[target]) not in meanings

    def _has_another_id(self, wanted: NamedClass, target: int) -> bool:
        ids = wanted.class_id, self.targets[target].class_id
        return ids[0] != ids[1] and all(map(_AUDIOSET_ID.fullmatch, ids))

    def _by_name(self, name: NameForms, above: Sequence[str] = ()) -> _Found:
        """Find a name by its forms, from the strictest; ``above`` names what stands above it."""
        for form in name.plain:
            found = self._by_table(form, above, only_maybe=True)
            if not found.is_final:
                found = _Found(self.by_name.get(form, ()), "name")
            if not found.is_final:
                found = self._by_table(form, above)
            if found.is_final:
                return found
        synonyms = _Found(self.by_meaning.get(audioset_words(name), ()), "synonym")
        parts = (_Found(self.by_part.get(form, ()), "part of a name") for form in name.plain)
        loose = (self._by_loose(form, above) for form in name.loose)
        tried = (found for ways in ([synonyms], parts, loose) for found in ways)
        return next((found for found in tried if found.is_final), _Found())

    def _by_loose(self, form: str, above: Sequence[str]) -> _Found:
        found = self._by_table(form, above)
        if found.is_final:
            return found
        targets = self.loosely.get(form, ())
        is_whole = len(targets) == 1 and form in self.names[targets[0]].loose
        return _Found(targets, "name" if is_whole else "part of a name")

    def _by_table(self, form: str, above: Sequence[str], only_maybe: bool = False) -> _Found:
        """Find what the table of synonyms says; what it calls maybe is asked."""
        rows = read_synonyms().get(form, ())
        if not rows or (only_maybe and rows[0].is_sure):
            return _Found()
        told = rows if rows[0].is_sure else told_above(rows, above)
        targets = self._meant(told or rows)
        return _Found(targets, "synonym", is_asked=not rows[0].is_sure and not told)

    def _meant(self, rows: Iterable[Meaning]) -> tuple[int, ...]:
        meant = (
            self.by_meaning.get(audioset_words(NameForms(row.means)), ())
            for row in rows
            if row.means
        )
        return tuple(dict.fromkeys(target for targets in meant for target in targets))

    def _by_path(self, wanted: NamedClass, folders: frozenset[str]) -> _Found | None:
        """Find a class by the last part of a path, or its last two as one name."""
        parts = _path(wanted.name)
        if len(parts) < 2:
            return None
        above = (*wanted.parents, *parts[:-1])
        last = self._by_name(NameForms(parts[-1]), above)
        both = self._by_name(NameForms(f"{parts[-2]} {parts[-1]}"), above)
        if both.sure is not None and last.sure in (None, both.sure):
            return _Found(both.targets, "path", is_asked=last.is_asked and last.targets != ())
        targets = tuple(dict.fromkeys((*both.targets, *last.targets)))
        if last.sure is None or both.is_final:
            return _Found(targets, "path", is_asked=True)
        is_path = _above(wanted.name) in folders or not _OR.search(wanted.name)
        if is_path or self._may_stand_under(last.sure, parts):
            return _Found(targets, "path")
        either = self._by_name(NameForms(parts[-2])).targets
        return _Found((*targets, *either), "path", is_asked=True)

    def _may_stand_under(self, target: int, parts: Sequence[str]) -> bool:
        """Tell whether the part above is no other target, or is known to be above this one.

        "Cough/Sneeze" are two classes, and "Animal/Dog" is one.
        """
        if not self._by_name(NameForms(parts[-2])).targets:
            return True
        above = set(NameForms(parts[-2]).plain)
        if any(above & set(NameForms(name).plain) for name in self.targets[target].parents):
            return True
        rows = (read_synonyms().get(form, ()) for form in NameForms(parts[-1]).plain)
        return any(told_above(each, parts[-2:-1]) for each in rows)

    def _suggestions(
        self, wanted: NamedClass, spelt: tuple[int, ...], found: _Found
    ) -> tuple[int, ...]:
        """Rank targets that might be meant: those that fit, or else those with similar names."""
        name = NameForms((_path(wanted.name) or [wanted.name])[-1])
        fit = (*spelt, *found.targets)
        if fit or (found.is_asked and any(form in read_synonyms() for form in name.plain)):
            return tuple(dict.fromkeys(fit))[:_MOST_SUGGESTIONS]
        likeness = [
            max(_likeness(name, each) for each in (self.names[place], *self.parts[place]))
            for place in range(len(self.targets))
        ]
        ranked = sorted(
            (-like, self.targets[place].name, place) for place, like in enumerate(likeness) if like
        )
        return tuple(place for _, _, place in ranked[:_MOST_SUGGESTIONS])


def _path(name: str) -> list[str]:
    """Return the parts of a path; a name that is none is its only part."""
    if _AUDIOSET_ID.fullmatch(name):
        return [name]
    plain = " ".join(name.split())  # _ABOVE takes minutes over thousands of blanks in a row
    return [part for part in _ABOVE.split(plain) if name_words(part)]


def _above(name: str) -> str:
    """Return a path without its last part."""
    return "/".join(" ".join(name_words(part)) for part in _path(name)[:-1])


def _folders(wanted: Iterable[NamedClass]) -> frozenset[str]:
    """Return the paths under which there are several classes: those stand for no alternatives."""
    below: dict[str, set[str]] = defaultdict(set)
    for each in wanted:
        below[_above(each.name)].add(each.name)
    return frozenset(above for above, names in below.items() if above and len(names) > 1)


def _parts_of(name: str) -> list[str]:
    """Return the names between the commas, those in brackets aside; none where there are none."""
    parts = [part for part in _COMMA.split(name) if name_words(part)]
    return parts if len(parts) > 1 else []


def _places(pairs: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, dict[int, None]] = defaultdict(dict)
    for key, place in pairs:
        found[key][place] = None
    return {key: tuple(places) for key, places in found.items()}


def _likeness(name: NameForms, other: NameForms) -> float:
    """Return how similar two names are, from 0 (not at all) to 1."""
    ours, theirs = (set(each.stems) - _SMALL_WORDS for each in (name, other))
    shared = len(ours & theirs) / max(len(ours | theirs), 1)
    pairs = 2 * len(name.letters & other.letters) / max(len(name.letters) + len(other.letters), 1)
    by_words = shared if shared >= _LEAST_SHARED_WORDS else 0.0
    return max(by_words, pairs if pairs >= _LEAST_SHARED_LETTERS else 0.0)
