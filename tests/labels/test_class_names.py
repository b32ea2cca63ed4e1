from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.labels import NamedClass, NameForms, NameMatch, match_classes, read_synonyms
from earmark.labels.class_names import _path

NAMES = """\
Speech|Child speech, kid speaking|Laughter|Baby cry, infant cry|Crying, sobbing|Singing|Humming
Whistling|Breathing|Snoring|Cough|Sneeze|Run|Walk, footsteps|Clapping|Children playing|Animal
Domestic animals, pets|Dog|Bark|Whimper|Whimper (dog)|Cat|Meow|Cattle, bovinae|Pig|Sheep
Chicken, rooster|Cluck|Crowing, cock-a-doodle-doo|Honk|Bird|Chirp, tweet|Crow|Canidae, dogs, wolves
Rodents, rats, mice|Mouse|Insect|Cricket|Fly, housefly|Bee, wasp, etc.|Frog|Rattle
Music|Bass guitar|Keyboard (musical)|Organ|Drum|Bass drum|Rattle (instrument)|Double bass
French horn|Church bell|Jingle (music)|Drum and bass|Pop music|Wind|Thunderstorm|Water|Rain
Waves, surf|Fire|Crackle|Car|Vehicle horn, car horn, honking|Car alarm|Air horn, truck horn|Train
Train horn|Fire engine, fire truck (siren)|Helicopter|Fixed-wing aircraft, airplane|Engine|Chainsaw
Idling|Accelerating, revving, vroom|Knock|Tap|Chopping (food)|Water tap, faucet|Toilet flush
Toothbrush|Vacuum cleaner|Typing|Computer keyboard|Alarm|Alarm clock|Siren|Whistle|Clock|Tick
Air conditioning|Jackhammer|Sawing|Drill|Gunshot, gunfire|Fireworks|Burst, pop|Chop|Wood|Glass
Shatter|Drip|Pour|Crushing|Dishes, pots, and pans|Jingle, tinkle|Hum|Creak|Clicking
Inside, small room|Inside, public space""".replace("\n", "|").split("|")
"""Names of AudioSet."""

TARGETS = [NamedClass(f"/m/{place:04}", name) for place, name in enumerate(NAMES)]

ESC50 = {
    **{"airplane": "Fixed-wing aircraft, airplane", "breathing": "Breathing"},
    **{"brushing_teeth": "Toothbrush", "can_opening": None, "cat": "Cat", "chainsaw": "Chainsaw"},
    **{"car_horn": "Vehicle horn, car horn, honking", "chirping_birds": "Chirp, tweet"},
    **{"church_bells": "Church bell", "clapping": "Clapping", "clock_alarm": "Alarm clock"},
    **{"clock_tick": "Tick", "coughing": "Cough", "cow": "Cattle, bovinae"},
    **{"crackling_fire": "Fire", "crickets": "Cricket", "crow": "Crow"},
    **{"crying_baby": "Baby cry, infant cry", "dog": "Dog", "door_wood_creaks": "Creak"},
    **{"door_wood_knock": "Knock", "drinking_sipping": None, "engine": "Engine"},
    **{"fireworks": "Fireworks", "footsteps": "Walk, footsteps", "frog": "Frog"},
    **{"glass_breaking": "Shatter", "hand_saw": "Sawing", "helicopter": "Helicopter"},
    **{"hen": "Chicken, rooster", "insects": "Insect", "keyboard_typing": "Typing"},
    **{"laughing": "Laughter", "mouse_click": None, "pig": "Pig", "pouring_water": "Pour"},
    **{"rain": "Rain", "rooster": "Crowing, cock-a-doodle-doo", "sea_waves": "Waves, surf"},
    **{"sheep": "Sheep", "siren": "Siren", "sneezing": "Sneeze", "snoring": "Snoring"},
    **{"thunderstorm": "Thunderstorm", "toilet_flush": "Toilet flush", "train": "Train"},
    **{"vacuum_cleaner": "Vacuum cleaner", "washing_machine": None, "water_drops": "Drip"},
    "wind": "Wind",
}

URBAN_SOUND = {
    **{"air_conditioner": "Air conditioning", "car_horn": "Vehicle horn, car horn, honking"},
    **{"children_playing": "Children playing", "dog_bark": "Bark", "drilling": "Drill"},
    **{"engine_idling": "Idling", "gun_shot": "Gunshot, gunfire", "jackhammer": "Jackhammer"},
    **{"siren": "Siren", "street_music": None},
}


def match(*names: str | NamedClass, targets: list[NamedClass] = TARGETS) -> list[NameMatch]:
    wanted = [n if isinstance(n, NamedClass) else NamedClass(f"own {n}", n) for n in names]
    return list(match_classes(wanted, targets))


def told(*names: str | NamedClass) -> list[str | None]:
    return [None if m.target is None else NAMES[m.target] for m in match(*names)]


def suggested(name: str | NamedClass) -> list[str]:
    found = match(name)[0]
    assert found.target is None
    return [NAMES[place] for place in found.suggestions]


@pytest.mark.parametrize("dataset", [ESC50, URBAN_SOUND], ids=["ESC-50", "UrbanSound8K"])
def test_classes_of_known_datasets(dataset: dict[str, str | None]) -> None:
    assert len(dataset) in (50, 10)
    assert dict(zip(dataset, told(*dataset), strict=True)) == dataset


@pytest.mark.parametrize(
    ("name", "target", "how"),
    [
        ("Dog", "Dog", "name"),
        ("dogs", "Dog", "name"),  # though "Canidae, dogs, wolves" has that part
        ("Barking", "Bark", "name"),
        ("dog bark", "Bark", "synonym"),
        ("bark dog", "Bark", "synonym"),
        ("DogBark", "Bark", "synonym"),
        ("Domestic_animals_and_pets", "Domestic animals, pets", "name"),
        ("Accelerating_and_revving_and_vrooming", "Accelerating, revving, vroom", "name"),
        ("Dishes_and_pots_and_pans", "Dishes, pots, and pans", "name"),
        ("alarm-clock", "Alarm clock", "name"),
        ("clock alarm", "Alarm clock", "name"),
        ("chain saw", "Chainsaw", "name"),
        ("snore", "Snoring", "name"),
        ("whimper_dog", "Whimper (dog)", "name"),
        ("whimper", "Whimper", "name"),
        ("Honking", "Vehicle horn, car horn, honking", "part of a name"),
        ("infant cry", "Baby cry, infant cry", "part of a name"),
        ("crying_baby", "Baby cry, infant cry", "part of a name"),
        ("Footstep", "Walk, footsteps", "part of a name"),
        ("small room", "Inside, small room", "part of a name"),
        ("bass drum", "Bass drum", "name"),
        ("drum & bass", "Drum and bass", "name"),
        ("Animal/Dog/Bark", "Bark", "path"),
        ("animal > dog > bark", "Bark", "path"),
        ("dog.bark", "Bark", "path"),
        ("Animal - Dog", "Dog", "path"),
        ("recordings/rain", "Rain", "path"),
        ("toilet/flush", "Toilet flush", "path"),
        ("water/tap", "Water tap, faucet", "path"),
        ("Animal/mouse", "Mouse", "path"),
        ("hen", "Chicken, rooster", "synonym"),
    ],
)
def test_names_that_meet(name: str, target: str, how: str) -> None:
    (found,) = match(name)
    assert found.target is not None
    assert (NAMES[found.target], found.how, found.suggestions) == (target, how, ())


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("mouse_click", ["Clicking"]),
        ("mouse", ["Mouse"]),
        ("Computer/Mouse", ["Mouse"]),
        ("crane", []),
        ("bat", []),
        ("Bass", ["Bass guitar", "Double bass", "Bass drum"]),
        ("organ", ["Organ"]),
        ("Horn", ["Vehicle horn, car horn, honking", "Air horn, truck horn", "Train horn"]),
        ("honk", ["Honk", "Vehicle horn, car horn, honking"]),
        ("crush", ["Crushing"]),
        ("fly", ["Fly, housefly"]),
        ("flying", []),
        ("cricket", ["Cricket"]),
        ("keyboard", ["Computer keyboard", "Keyboard (musical)"]),
        ("tap", ["Tap", "Water tap, faucet"]),
        ("pop", ["Burst, pop", "Pop music"]),
        ("jingle", ["Jingle, tinkle", "Jingle (music)"]),
        ("chopping", ["Chopping (food)", "Chop"]),
        ("fire truck", ["Fire engine, fire truck (siren)"]),
        ("training", []),
        ("winding", []),
        ("caring", []),
        ("woods", []),
        ("whistles", ["Whistle", "Whistling"]),
        ("Inside", ["Inside, small room", "Inside, public space"]),  # a part of two names
        ("Chicken, rooster, duck", ["Chicken, rooster"]),
        ("cough/sneeze", ["Sneeze", "Cough"]),  # two classes, no path
        ("Music/Speech", ["Speech", "Music"]),
        ("car/alarm", ["Car alarm", "Alarm"]),
        ("street music", ["Music"]),
        ("helicoptr", ["Helicopter"]),
        ("rain on a roof", ["Rain"]),
        ("unknown", []),
        ("", []),
        ("---", []),
    ],
)
def test_what_is_unsure_is_asked(name: str, suggestions: list[str]) -> None:
    assert suggested(name) == suggestions


def test_identifiers_come_before_names_and_deny_them() -> None:
    dog, cat = TARGETS[NAMES.index("Dog")], TARGETS[NAMES.index("Cat")]
    assert match(NamedClass(dog.class_id, "Hund"))[0].how == "id"
    assert match(dog.class_id)[0].how == "id"  # a class that has only an identifier
    assert suggested(NamedClass("/m/9999", "Dog")) == ["Dog"]
    assert told(NamedClass(dog.class_id, "Cat"), NamedClass(cat.class_id, "Dog")) == ["Dog", "Cat"]


def test_classes_above_tell_what_a_word_means() -> None:
    def under(parent: str, name: str) -> NamedClass:
        return NamedClass("own", name, (parent,))

    assert told(under("Rodents", "mouse"), under("Musical instruments", "organ")) == [
        "Mouse",
        "Organ",
    ]
    assert told(under("Music", "pop"), under("Traffic", "horn")) == [
        "Pop music",
        "Vehicle horn, car horn, honking",
    ]
    assert suggested(under("Computer", "Mouse")) == ["Mouse"]
    assert told("Mouse") == ["Mouse"]  # spelt as AudioSet spells it, and nothing speaks against it


def test_a_networks_own_words_are_not_audiosets() -> None:
    """A network that is asked in words for "Mouse" means what the dataset means."""
    wanted = NamedClass("3", "Mouse", ("Computer",))
    assert match(wanted, targets=[NamedClass("", "Mouse")])[0].target == 0


def test_a_path_is_known_by_its_neighbours() -> None:
    assert told("Speech/Humming") == [None]
    assert told("Speech/Humming", "Speech/Cough") == ["Humming", "Cough"]
    targets = [NamedClass("", "Speech"), NamedClass("", "Humming", ("Speech",))]
    assert match("Speech/Humming", targets=targets)[0].target == 1


def test_of_two_classes_for_one_target_the_better_has_it() -> None:
    assert told("Bark", "dog_bark") == ["Bark", None]
    assert told("dog_bark", "barks") == [None, "Bark"]
    assert told("Bark", "bark") == ["Bark", None]
    assert match("Bark", "bark")[1].suggestions == (NAMES.index("Bark"),)


def test_two_classes_that_match_equally_well_are_both_asked() -> None:
    assert told("laughing", "laugh") == [None, None]
    assert told("Dog", NamedClass("another", "Dog")) == [None, None]


def test_synonyms_hold_in_both_directions() -> None:
    targets = [NamedClass("", name) for name in ("sea_waves", "dog_bark", "hen")]
    names = ("Waves, surf", "barking dog", "Chicken, rooster", "Bark")
    assert [m.target for m in match(*names[:3], targets=targets)] == [0, 1, 2]
    assert match("Bark", targets=targets)[0].how == "synonym"


@pytest.mark.parametrize(
    "spell",
    [
        lambda name: name,
        lambda name: name.replace(", and ", "_and_").replace(", ", "_and_").replace(" ", "_"),
        lambda name: re.sub("[()]", "", name).replace(", ", " & "),
        str.upper,
        str.lower,
        lambda name: "-".join(re.findall("[a-z]+", name.lower())),
    ],
    ids=["AudioSet", "FSD50K", "no brackets", "upper", "lower", "kebab"],
)
def test_every_name_is_itself_in_any_spelling_or_asked(spell) -> None:  # type: ignore[no-untyped-def]
    for name, found in zip(NAMES, match(*map(spell, NAMES)), strict=True):
        is_asked = found.target is None and spell(name) != name
        assert NAMES[found.suggestions[0] if is_asked else found.target or 0] == name
        homonym = read_synonyms().get(NameForms(name).plain[0], ())
        assert not is_asked or not homonym[0].is_sure


words = st.sampled_from(sorted({word for name in NAMES for word in NameForms(name).words}))
names = st.one_of(
    st.sampled_from(NAMES), st.lists(words, min_size=1, max_size=3).map(" ".join), st.text()
)


@given(st.lists(names, max_size=6), st.lists(names, max_size=8, unique=True), st.randoms())
def test_order_changes_nothing(wanted: list[str], others: list[str], random) -> None:  # type: ignore[no-untyped-def]
    def answers(asked: list[NamedClass], targets: list[NamedClass]) -> dict[str, object]:
        found = zip(asked, match_classes(asked, targets), strict=True)
        return {
            each.class_id: (m.how, None if m.target is None else targets[m.target].name)
            for each, m in found
        }

    asked = [NamedClass(f"own {place}", name) for place, name in enumerate(wanted)]
    targets = [NamedClass(f"their {place}", name) for place, name in enumerate(others)]
    shuffled, turned = list(asked), list(targets)
    random.shuffle(shuffled)
    random.shuffle(turned)
    assert answers(asked, targets) == answers(shuffled, turned)


@given(st.lists(names, min_size=1, max_size=8, unique=True))
def test_a_name_matches_itself_and_a_target_matches_once(others: list[str]) -> None:
    targets = [NamedClass(f"their {place}", name) for place, name in enumerate(others)]
    found = match_classes([NamedClass(f"own {name}", name) for name in others], targets)
    assert [m.target for m in found] == list(range(len(others)))
    assert all(m.suggestions == () for m in found)


def test_the_table_is_in_order() -> None:
    rows = read_synonyms()
    assert len({row.means for each in rows.values() for row in each}) > 100
    for form, each in rows.items():
        assert len({row.is_sure for row in each}) == 1, form
        assert not each[0].is_sure or each[0].means, form
        assert not each[0].is_sure or len({row.means for row in each}) == 1, form


def test_a_name_of_thousands_of_blanks_is_a_name() -> None:
    """A regular expression took minutes over them."""
    assert _path("rain" + "\t" * 30_000 + "> heavy") == ["rain", "heavy"]
