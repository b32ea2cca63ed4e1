"""Weights come into the cache whole, by their hash, or not at all."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from earmark.errors import EarmarkError
from earmark.models.pretrained import (
    CACHE_VARIABLE,
    PublishedFile,
    add_teacher,
    get_teacher,
    is_catalogued,
    kept_teachers,
    kept_weights,
    known_teacher,
    recognised,
    teachers_folder,
)
from made_up_yamnet import publish, published
from meters import CountingMeter

WEIGHTS = bytes(range(256)) * 2_000
"""What the cache holds is told by hash alone, so any bytes will do."""

NONSENSE = b"no answer of HTTP\r\n\r\n"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "mine" / "yamnet.h5"
    path.parent.mkdir()
    path.write_bytes(WEIGHTS)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> Path:
    """An empty cache, and a catalogue in which ``weights`` is published."""
    publish(monkeypatch, tmp_path / "cache", published(weights))
    return tmp_path / "cache"


def files_in(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_file_is_kept_by_its_hash_whatever_it_is_called(cache: Path, weights: Path) -> None:
    renamed = weights.rename(weights.with_name("download (1)"))
    kept = add_teacher(renamed)
    assert (kept.teacher.name, kept.path.parent) == ("yamnet", cache)
    assert kept.path.read_bytes() == WEIGHTS
    assert files_in(cache) == [f"yamnet-{kept.file.sha256[:16]}.h5"]
    assert [one.path for one in kept_teachers()] == [kept.path]
    assert kept_weights("yamnet") == kept
    assert add_teacher(renamed) == kept, "twice is as good as once"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda content: content[:-1], "511,999 bytes"),
        (lambda content: b"\xff" + content[1:], "512,000 bytes"),
        (lambda _: b"", "0 bytes"),
    ],
    ids=["truncated", "changed", "empty"],
)
def test_other_content_is_refused_with_what_came_and_what_is_known(
    cache: Path, weights: Path, change, told: str
) -> None:
    weights.write_bytes(change(WEIGHTS))
    with pytest.raises(EarmarkError) as error:
        add_teacher(weights)
    for words in (str(weights), told, "SHA-256", "yamnet (512,000 bytes", "--teacher", "Cut off"):
        assert words in str(error.value)
    assert files_in(cache) == []


def test_a_kept_file_is_checked_whenever_it_is_opened(cache: Path, weights: Path) -> None:
    kept = add_teacher(weights)
    kept.path.write_bytes(WEIGHTS[:-9])
    with pytest.raises(EarmarkError, match=r"yamnet-\w+\.h5: damaged .* `earmark teachers get yam"):
        kept_weights("yamnet")
    add_teacher(weights)
    assert kept_weights("yamnet").path.read_bytes() == WEIGHTS


def test_without_weights_the_ways_to_get_them_are_told(cache: Path) -> None:
    assert kept_teachers() == []
    with pytest.raises(EarmarkError) as error:
        kept_weights("yamnet")
    for words in ("earmark teachers get yamnet", "https://example.org/yamnet.h5",
                  "earmark teachers add FILE", "--teacher FILE"):  # fmt: skip
        assert words in str(error.value)


def test_the_best_of_several_files_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path
) -> None:
    other = weights.with_name("yamnet.tflite")
    other.write_bytes(WEIGHTS + b"int8")
    publish(monkeypatch, tmp_path / "cache", published(weights), published(other))
    add_teacher(other)
    assert kept_weights("yamnet").path.suffix == ".tflite"
    add_teacher(weights)
    assert kept_weights("yamnet").path.suffix == ".h5"
    assert [one.path.suffix for one in kept_teachers()] == [".h5", ".tflite"]


def test_a_teacher_that_nobody_knows_is_refused_with_the_nearest() -> None:
    assert known_teacher("yamnet").licence == "Apache-2.0"
    for use in (known_teacher, kept_weights, get_teacher):
        with pytest.raises(EarmarkError, match=r"no teacher is called 'yament'.*'yamnet'"):
            use("yament")


def test_a_file_is_recognised_by_content_and_keras_by_its_ending(
    cache: Path, weights: Path, tmp_path: Path
) -> None:
    found = recognised(weights)
    assert found is not None
    assert found[0].name == "yamnet"
    assert recognised(tmp_path) is None
    assert recognised(tmp_path / "gone") is None
    (tmp_path / "same size").write_bytes(WEIGHTS[::-1])
    assert recognised(tmp_path / "same size") is None
    plain = weights.rename(tmp_path / "weights.tflite")
    assert is_catalogued(str(plain))
    assert is_catalogued("yamnet")
    assert is_catalogued("anything.h5")
    assert not is_catalogued("anything.tflite")
    assert not is_catalogued(str(tmp_path / "same size"))


def test_the_cache_is_the_users_unless_another_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "elsewhere"))
    assert teachers_folder() == tmp_path / "elsewhere"
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert teachers_folder().parts[-2:] == ("earmark", "teachers")


class _Answers(http.server.BaseHTTPRequestHandler):
    """Serves what the test puts into ``content``, by path; other paths are not there."""

    content: dict[str, bytes]
    n_promised: int | None

    def do_GET(self) -> None:
        found = self.content.get(self.path)
        if found is None:
            self.send_error(404)
            return
        if found == NONSENSE:
            self.wfile.write(found)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.n_promised or len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def site() -> Iterator[tuple[str, type[_Answers]]]:
    """A site of this machine, and what it answers."""
    answers = type("Answers", (_Answers,), {"content": {}, "n_promised": None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def files(
    site: tuple[str, type[_Answers]], cache: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> list[PublishedFile]:
    """Two files that the site is said to have, the better first."""
    other = weights.with_name("yamnet.tflite")
    other.write_bytes(WEIGHTS + b"int8")
    files = [published(path, url=f"{site[0]}/{path.name}") for path in (weights, other)]
    publish(monkeypatch, cache, *files)
    return files


def test_a_download_is_kept_once(
    site: tuple[str, type[_Answers]], files: list[PublishedFile], cache: Path
) -> None:
    site[1].content["/yamnet.h5"] = WEIGHTS
    progress = CountingMeter()
    kept = get_teacher("yamnet", progress)
    assert kept.path.read_bytes() == WEIGHTS
    assert progress.jobs == [("download yamnet", len(WEIGHTS), "bytes")]
    assert progress.n_done == len(WEIGHTS)
    site[1].content.clear()
    assert get_teacher("yamnet") == kept, "what is kept is not fetched again"
    assert files_in(cache) == [kept.path.name]
    kept.path.write_bytes(b"damaged")
    site[1].content["/yamnet.h5"] = WEIGHTS
    assert get_teacher("yamnet").path.read_bytes() == WEIGHTS


def test_where_the_best_cannot_be_had_the_next_is(
    site: tuple[str, type[_Answers]], files: list[PublishedFile], cache: Path
) -> None:
    site[1].content |= {"/yamnet.h5": b"<html>", "/yamnet.tflite": WEIGHTS + b"int8"}
    assert get_teacher("yamnet").file == files[1]
    assert [Path(name).suffix for name in files_in(cache)] == [".tflite"]


@pytest.mark.parametrize(
    ("content", "n_promised", "told"),
    [
        (WEIGHTS[::-1], None, "what came has SHA-256"),
        (WEIGHTS[:1_000], len(WEIGHTS), "yamnet.h5: "),
        (NONSENSE, None, "no answer of HTTP"),
        (None, None, "yamnet.h5: Not Found"),
    ],
    ids=["another hash", "broken off", "no HTTP", "not there"],
)
def test_a_download_that_fails_leaves_nothing_and_tells_why_and_the_other_ways(
    site: tuple[str, type[_Answers]],
    files: list[PublishedFile],
    cache: Path,
    content: bytes | None,
    n_promised: int | None,
    told: str,
) -> None:
    if content is not None:
        site[1].content["/yamnet.h5"] = content
    site[1].n_promised = n_promised
    with pytest.raises(EarmarkError) as error:
        get_teacher("yamnet")
    others = (files[0].url, f"{files[1].url}: Not Found", "earmark teachers add")
    for words in ("yamnet could not be downloaded", told, *others):
        assert words in str(error.value)
    assert files_in(cache) == []
