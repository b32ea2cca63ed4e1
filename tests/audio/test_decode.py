from __future__ import annotations

import shutil
import sys
import tracemalloc
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from earmark.audio import decode, read_clip, sound_header, stream_clip
from earmark.audio.decode import UnreadableAudio
from earmark.errors import EarmarkError

RATE = 16_000


def tone(rate: int = RATE, hz: float = 440.0, seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def loudest_hz(waveform: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(waveform * np.hanning(len(waveform))))
    return float(spectrum.argmax() * RATE / len(waveform))


def write_by_ffmpeg(path: Path, codec: str, waveform: np.ndarray, rate: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate, layout="mono")
        frame = av.AudioFrame.from_ndarray(waveform[None], format="fltp", layout="mono")
        # With times given, the file says how many samples of priming to drop.
        frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), 0
        fifo = av.AudioFifo()
        to_codec = av.AudioResampler(format=stream.format, layout="mono", rate=rate)
        for ready in to_codec.resample(frame):
            fifo.write(ready)
        for block in fifo.read_many(stream.frame_size or 960, partial=True):
            container.mux(stream.encode(block))
        container.mux(stream.encode(None))


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"),
    [
        ("eight.wav", "PCM_U8", 1 / 64),
        ("sixteen.wav", "PCM_16", 1e-4),
        ("twentyfour.wav", "PCM_24", 1e-6),
        ("float.wav", "FLOAT", 0),
        ("double.wav", "DOUBLE", 1e-7),
        ("lossless.flac", "PCM_16", 1e-4),
        ('it\'s "odd": 100 % löud\n?.wav', "PCM_16", 1e-4),
    ],
)
def test_reads_lossless_formats_exactly(tmp_path, name, subtype, tolerance):
    soundfile.write(tmp_path / name, tone(), RATE, subtype=subtype)
    waveform = read_clip(tmp_path / name, RATE)
    assert waveform.dtype == np.float32
    np.testing.assert_allclose(waveform, tone(), atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    ("name", "format", "subtype"),
    [("a.ogg", "OGG", "VORBIS"), ("a.opus", "OGG", "OPUS"), ("a.mp3", "MP3", "MPEG_LAYER_III")],
)
def test_reads_lossy_formats(tmp_path, name, format, subtype):
    soundfile.write(tmp_path / name, tone(), RATE, format=format, subtype=subtype)
    waveform = read_clip(tmp_path / name, RATE)
    assert abs(len(waveform) - 8_000) <= 1_500
    assert np.corrcoef(waveform[1000:7000], tone()[1000:7000])[0, 1] > 0.98


@pytest.mark.parametrize("name", ["mislabelled.wav", "mislabelled.raw", "no_ending"])
def test_goes_by_what_the_file_holds_and_not_by_its_name(tmp_path, name):
    soundfile.write(tmp_path / "a.mp3", tone(), RATE)
    shutil.copy(tmp_path / "a.mp3", tmp_path / name)
    assert loudest_hz(read_clip(tmp_path / name, RATE)) == pytest.approx(440, abs=4)


@pytest.mark.parametrize(
    ("name", "codec"), [("a.m4a", "aac"), ("a.webm", "libopus"), ("with: colon.mkv", "libopus")]
)
def test_reads_by_ffmpeg_what_soundfile_does_not_know(tmp_path, name, codec):
    write_by_ffmpeg(tmp_path / name, codec, tone(48_000), 48_000)
    with pytest.raises(soundfile.LibsndfileError):
        soundfile.SoundFile(tmp_path / name)
    waveform = read_clip(tmp_path / name, RATE)
    assert abs(len(waveform) - 8_000) <= 500
    assert np.corrcoef(waveform[1000:7000], tone()[1000:7000])[0, 1] > 0.98


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000, 192_000])
def test_resamples_from_any_rate(tmp_path, rate):
    soundfile.write(tmp_path / "a.wav", tone(rate), rate, subtype="FLOAT")
    waveform = read_clip(tmp_path / "a.wav", RATE)
    assert abs(len(waveform) - 8_000) <= 1
    np.testing.assert_allclose(waveform[500:7500], tone()[500:7500], atol=2e-3)


def test_a_tone_above_half_the_rate_vanishes_and_does_not_fold_back(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(32_000, hz=10_000), 32_000, subtype="FLOAT")
    waveform = read_clip(tmp_path / "a.wav", RATE)
    assert np.abs(waveform[500:-500]).max() < 0.5 * 1e-4


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
def test_a_segment_is_the_same_stretch_of_the_whole(tmp_path, name):
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, 3 * RATE).astype(np.float32)
    soundfile.write(tmp_path / name, sound, RATE)
    whole = read_clip(tmp_path / name, RATE)
    segment = read_clip(tmp_path / name, RATE, 1.25, 2.5)
    np.testing.assert_allclose(segment, whole[20_000:40_000], atol=1e-4)


def test_a_segment_by_ffmpeg_begins_within_a_millisecond(tmp_path):
    # A click of 10 ms at 2.6 s; opus counts time in milliseconds inside webm.
    sound = np.zeros(4 * 48_000, np.float32)
    sound[124_800:125_280] = tone(48_000, 2_000, 0.01)
    write_by_ffmpeg(tmp_path / "a.webm", "libopus", sound, 48_000)
    segment = read_clip(tmp_path / "a.webm", RATE, 2.5, 3.0)
    assert len(segment) == 8_000
    energy = np.cumsum(segment**2)
    assert np.searchsorted(energy, energy[-1] / 2) / RATE == pytest.approx(0.105, abs=0.003)


def test_blocks_join_without_a_seam(tmp_path, monkeypatch):
    sound = np.random.default_rng(0).uniform(-0.5, 0.5, (44_100, 2)).astype(np.float32)
    soundfile.write(tmp_path / "a.flac", sound, 44_100)
    at_once = read_clip(tmp_path / "a.flac", RATE)
    monkeypatch.setattr(decode, "BLOCK_SAMPLES", 4_321)
    np.testing.assert_allclose(read_clip(tmp_path / "a.flac", RATE), at_once, atol=1e-7)


def write_bad_files(folder: Path) -> dict[str, str]:
    """Write unusable files and return a part of each one's reason."""
    (folder / "empty.wav").touch()
    (folder / "text.wav").write_text("this is not sound\n")
    (folder / "folder.wav").mkdir()
    (folder / "loop.wav").symlink_to(folder / "loop.wav")
    soundfile.write(folder / "no_samples.wav", np.zeros(0, np.float32), RATE)
    for name, value in (("nan", np.nan), ("infinite", -np.inf), ("integers", 20_000.0)):
        sound = tone()
        sound[123] = value
        soundfile.write(folder / f"{name}.wav", sound, RATE, subtype="FLOAT")
    soundfile.write(folder / "whole.flac", tone(seconds=2.0), RATE)
    content = (folder / "whole.flac").read_bytes()
    (folder / "cut.flac").write_bytes(content[: len(content) // 2])
    (folder / "whole.flac").unlink()
    return {
        "empty.wav": "0 bytes",
        "text.wav": "not a sound file",
        "folder.wav": "folder",
        "loop.wav": "symbolic links",
        "no_samples.wav": "no samples",
        "nan.wav": "NaN",
        "infinite.wav": "infinite",
        "integers.wav": "20,000",
        "cut.flac": "damaged",
        "missing.wav": "no such file",
    }


def test_what_cannot_be_used_is_refused_with_a_reason(tmp_path):
    for name, part in write_bad_files(tmp_path).items():
        with pytest.raises(UnreadableAudio) as caught:
            read_clip(tmp_path / name, RATE)
        assert part in caught.value.reason
        assert str(caught.value).startswith(str(tmp_path / name))


def test_a_cut_wav_is_read_as_far_as_it_goes(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(content[: 44 + 2 * 3_000])
    assert len(read_clip(tmp_path / "a.wav", RATE)) == 3_000


def test_a_video_without_sound_is_refused(tmp_path):
    with av.open(str(tmp_path / "mute.mkv"), "w") as container:
        stream = container.add_stream("mjpeg", rate=1, options={"strict": "unofficial"})
        stream.width = stream.height = 16
        stream.pix_fmt = "yuvj420p"
        picture = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")
        container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    with pytest.raises(UnreadableAudio, match="no sound"):
        read_clip(tmp_path / "mute.mkv", RATE)


@pytest.mark.parametrize(("start", "end"), [(0.4, 0.2), (0.2, 0.2), (-1.0, 0.2), (np.nan, 1.0)])
def test_an_impossible_segment_is_refused(tmp_path, start, end):
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    with pytest.raises(UnreadableAudio, match="no stretch of time"):
        read_clip(tmp_path / "a.wav", RATE, start, end)


@pytest.mark.parametrize("name", ["a.wav", "a.webm"])
def test_a_segment_that_begins_after_the_end_is_refused(tmp_path, name):
    if name == "a.wav":
        soundfile.write(tmp_path / name, tone(), RATE)
    else:
        write_by_ffmpeg(tmp_path / name, "libopus", tone(48_000), 48_000)
    with pytest.raises(UnreadableAudio, match="no samples from 30 s to 40 s"):
        read_clip(tmp_path / name, RATE, 30.0, 40.0)


def test_a_missing_library_is_named_with_the_way_to_install_it(tmp_path, monkeypatch):
    soundfile.write(tmp_path / "a.wav", tone(), RATE)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(EarmarkError, match=r"pip install 'earmark\[audio\]'") as caught:
        read_clip(tmp_path / "a.wav", RATE)
    assert not isinstance(caught.value, UnreadableAudio)


def test_a_segment_of_an_hour_is_decoded_alone(tmp_path):
    rate = 8_000
    with soundfile.SoundFile(tmp_path / "hour.flac", "w", rate, 1, subtype="PCM_16") as file:
        for minute in range(60):
            file.write(np.full(60 * rate, minute / 100, np.float32))
    tracemalloc.start()
    clip = read_clip(tmp_path / "hour.flac", rate, 59 * 60 - 1, 59 * 60 + 9)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(clip) == 10 * rate
    assert clip[100] == pytest.approx(0.58, abs=1e-4)
    assert clip[-100] == pytest.approx(0.59, abs=1e-4)
    assert peak < 10e6  # the hour would take 115 MB


def test_hours_of_silence_in_a_small_file_do_not_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "silence.flac"
    with soundfile.SoundFile(path, "w", 8_000, 1, "PCM_16") as file:
        for _ in range(10):
            file.write(np.zeros(8_000 * 60, np.int16))
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(decode, "LONGEST_SECONDS", 200.0)
    message = rf"silence\.flac: longer than 200 s.*earmark import sounds.*{decode.LONGEST}="
    with pytest.raises(UnreadableAudio, match=message):
        read_clip(path, RATE)
    assert len(read_clip(path, RATE, 500, 502)) == 2 * RATE
    assert sum(map(len, stream_clip(path, RATE))) == 600 * RATE
    monkeypatch.setenv(decode.LONGEST, "600")
    assert len(read_clip(path, RATE)) == 600 * RATE
    monkeypatch.setenv(decode.LONGEST, "long")
    with pytest.raises(EarmarkError, match="not a number of seconds"):
        read_clip(path, RATE)


def test_a_rate_of_1_hz_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "LONGEST_SECONDS", 200.0)
    path = tmp_path / "slow.wav"
    soundfile.write(path, np.zeros(20_000), 1, subtype="PCM_U8")
    tracemalloc.start()
    with pytest.raises(UnreadableAudio, match="longer than"):
        read_clip(path, RATE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000, "all at once it would be a gigabyte"


def test_a_codec_that_nobody_knows_is_refused_with_a_reason(tmp_path):
    path = tmp_path / "odd.wav"
    soundfile.write(path, np.zeros(1600), 16_000, "PCM_16")
    odd = bytearray(path.read_bytes())
    odd[20:22] = (0x1234).to_bytes(2, "little")
    path.write_bytes(odd)
    with pytest.raises(UnreadableAudio, match="no decoder knows the format"):
        read_clip(path, 16_000)


def test_whatever_a_decoder_raises_is_a_reason_for_the_quarantine(tmp_path, monkeypatch):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(1600), 16_000, "PCM_16")

    def raises(*arguments):
        raise AttributeError("no such thing")

    monkeypatch.setattr(decode, "_soundfile_blocks", raises)
    with pytest.raises(UnreadableAudio, match=r"cannot be decoded .AttributeError: no such thing"):
        read_clip(path, 16_000)


def test_a_playlist_opens_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    write_by_ffmpeg(tmp_path / "private" / "a.ts", "aac", tone(), RATE)
    head = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n"
    playlists = {
        "a.m3u8": f"{head}file://{tmp_path}/private/a.ts\n#EXT-X-ENDLIST\n",
        "b.m3u8": f"{head}{tmp_path}/private/a.ts\n#EXT-X-ENDLIST\n",
        "c.m4a": "ffconcat version 1.0\nfile private/a.ts\n",
    }
    for name, text in playlists.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(UnreadableAudio, match="not a sound file"):
            read_clip(tmp_path / name, RATE)
        assert sound_header(tmp_path / name) is None
    assert len(read_clip(tmp_path / "private" / "a.ts", RATE))
