"""Recipes: all the parameters of one run, as a TOML file and as a workspace remembers them.

Recipes that come with earmark lie in ``recipes/``; the one that a workspace was last run with lies
in its ``recipe.json``, for the verbs that come after.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from earmark.config.parameters import (
    CompareParams,
    CrossFitParams,
    FrontEndParams,
    HidingParams,
    NetworkParams,
    Params,
    ReportParams,
    ResourceParams,
    SceneParams,
    SweepParams,
    TrainParams,
)
from earmark.errors import EarmarkError, nearest, reader, reading
from earmark.storage import read_json, write_json

_SHIPPED = Path(__file__).with_name("recipes")
_KEPT = "recipe.json"
_MOST_BYTES = 1_000_000

InputKind = Literal["waveforms", "patches"]

Way = Literal["zero-shot", "probe", "blend", "fine-tuned"]
"""How a pretrained network is used as a teacher.

By its own classes; by a probe on its embeddings; by both together; by training it further.
"""


class PretrainedParams(Params):
    """A network that others trained, and what has to be said of it where it does not say itself."""

    network: str
    """A name of ``earmark teachers``, a file (.onnx, .tflite), a folder of Hugging Face's, or
    ``hf:OWNER/NAME`` on its hub."""
    embedding: str | None = None
    """The output or tensor that is taken for embeddings; of Hugging Face's, a layer's number."""
    output: str | None = None
    """The output that is taken for classes."""
    input_kind: InputKind | None = None
    """Whether it takes waveforms or log-mel patches."""
    sample_rate_hz: int | None = Field(None, ge=1, le=1_000_000)
    """Of its waveforms."""
    hop_seconds: float | None = Field(None, gt=0, le=600)
    """From one window to the next, where the network takes windows of a fixed length."""
    scale: Literal["logits", "probabilities"] | None = None
    """Of its classes; told from the network itself unless said."""
    prompt: str = "the sound of {}"
    """Around a class's name, for networks that compare sound with text."""


class Recipe(Params):
    """All the parameters of one run, from the data to the report."""

    name: str = "earmark"
    scenes: SceneParams | None = None
    """Make these scenes if the workspace has no clips yet; None expects an imported dataset."""
    hiding: HidingParams = HidingParams()
    front_end: FrontEndParams = FrontEndParams()
    pretrained: PretrainedParams | None = None
    """The network that others trained behind the teacher; None trains one from scratch."""
    way: Way | None = None
    """How the pretrained network is used; None tries what can be done and takes the best."""
    teacher: NetworkParams = NetworkParams(name="teacher")
    teacher_of_many: NetworkParams | None = None
    """The probe that takes the teacher's place above ``many_clips``, with a pretrained network."""
    many_clips: int = Field(20_000, ge=0, le=1_000_000_000)
    """Clips of the train split above which a probe that sees them in batches is the teacher."""
    fine_tuned: NetworkParams = NetworkParams(
        name="teacher-fine-tuned",
        train=TrainParams(epochs=6, patches_per_clip=4, batch_patches=32, learning_rate=3e-4),
    )
    """The teacher where the way is ``fine-tuned``: how the whole network is trained further."""
    students: tuple[NetworkParams, ...] = (NetworkParams(name="student"),)
    cross_fit: CrossFitParams = CrossFitParams()
    sweep: SweepParams = SweepParams()
    compare: CompareParams = CompareParams()
    report: ReportParams = ReportParams()
    resources: ResourceParams = ResourceParams()
    tracker: Literal["tensorboard", "none"] = "tensorboard"
    """Where the numbers of a training are shown while it lasts; changes no result."""

    @property
    def taught(self) -> NetworkParams:
        """The network that is trained on the dataset to teach."""
        return self.fine_tuned if self.way == "fine-tuned" else self.teacher

    @property
    def scores_name(self) -> str:
        """The name of the scores that count: those of the teacher's network, or of another way."""
        has_no_network = self.way in ("zero-shot", "blend")
        return f"{self.teacher.name}-{self.way}" if has_no_network else self.taught.name

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [self.teacher.name, *(student.name for student in self.students)]
        if len(set(names)) < len(names):
            raise ValueError(f"teacher and students need names of their own, got {names}")
        return self


def shipped_recipes() -> dict[str, Path]:
    """Return the recipes that come with earmark, by name."""
    return {path.stem: path for path in sorted(_SHIPPED.glob("*.toml"))}


def find_recipe(name_or_path: str) -> Recipe:
    """Read a recipe given by the name of a shipped one or by the path of a TOML file."""
    shipped = shipped_recipes()
    if name_or_path in shipped:
        return read_recipe(shipped[name_or_path])
    if not name_or_path.endswith(".toml"):
        raise EarmarkError(f"no recipe is called {name_or_path!r}{nearest(name_or_path, shipped)}")
    return read_recipe(name_or_path)


def read_recipe(path: str | Path) -> Recipe:
    """Read a recipe from a TOML file; a misspelt key is named with the nearest valid one."""
    path = Path(path)
    if not path.exists():
        raise EarmarkError(f"{path}: no such recipe file")
    if path.stat().st_size > _MOST_BYTES:
        raise EarmarkError(
            f"{path}: {path.stat().st_size:,} bytes; a recipe has {_MOST_BYTES:,} at most. Is it "
            "another file?"
        )
    with reading(path, "TOML", "a recipe is a TOML file"):
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    return _checked(path, values)


def keep_recipe(root: str | Path, recipe: Recipe) -> None:
    """Remember a recipe in a workspace, for the verbs that come after."""
    write_json(Path(root) / _KEPT, recipe.model_dump(mode="json"))


def has_kept_recipe(root: str | Path) -> bool:
    """Tell whether a workspace remembers a recipe."""
    return (Path(root) / _KEPT).exists()


def kept_recipe(root: str | Path) -> Recipe:
    """Return the recipe that a workspace was last run with; the defaults where there was none."""
    path = Path(root) / _KEPT
    return _checked(path, read_json(path)) if path.exists() else Recipe()


@reader("a recipe")
def _checked(path: Path, values: Any) -> Recipe:
    """Return the recipe that a file holds; name every key that cannot be used."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        details = "\n".join(f"  {_explain(problem)}" for problem in error.errors())
        raise EarmarkError(f"{path}: the recipe cannot be used:\n{details}") from None


def _explain(problem: Any) -> str:
    """Turn one of pydantic's error records into a sentence that names the key."""
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return f"{key}: no such key{nearest(location[-1], _fields_at(location[:-1]))}"
    if problem["type"] == "value_error":
        return f"{key or 'recipe'}: {problem['ctx']['error']}"
    return f"{key}: {problem['msg'].lower()}, got {problem['input']!r}"


def _fields_at(location: list[str]) -> list[str]:
    """Return the valid keys of the record that a dotted place in a recipe leads to."""
    record: type[BaseModel] = Recipe
    for part in location:
        if part.isdigit():
            continue
        annotation: Any = record.model_fields[part].annotation
        choices = [annotation, *getattr(annotation, "__args__", ())]
        record = next(c for c in choices if isinstance(c, type) and issubclass(c, BaseModel))
    return list(record.model_fields)
