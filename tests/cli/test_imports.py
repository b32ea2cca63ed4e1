from __future__ import annotations

from pathlib import Path

import numpy as np

from called_verbs import earmark


def test_the_next_command_can_be_pasted_where_a_path_has_spaces(tmp_path: Path) -> None:
    """Without sound or frames, scores come from elsewhere; with frames, a teacher scores."""
    labels, work = tmp_path / "labels.csv", tmp_path / "my sounds"
    labels.write_text("clip_id,label\n" + "".join(f"{n},dog\n{n},cat\n" for n in range(20)))
    told = earmark("import", "table", labels, "--work", work).stdout
    assert f"next: earmark score '{work}' --from scores.npy" in told
    clips, frames = tmp_path / "clips.csv", tmp_path / "frames.npy"
    clips.write_text("\n".join(["clip_id", *map(str, range(20))]))
    np.save(frames, np.zeros((20, 8), np.float32))
    options = ("--clips", clips, "--embeddings", frames, "--replace", "--work", work)
    told = earmark("import", "table", labels, *options).stdout
    assert f"next: earmark score '{work}'\n" in told
