from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import polars as pl
import pytest
import soundfile
from moto.server import ThreadedMotoServer

from earmark.audio.decode import UnreadableAudio, read_clip
from earmark.datasets.extraction import extract_frames
from earmark.datasets.quarantine import read_quarantine
from earmark.datasets.workspace import Workspace
from earmark.errors import EarmarkError
from earmark.runs.engine import LocalEngine
from earmark.runs.remote_files import local_copy, place_of
from noises import PARAMS, RATE, content, make_workspace, write_noise

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
STORE = {**CREDENTIALS, "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of an object store, found by its environment as in real life."""
    for name, value in {**STORE, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3", skip_instance_cache=True).mkdirs("s3://sounds", exist_ok=True)
    return "s3://sounds"


def upload(path: Path, url: str) -> None:
    fsspec.filesystem("s3").put_file(str(path), url)


def test_reads_a_segment_of_a_file_in_an_object_store(bucket: str, tmp_path: Path) -> None:
    sound = write_noise(tmp_path / "a.wav", 2.0, seed=0)
    upload(tmp_path / "a.wav", f"{bucket}/folder/a b.wav")
    read = read_clip(f"{bucket}/folder/a b.wav", RATE, 0.5, 1.0)
    assert abs(read - sound[RATE // 2 : RATE]).max() < 1e-4


def test_features_of_urls_equal_those_of_paths(bucket: str, tmp_path: Path) -> None:
    for i in range(3):
        write_noise(tmp_path / "sounds" / f"{i}.wav", 1.0 + i / 2, seed=i)
        upload(tmp_path / "sounds" / f"{i}.wav", f"{bucket}/{i}.wav")
    near = make_workspace(tmp_path / "near", [f"../sounds/{i}.wav" for i in range(3)])
    far = make_workspace(tmp_path / "far", [f"{bucket}/{i}.wav" for i in range(3)])
    extract_frames(near, PARAMS, engine=LocalEngine(1))
    extract_frames(far, PARAMS, engine=LocalEngine(1))
    shard = "shard-00000.npy"
    assert content(far.frames_folder)[shard] == content(near.frames_folder)[shard]


def test_a_file_that_is_not_in_the_store_is_quarantined_until_it_is(
    bucket: str, tmp_path: Path
) -> None:
    write_noise(tmp_path / "a.wav", 1.0, seed=0)
    upload(tmp_path / "a.wav", f"{bucket}/here.wav")
    workspace = make_workspace(tmp_path, [f"{bucket}/here.wav", f"{bucket}/late.wav"])
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 1
    quarantine = read_quarantine(workspace)
    assert quarantine["audio"].to_list() == [f"{bucket}/late.wav"]
    assert "no such file" in quarantine["reason"][0]
    upload(tmp_path / "a.wav", f"{bucket}/late.wav")
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 2


def test_an_hour_cut_into_clips_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []
    memory = fsspec.filesystem("memory")
    get_file = type(memory).get_file

    def counted(self: object, source: str, *arguments: object, **options: object) -> None:
        fetched.append(source)
        get_file(self, source, *arguments, **options)

    monkeypatch.setattr(type(memory), "get_file", counted)
    write_noise(tmp_path / "long.wav", 4.0, seed=0)
    memory.put_file(str(tmp_path / "long.wav"), "/long.wav")
    workspace = make_workspace(tmp_path, ["memory://long.wav"] * 3)
    spans = pl.DataFrame({"start_seconds": [0.0, 1.0, 2.0], "end_seconds": [1.0, 2.0, 3.0]})
    clips = workspace.clips.drop(spans.columns).hstack(spans).select(workspace.clips.columns)
    clips.write_parquet(tmp_path / "clips.parquet")
    store = extract_frames(Workspace(tmp_path), PARAMS, engine=LocalEngine(1))
    assert len(store.clip_ids) == 3
    assert len(fetched) == 1


def test_troubles_are_told_with_the_url(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/text.wav", b"no sound")
    with pytest.raises(UnreadableAudio, match=r"^memory://text\.wav: not a sound file"):
        read_clip("memory://text.wav", RATE)
    with pytest.raises(UnreadableAudio, match=r"^memory://gone\.wav: "):
        read_clip("memory://gone.wav", RATE)
    with pytest.raises(EarmarkError, match=r"odd://a\.wav cannot be fetched.*run the same command"):
        read_clip("odd://a.wav", RATE)


def test_the_copy_is_there_for_the_while_only(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/a.bin", b"bytes")
    with local_copy("memory://a.bin") as path:
        assert path.read_bytes() == b"bytes"
    assert not path.exists()
    (tmp_path / "b.bin").touch()
    with local_copy(tmp_path / "b.bin") as path:
        assert path == tmp_path / "b.bin"
    assert path.exists()


def test_file_urls_are_paths(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", [0.0] * 100, RATE)
    place = place_of(Path("elsewhere"), f"file://{tmp_path}/a.wav")
    assert place == tmp_path / "a.wav"
    assert len(read_clip(place, RATE)) == 100
