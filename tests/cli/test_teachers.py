"""The verbs of pretrained teachers: what is printed, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from typer.testing import Result

from called_verbs import earmark, refusal
from earmark.config import find_recipe, kept_recipe
from made_up_yamnet import install, publish, published
from tone_folders import ToneFolder, tone_folder


def flat(done: Result) -> str:
    """What was printed, lines joined."""
    return " ".join(done.stdout.split())


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is published as YAMNet's weights; the cache is empty."""
    path = tmp_path / "yamnet.h5"
    path.write_bytes(b"weights" * 100)
    publish(monkeypatch, tmp_path / "cache", published(path, "float", url=path.as_uri()))
    return path


def test_teachers_are_listed_with_where_they_are(weights: Path, tmp_path: Path) -> None:
    told = earmark("teachers").stdout
    assert "yamnet: made-up sounds (nobody's)\n  not on this machine\n" in told
    assert told.endswith("next: earmark teachers get yamnet\n")
    earmark("teachers", "add", weights)
    told = earmark("teachers").stdout
    assert f"float: {tmp_path / 'cache'}" in " ".join(told.split())
    assert told.endswith("next: earmark find SOUNDS LABELS\n")


def test_the_list_for_programs(weights: Path, tmp_path: Path) -> None:
    expected = {"folder": str(tmp_path / "cache"), "known": ["yamnet"], "here": {}, "next": None}
    assert json.loads(earmark("teachers", "--json").stdout) == expected
    kept = json.loads(earmark("teachers", "add", weights, "--json").stdout)
    assert (kept["teacher"], kept["kind"]) == ("yamnet", "float")
    assert Path(kept["wrote"]).read_bytes() == weights.read_bytes()
    here = json.loads(earmark("teachers", "--json").stdout)["here"]
    assert here == {"yamnet": kept["wrote"]}


def test_a_file_is_added_or_refused(weights: Path, tmp_path: Path) -> None:
    told = earmark("teachers", "add", weights).stdout
    assert "teacher: yamnet" in told
    assert "next: earmark find SOUNDS LABELS" in told
    weights.write_bytes(b"other")
    assert "not weights that are known here: 5 bytes" in refusal("teachers", "add", weights)
    assert "no such file" in refusal("teachers", "add", tmp_path / "gone.h5")


def test_weights_are_fetched_from_their_address(weights: Path, tmp_path: Path) -> None:
    told = json.loads(earmark("teachers", "get", "yamnet", "--json").stdout)
    assert Path(told["wrote"]).parent == tmp_path / "cache"
    weights.unlink()
    earmark("teachers", "get", "yamnet")  # kept: nothing is fetched
    Path(told["wrote"]).unlink()
    assert "yamnet could not be downloaded" in refusal("teachers", "get", "yamnet")
    assert "no teacher is called 'yament'" in refusal("teachers", "get", "yament")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.fixture(scope="module", autouse=True)
def _yamnet(knowing_yamnet: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch, tmp_path_factory.mktemp("cache"), knowing_yamnet)
        yield


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> ToneFolder:
    return tone_folder(tmp_path_factory.mktemp("tones"), 210)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipe of find with three folds."""
    path = tmp_path_factory.mktemp("recipe") / "quick.toml"
    text = (Path(find_recipe.__code__.co_filename).parent / "recipes" / "find.toml").read_text()
    path.write_text(text.replace("n_folds = 10", "n_folds = 3"))
    return path


@pytest.fixture(scope="module")
def work(
    tones: ToneFolder, recipe: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Result]:
    """A search that stopped before the page."""
    work = tmp_path_factory.mktemp("work")
    return work, earmark(*command(tones, work, recipe), "--no-review")


def command(tones: ToneFolder, work: Path, recipe: Path) -> tuple[object, ...]:
    said = ("--work", work, "--recipe", recipe, "--workers", 1)
    return ("find", tones.sounds, tones.labels, *said)


def test_find_says_what_it_found_and_what_is_next(work: tuple[Path, Result]) -> None:
    root, done = work
    for words in ("210 clips, 3 classes;", "Teacher: yamnet,", "AUC 0.", " of them right ("):
        assert words in flat(done)
    assert done.stdout.endswith(f"wrote: {root}\nnext: earmark review {root}\n")
    for line in done.stdout.splitlines():
        assert len(line) <= 80 or str(root) in line, line
    assert kept_recipe(root).way is not None


def test_find_for_programs(work: tuple[Path, Result], tones: ToneFolder, recipe: Path) -> None:
    root, _ = work
    told = json.loads(earmark(*command(tones, root, recipe), "--json").stdout)
    assert (told["clips"], told["teacher"]) == (210, "yamnet")
    assert [*told["tried"]] == ["zero-shot", "probe", "blend"]
    assert told["way"] == max(told["tried"], key=lambda way: told["tried"][way]["hits"])
    assert told["flags"] > 10
    assert told["is_weak"] is False
    assert 0.2 < told["expected_right_of_first"] <= 1
    assert told["next"] == f"earmark review {root}"
    assert Path(told["scores"]).is_dir()


def test_the_page_opens_at_the_end(
    work: tuple[Path, Result], tones: ToneFolder, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = work
    served = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: served.append(sockets))
    done = earmark(*command(tones, root, recipe), "--no-open", "--port", 0)
    assert len(served) == 1
    assert "addresses: " in done.stdout
    assert f"next: earmark answers {root}" in done.stdout


def test_fewer_flags_may_be_asked_for(
    work: tuple[Path, Result], tones: ToneFolder, recipe: Path
) -> None:
    root, _ = work
    told = json.loads(earmark(*command(tones, root, recipe), "--n-flags", 5, "--json").stdout)
    assert told["flags"] == 5


def test_a_weak_teacher_opens_no_page(
    tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the page was opened")

    monkeypatch.setattr(uvicorn.Server, "run", refuse)
    tones = tone_folder(tmp_path, 210, is_random=True)
    done = earmark(*command(tones, tmp_path / "w", recipe), "--no-open", "--port", 0)
    assert "This teacher is too weak to spend time on its flags." in flat(done)
    assert "What would help:" in flat(done)
    assert done.stdout.endswith(f"next: earmark report {tmp_path / 'w'}\n")
    told = json.loads(earmark(*command(tones, tmp_path / "w", recipe), "--json").stdout)
    assert told["is_weak"] is True


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--way", "best"), "--way is zero-shot, probe, blend or fine-tuned, got 'best'"),
        (("--input", "mp3"), "--input is waveforms or patches, got 'mp3'"),
        (("--column", "nonsense"), "--column is ROLE=NAME"),
        (("--recipe", "finf"), "no recipe is called 'finf'; did you mean 'find'"),
        (("--teacher", "gone.onnx"), "gone.onnx: no such file"),
        (("--sample-rate", "8000"), "what YAMNet takes and gives is known; leave sample_rate_hz"),
        (
            ("--recipe", "scenes", "--teacher", "yamnet"),
            "recipe 'scenes' trains a teacher from scratch",
        ),
        (("--class-map", "gone.csv"), "gone.csv"),
    ],
)
def test_what_a_user_gets_wrong_is_told(
    tones: ToneFolder, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    search = ("find", tones.sounds, tones.labels, "--work", tmp_path / "w", "--workers", 1)
    assert told in refusal(*search, *options)


def test_sounds_or_labels_that_are_not_there_are_named(tones: ToneFolder, tmp_path: Path) -> None:
    assert "gone" in refusal("find", tmp_path / "gone", tones.labels, "--work", tmp_path / "w")
    assert "gone.csv" in refusal(
        "find", tones.sounds, tmp_path / "gone.csv", "--work", tmp_path / "w"
    )
    assert not (tmp_path / "w" / "labels.parquet").exists()
