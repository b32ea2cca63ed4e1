from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from earmark.models import Tagger
from earmark.report import timeline_figure, write_png
from scenes import open_store
from sounds import model_folder, sound, sound_workspace


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    workspace = sound_workspace(tmp_path_factory.mktemp("w"), n_clips=2)
    model_folder(workspace.model_folder("teacher"), open_store(workspace))
    return Tagger.open(workspace.model_folder("teacher"))


@pytest.mark.parametrize("seconds", [0.01, 1.5, 20.0])
def test_classes_and_seconds_can_be_read(tagger: Tagger, tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "a $5 tone.wav"
    soundfile.write(path, sound(0, seconds), 16_000)
    tags = tagger.tag(path)
    figure = timeline_figure(tags, 2)
    log_mel, classes, _ = figure.axes
    assert classes.get_xlabel() == "seconds"
    assert classes.get_xlim() == pytest.approx((0, seconds))
    named = [f"{tag.name}  {tag.score:.2f}" for tag in tags.top(2)]
    assert [label.get_text() for label in classes.get_yticklabels()] == named
    assert log_mel.get_title(loc="left") == r"a \$5 tone.wav"
    (drawn,) = [one for one in classes.collections if one.get_array() is not None]
    n_columns = max(1, int(np.ceil((seconds - 0.2475) / 0.48)))
    expected = tags.outputs.columns[:n_columns, tags.top_columns(2)].T
    found = np.asarray(drawn.get_array()).reshape(2, -1)
    assert found == pytest.approx(expected)
    write_png(figure, tmp_path / "picture.png")
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.width == 1400
