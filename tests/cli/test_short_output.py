"""What verbs print at their longest: 15 lines at 80 columns, nothing broken and nothing marked up.

The work is done elsewhere; here verbs are handed results as long as they come. Every verb is called
for real in ``test_core_alone``, and whatever tests call through ``called_verbs`` has to fit, too.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from called_verbs import assert_fits, earmark
from earmark.cli.commands import Call
from earmark.cli.printing import MOST_LINES, WIDTH, table_lines, tell, wrapped
from made_up import make_choices, make_results

LABELS = ("given", "ignored", "corrected", "truth")
METRICS = ("d_prime_explicit", "lwlrap", "d_prime_all", "map")
CURVE = {0.0: 0.40, 1.0: 0.44, 2.0: 0.45}
STUDENTS = [f"{name}-of-a-long-name" for name in ("mobilenet", "resnet", "probe", "transformer")]
MARKED = "[/i] bracketed [bold]"


def many_students() -> pl.DataFrame:
    controls = {"random": {2.0: 0.41}, "calibrated": {0.0: 0.41, 2.0: 0.44}}
    parts = [
        make_results(CURVE, CURVE, student=name, labels=LABELS, metrics=METRICS, **controls)
        for name in STUDENTS
    ]
    return pl.concat(parts)


def many_strategies() -> pl.DataFrame:
    names = [f"precision/soft-number-{i}+adjust" for i in range(13)]
    gains = {"baseline": 0.0, **{name: 0.01 * i for i, name in enumerate(names)}, "random": 0.001}
    choices = make_choices(gains, dict.fromkeys(names, 0.05), labels=LABELS)
    large = choices.with_columns(train_set=pl.lit("large"))
    unknown = pl.col("strategy") == names[3]
    numbers = ("difference", "difference_low", "difference_high", "p_holm")
    nothing = [pl.when(unknown).then(float("nan")).otherwise(name).alias(name) for name in numbers]
    return pl.concat([choices, large]).with_columns(nothing)


@pytest.fixture
def without_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand verbs of students made-up results in place of hours of training."""
    swept = SimpleNamespace(path=Path("W/sweep/results.parquet"), found=None)
    swept.found = SimpleNamespace(summary=many_students())
    params = SimpleNamespace(strategies=["mask"], choose_by="lwlrap")
    compared = SimpleNamespace(folder=Path("W/compare"), params=params)
    compared.found = SimpleNamespace(choices=many_strategies())
    results = {"sweep": swept, "compare": compared}
    monkeypatch.setattr(Call, "__call__", lambda self: results[self.name])


@pytest.mark.usefixtures("without_work")
@pytest.mark.parametrize("verb", ["sweep", "compare"])
def test_the_longest_results_of_students_are_short(verb: str) -> None:
    done = earmark(verb, "my work")
    assert "nan" not in done.stdout
    assert done.stdout.splitlines()[-1] == "next: earmark report 'my work'"
    everything = earmark(verb, "my work", "--details").stdout
    assert len(everything.splitlines()) > MOST_LINES
    assert_fits(everything, most_lines=200)


@pytest.mark.usefixtures("without_work")
def test_the_verdict_comes_first() -> None:
    assert earmark("sweep", "W").stdout.startswith("Yes: ignoring the likeliest labels")
    assert earmark("compare", "W").stdout.startswith("Yes: the strategy precision/soft")


def test_a_finished_run_says_what_a_newcomer_wants_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = {"discard_percent": [1.0], "n_flags": [10_000], "n_right": [8_000]}
    outcome = SimpleNamespace(
        recipe=SimpleNamespace(report=SimpleNamespace(flag_percent=1.0)),
        sweep=SimpleNamespace(summary=many_students()),
        judged=pl.DataFrame(judged).with_columns(n_missing=40_000),
        workspace=SimpleNamespace(has_sound=lambda: True, root=Path("my work")),
        report=Path("my work/report/index.html"),
    )
    monkeypatch.setattr(Call, "__call__", lambda _: outcome)
    lines = earmark("run", "demo", "--work", "my work").stdout.splitlines()
    assert lines[0].startswith("Yes: ")
    assert lines[-1] == "next: earmark review 'my work'"
    assert_fits(earmark("run", "demo", "--details").stdout, most_lines=300)


def test_tags_of_many_files_are_one_line_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tags = [SimpleNamespace(name=MARKED, score=0.5, best_seconds=1.0) for _ in range(20)]
    heard = SimpleNamespace(seconds=3.0, top=lambda n: tags[:n])
    files = [SimpleNamespace(path=Path(f"{i}.wav"), tags=heard, picture="p.png") for i in range(20)]
    monkeypatch.setattr(Call, "__call__", lambda call: files[: len(call["paths"])])
    one = earmark("tag", "0.wav", "--model", "M", "--top", 20).stdout
    assert MARKED in one
    many = earmark("tag", *["0.wav"] * 20, "--model", "M").stdout
    assert many.count("0.wav (3.0 s): ") == 1
    assert "more (--details)" in many


def test_tables_fit_and_cut_names_never_numbers() -> None:
    rows = [[MARKED * 20, *["123,456,789"] * 5] for _ in range(30)]
    lines = table_lines(["class", *["a number"] * 5], rows, most=3)
    assert max(map(len, lines)) <= WIDTH
    assert lines[1].count("123,456,789") == 5
    assert lines[1].startswith("[/i] ")
    assert lines[4:] == ["and 27 more"]
    assert table_lines(["class"], [[MARKED]]) == ["class", MARKED]


def test_what_does_not_fit_is_counted_and_the_next_command_is_always_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: dict[str, Any] = {"told": ["found"], "more": [f"note {i} " * 15 for i in range(20)]}
    tell(False, "earmark flag W", details=False, wrote="W", none=None, **told)
    lines = capsys.readouterr().out.splitlines()
    assert_fits("\n".join(lines))
    assert lines[0] == "found"
    assert lines[-3:] == ["and 15 more (--details)", "wrote: W", "next: earmark flag W"]
    tell(False, "earmark flag W", details=True, **told)
    assert len(capsys.readouterr().out.splitlines()) == 42


@pytest.mark.parametrize(
    "command",
    ["`earmark score 'a long name of a workspace' --teacher file`", "pip install 'earmark[a,b]'"],
)
def test_commands_and_paths_are_never_broken(command: str) -> None:
    for n in range(0, 60, 7):
        lines = wrapped(f"{'x' * n} some words to fill the line with: {command} and more words")
        assert sum(command in line for line in lines) == 1
        assert max(map(len, lines)) <= WIDTH + len(command)
    long = f"{Path('/a') / ('b' * 100)}"
    assert long in "\n".join(wrapped(f"what was expected: {long}, and more")).split()[3]
    assert shlex.split(command.strip("`"))[0] in ("earmark", "pip")
