"""Frozen parameter records and their digests.

Every number that changes a result lives in one of these records. A record is frozen, refuses keys
that it does not know, and has a digest; a run is a function of its parameters, its data and its
seed, so equal digests mean equal results and nothing needs to be computed twice.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from earmark.errors import EarmarkError
from earmark.runs.artefacts import digest
from earmark.runs.operating_points import PAPER_DISCARD_PERCENTS

FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
"""A name that becomes part of a folder's, and so leads nowhere else."""


class Params(BaseModel):
    """A frozen record of parameters that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build a record from what a user said; refuse what cannot be, in a sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            problem = error.errors()[0]
            name = ".".join(str(part).replace("_", " ") for part in problem["loc"])
            said = problem.get("ctx", {}).get("error") or problem["msg"].lower()
            where = f"{name} is {problem['input']!r}: " if name else ""
            raise EarmarkError(f"{where}{said}") from None

    def digest(self) -> str:
        """Return 16 hexadecimal digits that change with any parameter that changes a result."""
        return digest(self)

    def for_digest(self) -> dict[str, Any]:
        """Return what a digest goes by, in the types of JSON."""
        plain = self.model_dump(mode="json")
        return {name: _for_digest(getattr(self, name), value) for name, value in plain.items()}


def _for_digest(value: Any, plain: Any) -> Any:
    """Return a value as a digest takes it, records inside others included."""
    if isinstance(value, Params):
        return value.for_digest()
    if isinstance(value, list | tuple):
        return [_for_digest(*pair) for pair in zip(value, plain, strict=True)]
    if isinstance(value, dict):
        return {name: _for_digest(one, plain[str(name)]) for name, one in value.items()}
    return plain


class FrontEndParams(Params):
    """Waveform to log-mel frames to patches, as YAMNet does it (see docs/file-formats.md)."""

    sample_rate_hz: int = 16_000
    window_seconds: float = 0.025
    hop_seconds: float = 0.010
    n_bands: int = 64
    low_hz: float = 125.0
    high_hz: float = 7_500.0
    log_offset: float = 0.001
    patch_frames: int = 96
    patch_hop_frames: int = 48

    @property
    def window_samples(self) -> int:
        """Samples in one analysis window (400)."""
        return round(self.window_seconds * self.sample_rate_hz)

    @property
    def hop_samples(self) -> int:
        """Samples from one frame to the next (160)."""
        return round(self.hop_seconds * self.sample_rate_hz)

    @property
    def fft_samples(self) -> int:
        """Length of the FFT: the next power of two (512)."""
        return 1 << (self.window_samples - 1).bit_length()

    @property
    def patch_seconds(self) -> tuple[float, float]:
        """Seconds from one patch to the next, and of one patch (0.48 and 0.96)."""
        hop = self.hop_samples / self.sample_rate_hz
        return self.patch_hop_frames * hop, self.patch_frames * self.hop_seconds

    @property
    def patch_samples(self) -> int:
        """Samples under one patch, its last window included (15,600)."""
        return (self.patch_frames - 1) * self.hop_samples + self.window_samples

    @property
    def patch_hop_samples(self) -> int:
        """Samples from one patch to the next (7,680)."""
        return self.patch_hop_frames * self.hop_samples

    @model_validator(mode="after")
    def _bands_fit_below_nyquist(self) -> Self:
        if not 0 < self.low_hz < self.high_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                f"the mel bands run from {self.low_hz} to {self.high_hz} Hz, which does not fit "
                f"below half the sample rate ({self.sample_rate_hz / 2} Hz)"
            )
        return self


class ModelParams(Params):
    """Which network, how wide, and how its weights begin.

    The convolutional networks see one patch of log-mel frames at a time; the probes see all
    frames of a clip (embeddings from elsewhere) at once.
    """

    architecture: Literal[
        "mobilenet_v1", "resnet50", "linear_probe", "mlp_probe", "attention_probe"
    ] = "mobilenet_v1"
    width: float = Field(1.0, gt=0, le=4)
    """Multiplies every channel count; 1 is the paper's network."""
    init_sd: float | None = Field(None, gt=0)
    """Standard deviation of the truncated-normal start; None scales it by each layer's fan-in."""
    norm_epsilon: float = Field(1e-5, gt=0)
    """Batch normalisation's epsilon; must not exceed the variance that ``init_sd`` leaves."""
    begins_with: str | None = None
    """A kept file of ``earmark teachers`` whose weights a MobileNetV1 begins with, normalisation
    fixed; None: weights are drawn at random."""
    relu_limit: float | None = Field(None, gt=0)
    """Above which MobileNetV1's units saturate: 6 in networks trained for phones; None: never."""
    n_hidden: int = Field(512, ge=1)
    """Hidden units of ``mlp_probe`` and ``attention_probe``."""
    n_queries: int = Field(4, ge=1)
    """Poolings over time that ``attention_probe`` learns."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of a probe's inputs to each layer that is dropped in training."""

    compression: float | None = Field(None, gt=0)
    """A probe looks at log(1 + compression x frame), with the frame's sign; None: as they are."""

    @property
    def is_probe(self) -> bool:
        """Whether the network is a head over embeddings, many of which train at once."""
        return self.architecture.endswith("_probe")

    @property
    def example_unit(self) -> str:
        """What the network sees one at a time: patches or clips."""
        return "clips" if self.is_probe else "patches"


class SpecAugmentParams(Params):
    """Stripes of a patch that are hidden from the network in training (Park et al. 2019).

    A stripe is up to so many frames or bands wide, and takes the patch's mean.
    """

    n_time_masks: int = Field(0, ge=0)
    time_mask_frames: int = Field(16, ge=1)
    n_band_masks: int = Field(0, ge=0)
    band_mask_bands: int = Field(8, ge=1)

    @property
    def is_on(self) -> bool:
        """Whether anything is hidden."""
        return self.n_time_masks + self.n_band_masks > 0


class TrainParams(Params):
    """How a teacher or a student is trained; the same record serves both.

    The run is as long as ``epochs`` or ``steps`` says, exactly one of which is given. Steps make
    small and large train sets comparable.
    """

    epochs: int | None = Field(10, ge=1)
    steps: int | None = Field(None, ge=1)
    batch_patches: int = Field(128, ge=1)
    """Examples (patches, or clips for a probe) of one step, over all processes."""
    patches_per_clip: int | None = Field(None, ge=1)
    """Patches drawn at random from each clip in an epoch; None takes all of them."""
    balanced_sampling: bool = False
    """Draw clips, with replacement, by the inverse frequency of their classes."""
    mixup: float = Field(0.0, ge=0)
    """Beta(mixup, mixup) is how much of an example is its own, the rest another's; 0 is off."""
    specaugment: SpecAugmentParams = SpecAugmentParams()
    solver: Literal["adamw", "lbfgs"] = "adamw"
    """``lbfgs`` fits a linear probe to all clips at once, in ``epochs`` iterations at most."""
    ridge: float = Field(0.2, ge=0)
    """With ``lbfgs``: half of it weighs the squared weights against the summed loss."""
    learning_rate: float = Field(1e-3, gt=0)
    schedule: Literal["constant", "cosine"] = "cosine"
    """``cosine`` warms up over the first twentieth of the steps, then decays to zero."""
    loss: Literal["sum", "mean_kept"] = "sum"
    """``sum`` over classes as in equation (1), or the mean over labels that are not ignored."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled from the gradient, as in AdamW."""
    average_share: float = Field(0.0, ge=0, le=1)
    """Share of the last steps whose weights are averaged into the result; 0 takes the last."""
    patience: int = Field(0, ge=0)
    """Stop after so many epochs without a better result on the tune split, and keep the best
    weights; 0 never stops."""
    watch: Literal["lwlrap", "loss"] = "lwlrap"
    """What a better result on the tune split is."""
    number_type: Literal["float32", "bfloat16", "float16", "auto", "float64"] = "float32"
    """Of activations: ``auto`` mixes on a GPU and is float32 elsewhere; the two short ones need a
    GPU; ``float64`` holds the weights too, and is there for checks."""
    seed: int = 0
    checkpoint_seconds: float = Field(60.0, ge=0)
    """How much work a kill may cost. It changes no result, and so no digest."""

    def for_digest(self) -> dict[str, Any]:
        """Return what a digest goes by; as if all runs were saved as often as is usual."""
        usual = type(self).model_fields["checkpoint_seconds"].default
        return super().for_digest() | {"checkpoint_seconds": usual}

    @property
    def length(self) -> str:
        """How long the run is, in words."""
        return f"{self.steps:,} steps" if self.epochs is None else f"{self.epochs:,} epochs"

    @model_validator(mode="before")
    @classmethod
    def _steps_replace_the_default_epochs(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("steps") is not None:
            return {"epochs": None, **values}
        return values

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                f"exactly one of epochs and steps says how long a run is, got epochs = "
                f"{self.epochs} and steps = {self.steps}"
            )
        return self


Runtime = Literal["torch", "onnx"]
"""What computes a network that scores clips: torch, or ONNX Runtime."""


class CrossFitParams(Params):
    """How the teacher scores the clips that it was trained on."""

    n_folds: int = Field(3, ge=2)
    in_sample: bool = False
    """Score with a teacher trained on the very same clips, as the paper did."""
    runtime: Runtime = "torch"
    """``onnx`` scores about twice as fast on a CPU; the scores differ by float32's rounding."""


class NetworkParams(Params):
    """A network and its training, under the name that files and figures use."""

    name: FolderName
    model: ModelParams = ModelParams()
    train: TrainParams = TrainParams()


class SweepParams(Params):
    """Operating points, train sets and seeds; every student is one of their combinations."""

    discard_percents: tuple[float, ...] = PAPER_DISCARD_PERCENTS
    train_sets: dict[FolderName, float] = {"train": 1.0}
    """Name and share of the train split; smaller sets are nested in larger ones."""
    seeds: tuple[int, ...] = (0,)
    random_control_percents: tuple[float, ...] = (1.0,)
    """Points at which a control student ignores as many labels, chosen at random."""
    labels: str = "given"
    """The name of a corrected label set (``earmark relabel``): also trains on it, alone and
    ignoring, and judges by it."""
    ignored_percent: float = Field(1.0, ge=0, le=100)
    """Labels of the evaluation splits that are left out by the teacher's scores; 0: not done."""
    stack_gb: float = Field(4.0, gt=0)
    """Memory for convolutional students that train on the same batches, activations not counted:
    a ResNet-50 takes 0.4 GB, a MobileNetV1 0.06. Changes no result."""
    n_resamples: int = Field(1_000, ge=100)
    """Bootstrap resamples (of clips) behind every interval."""

    @model_validator(mode="after")
    def _points_make_sense(self) -> Self:
        _check_percents(self.discard_percents)
        _check_percents(self.random_control_percents)
        if 0 not in self.discard_percents:
            raise ValueError("discard_percents needs 0: the baseline that the others are held to")
        _check_train_sets(self.train_sets)
        return self


class CompareParams(Params):
    """Strategies to compare; every student is one of their points, on one train set and seed."""

    strategies: tuple[str, ...] = (
        "mask", "soft", "weight", "flip", "distil", "random",
        "adjust", "mask+adjust", "soft+adjust",
    )  # fmt: skip
    """By name (see :mod:`earmark.experiments.strategies`), with ``@`` and points where wanted."""
    discard_percents: tuple[float, ...] = (0.1, 0.5, 1, 2, 5, 10)
    """Operating points of the strategies that go by per cent."""
    train_sets: dict[FolderName, float] = {"train": 1.0}
    """Name and share of the train split; smaller sets are nested in larger ones."""
    seeds: tuple[int, ...] = (0, 1, 2)
    choose_by: Literal["lwlrap", "d_prime_explicit", "d_prime_all", "map"] = "lwlrap"
    """The metric on ``tune`` by which each strategy's operating point is chosen."""
    ignored_percent: float = Field(1.0, ge=0, le=100)
    """Labels of the evaluation splits that are left out by the teacher's scores; 0: not done."""
    stack_gb: float = Field(4.0, gt=0)
    """As in a sweep."""
    n_resamples: int = Field(1_000, ge=100)
    """Bootstrap resamples (of clips) behind every interval."""

    @model_validator(mode="after")
    def _choices_make_sense(self) -> Self:
        _check_percents(self.discard_percents)
        _check_train_sets(self.train_sets)
        if not self.strategies or not self.seeds:
            raise ValueError("a comparison needs at least one strategy and one seed")
        return self


def _check_percents(percents: tuple[float, ...]) -> None:
    for percent in percents:
        if not 0 <= percent <= 100:
            raise ValueError(f"a discard of {percent} percent is not between 0 and 100")
    if list(percents) != sorted(set(percents)):
        raise ValueError(f"discard percents must rise and not repeat, got {percents}")


def _check_train_sets(train_sets: dict[str, float]) -> None:
    for name, share in train_sets.items():
        if not 0 < share <= 1:
            raise ValueError(f"train set {name!r} has share {share}; expected 0 < share <= 1")


class ReportParams(Params):
    """What the report shows beyond the figures and tables."""

    listen_classes: tuple[str, ...] = ()
    """Classes whose likeliest flags can be heard; empty takes those of all classes."""
    listen_flags: int = Field(10, ge=0, le=100)
    """Flags to hear of each class that is named; four times as many in all where none is."""
    flag_percent: float = Field(1.0, ge=0, le=100)
    """The operating point of the flags that are listed, heard and judged against the truth."""


Aim = Literal["find", "measure", "train"]
QueueAim = Literal[Aim, "adjudicate"]
"""``adjudicate``: the labels about which raters are at odds, for an adjudicator."""


class ReviewParams(Params):
    """Which flags are listened to, in what portions, and with how many controls."""

    classes: tuple[str, ...] = ()
    """Classes by name or identifier, in the order of listening; empty takes all with scores."""
    discard_percents: tuple[float, ...] = PAPER_DISCARD_PERCENTS
    """Operating points between which the bands lie; what is below the last is unflagged."""
    aim: Aim = "find"
    """To find most missing labels (a queue that learns from answers, with a random sample in every
    block); to measure (a random sample of every class and band, drawn at once); or to find those
    that a student needs (as ``find``, rare classes before common ones)."""
    sample_share: float = Field(0.12, gt=0, le=1)
    """Share of the random sample in what a queue that learns asks about."""
    n_items: int | None = Field(None, ge=1)
    """Labels to listen to in all, controls not counted. By default a queue that learns has no end,
    and one that measures ``blocks_per_class`` blocks."""
    flags_per_block: int = Field(25, ge=1)
    """Labels of one class that are sampled for a block, controls not counted."""
    blocks_per_class: int = Field(4, ge=1)
    control_share: float = Field(0.1, ge=0, lt=1)
    """Share of a block's items that are controls, rounded up."""
    overlap: float = Field(0.2, ge=0, le=1)
    """Share of the blocks that every rater judges; the others are dealt out."""
    held_out: bool = False
    """Whether labels of the tune and eval splits alone are listened to, in place of the whole."""
    seed: int = 0

    @property
    def n_controls(self) -> int:
        """Controls in a full block."""
        return math.ceil(self.flags_per_block * self.control_share / (1 - self.control_share))

    @model_validator(mode="after")
    def _points_rise(self) -> Self:
        points = [percent for percent in self.discard_percents if percent != 0]
        if not points or points != sorted(set(points)) or points[0] < 0 or points[-1] > 100:
            raise ValueError("discard_percents must rise, not repeat, and lie within 0 and 100")
        return self
