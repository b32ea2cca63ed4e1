from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import polars as pl
import pytest
from moto.server import ThreadedMotoServer

from earmark.audio import read_clip
from earmark.audio.decode import UnreadableAudio
from earmark.compute import LocalEngine
from earmark.datasets import Workspace, extract_frames, read_quarantine
from earmark.storage import AudioAccess, audio_access, local_copy
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
    near = make_workspace(
        tmp_path / "near", [f"../sounds/{i}.wav" for i in range(3)], folders=[tmp_path / "sounds"]
    )
    far = make_workspace(tmp_path / "far", [f"{bucket}/{i}.wav" for i in range(3)], is_remote=True)
    extract_frames(near, PARAMS, engine=LocalEngine(1))
    extract_frames(far, PARAMS, engine=LocalEngine(1))
    shard = "shard-00000.npy"
    assert content(far.frames_folder)[shard] == content(near.frames_folder)[shard]


def test_a_file_that_is_not_in_the_store_is_quarantined_until_it_is(
    bucket: str, tmp_path: Path
) -> None:
    write_noise(tmp_path / "a.wav", 1.0, seed=0)
    upload(tmp_path / "a.wav", f"{bucket}/here.wav")
    workspace = make_workspace(
        tmp_path, [f"{bucket}/here.wav", f"{bucket}/late.wav"], is_remote=True
    )
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 1
    quarantine = read_quarantine(workspace)
    assert quarantine["audio"].to_list() == [f"{bucket}/late.wav"]
    assert "no such file" in quarantine["reason"][0]
    upload(tmp_path / "a.wav", f"{bucket}/late.wav")
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 2


def test_an_hour_cut_into_clips_is_fetched_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_noise(tmp_path / "long.wav", 4.0, seed=0)
    upload(tmp_path / "long.wav", f"{bucket}/long.wav")
    fetched, url_to_fs = [], fsspec.core.url_to_fs
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: fetched.append(url) or url_to_fs(url))
    workspace = make_workspace(tmp_path, [f"{bucket}/long.wav"] * 3, is_remote=True)
    spans = pl.DataFrame({"start_seconds": [0.0, 1.0, 2.0], "end_seconds": [1.0, 2.0, 3.0]})
    clips = workspace.clips.drop(spans.columns).hstack(spans).select(workspace.clips.columns)
    clips.write_parquet(tmp_path / "clips.parquet")
    store = extract_frames(Workspace(tmp_path), PARAMS, engine=LocalEngine(1))
    assert len(store.clip_ids) == 3
    assert len(fetched) == 1


def test_troubles_are_told_with_the_url(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_bytes(b"no sound")
    upload(tmp_path / "text.wav", f"{bucket}/text.wav")
    with pytest.raises(UnreadableAudio, match=r"^s3://sounds/text\.wav: not a sound file"):
        read_clip(f"{bucket}/text.wav", RATE)
    with pytest.raises(UnreadableAudio, match=r"^s3://sounds/gone\.wav: no such file"):
        read_clip(f"{bucket}/gone.wav", RATE)


def test_a_server_that_sends_without_end_is_not_listened_to(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_noise(tmp_path / "a.wav", 1.0, seed=0)
    upload(tmp_path / "a.wav", f"{bucket}/long.wav")
    monkeypatch.setattr(audio_access, "_MOST_FETCHED", 1_000)
    workspace = make_workspace(tmp_path, ["a.wav", f"{bucket}/long.wav"], is_remote=True)
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 1
    (reason,) = read_quarantine(workspace)["reason"]
    assert reason == "longer than 1,000 bytes, the most of a file"


def test_the_copy_is_there_for_the_while_only(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(b"bytes")
    upload(tmp_path / "b.bin", f"{bucket}/a.bin")
    with local_copy(f"{bucket}/a.bin") as path:
        assert path.read_bytes() == b"bytes"
    assert not path.exists()
    with local_copy(tmp_path / "b.bin") as path:
        assert path == tmp_path / "b.bin"
    assert path.exists()


def test_an_unreachable_url_is_quarantined_and_the_rest_go_on(tmp_path: Path) -> None:
    write_noise(tmp_path / "a.wav", 1.0, seed=0)
    urls = ["https://127.0.0.1:1/a.wav", "https://earmark.invalid/a.wav"]
    workspace = make_workspace(tmp_path, ["a.wav", *urls], is_remote=True)
    assert extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids.to_list() == ["clip0"]
    quarantine = read_quarantine(workspace)
    assert quarantine["audio"].to_list() == urls
    assert all("cannot be fetched" in reason for reason in quarantine["reason"])


REFUSED = (
    "http://127.0.0.1/a.wav",
    "file:///etc/passwd",
    "memory://a.wav",
    "reference://a.wav::file:///tmp/ref.json",
    "simplecache::s3://sounds/a.wav",
    "s3://sounds/a.zip::x",
    "zip://a.wav::https://example.org/a.zip",
    "local:///etc/passwd",
    "FILE:///etc/passwd",
    "odd://a.wav",
)


@pytest.mark.parametrize("url", REFUSED)
def test_other_schemes_and_chains_never_reach_fsspec(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: pytest.fail(f"{url} was opened"))
    expected = r"expected the path of a file, or an address of https://, s3://, gs:// without '::'"
    with pytest.raises(UnreadableAudio, match=expected):
        AudioAccess(tmp_path, is_remote=True).place(url)
    with pytest.raises(UnreadableAudio, match=expected):
        read_clip(url, RATE)


def test_nothing_is_fetched_that_was_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: pytest.fail(f"{url} was opened"))
    write_noise(tmp_path / "a.wav", 1.0, seed=0)
    workspace = make_workspace(tmp_path, ["a.wav", "https://example.org/a.wav", "s3://b/a.wav"])
    assert len(extract_frames(workspace, PARAMS, engine=LocalEngine(1)).clip_ids) == 1
    assert all("--remote" in reason for reason in read_quarantine(workspace)["reason"])


def test_files_lie_below_the_folders_that_the_user_named(tmp_path: Path) -> None:
    for name in ("base/a.wav", "named/a.wav", "private/a.wav", "base-2/a.wav"):
        write_noise(tmp_path / name, 0.1, seed=0)
    base = tmp_path / "base"
    (base / "link.wav").symlink_to("../private/a.wav")
    (base / "links").symlink_to("../private")
    (base / "inner.wav").symlink_to("a.wav")
    (tmp_path / "alias").symlink_to("base")
    access = AudioAccess(base, (tmp_path / "named",))
    fine = ("a.wav", "inner.wav", "../named/a.wav", str(tmp_path / "named/a.wav"), "../alias/a.wav")
    for audio in fine:
        assert len(read_clip(access.place(audio), RATE)) == RATE // 10
    outside = ("../private/a.wav", "link.wav", "links/a.wav", "links/../private/a.wav",
               "../base-2/a.wav", str(tmp_path / "private/a.wav"), "..", "/etc/passwd")  # fmt: skip
    for audio in outside:
        with pytest.raises(UnreadableAudio, match=r"lies outside .*import it with --allow /"):
            access.place(audio)
    assert AudioAccess(base, (Path("/"),)).place("link.wav") == base / "link.wav"
