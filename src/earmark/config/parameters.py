"""Frozen parameter records and their digests.

Every number that changes a result lives in one of these records. A record is frozen, refuses keys
that it does not know, and has a digest; a run is a function of its parameters, its data and its
seed, so equal digests mean equal results and nothing needs to be computed twice.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from earmark.config.operating_points import PAPER_DISCARD_PERCENTS
from earmark.errors import EarmarkError
from earmark.options import Option, read_names
from earmark.storage import digest

FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$")]
"""A name that becomes part of a folder's, and so leads nowhere else."""


Seed = Annotated[int, Field(ge=0, le=2**53)]
"""Begins a generator of random numbers."""

Share = Annotated[float, Field(ge=0, le=1)]

Decibels = Annotated[float, Field(ge=-300, le=300)]


class Params(BaseModel):
    """A frozen record of parameters that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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


_MOST_SAMPLES = 10_000_000
"""Samples of one patch: ten minutes at 16 kHz."""


class FrontEndParams(Params):
    """Waveform to log-mel frames to patches, as YAMNet does it (see docs/file-formats.md)."""

    sample_rate_hz: int = Field(16_000, ge=1, le=1_000_000)
    window_seconds: float = Field(0.025, gt=0, le=10)
    hop_seconds: float = Field(0.010, gt=0, le=10)
    n_bands: int = Field(64, ge=1, le=10_000)
    low_hz: float = Field(125.0, gt=0, le=1_000_000)
    high_hz: float = Field(7_500.0, gt=0, le=1_000_000)
    log_offset: float = Field(0.001, gt=0, le=1e6)
    patch_frames: int = Field(96, ge=1, le=100_000)
    patch_hop_frames: int = Field(48, ge=1, le=100_000)

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
    def _windows_and_hops_have_samples(self) -> Self:
        if min(self.window_samples, self.hop_samples) < 1 or self.patch_samples > _MOST_SAMPLES:
            raise ValueError(
                f"windows of {self.window_samples:,} samples, hops of {self.hop_samples:,} and "
                f"patches of {self.patch_samples:,} are not between 1 and {_MOST_SAMPLES:,} samples"
            )
        return self

    @model_validator(mode="after")
    def _bands_fit_below_nyquist(self) -> Self:
        if not 0 < self.low_hz < self.high_hz <= self.sample_rate_hz / 2:
            raise ValueError(
                f"the mel bands run from {self.low_hz} to {self.high_hz} Hz, which does not fit "
                f"below half the sample rate ({self.sample_rate_hz / 2} Hz)"
            )
        if self.n_bands > self.fft_samples // 2:
            raise ValueError(
                f"{self.n_bands:,} mel bands, but windows of {self.window_samples:,} samples tell "
                f"{self.fft_samples // 2:,} frequencies apart"
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
    init_sd: float | None = Field(None, gt=0, le=100)
    """Standard deviation of the truncated-normal start; None scales it by each layer's fan-in."""
    norm_epsilon: float = Field(1e-5, gt=0, le=1)
    """Batch normalisation's epsilon; must not exceed the variance that ``init_sd`` leaves."""
    begins_with: str | None = None
    """A kept file of ``earmark teachers`` whose weights a MobileNetV1 begins with, normalisation
    fixed; None: weights are drawn at random."""
    relu_limit: float | None = Field(None, gt=0, le=1e6)
    """Above which MobileNetV1's units saturate: 6 in networks trained for phones; None: never."""
    n_hidden: int = Field(512, ge=1, le=100_000)
    """Hidden units of ``mlp_probe`` and ``attention_probe``."""
    n_queries: int = Field(4, ge=1, le=1_000)
    """Poolings over time that ``attention_probe`` learns."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of a probe's inputs to each layer that is dropped in training."""

    compression: float | None = Field(None, gt=0, le=1e9)
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

    n_time_masks: int = Field(0, ge=0, le=1_000)
    time_mask_frames: int = Field(16, ge=1, le=100_000)
    n_band_masks: int = Field(0, ge=0, le=1_000)
    band_mask_bands: int = Field(8, ge=1, le=10_000)

    @property
    def is_on(self) -> bool:
        """Whether anything is hidden."""
        return self.n_time_masks + self.n_band_masks > 0


class TrainParams(Params):
    """How a teacher or a student is trained; the same record serves both.

    The run is as long as ``epochs`` or ``steps`` says, exactly one of which is given. Steps make
    small and large train sets comparable.
    """

    epochs: int | None = Field(10, ge=1, le=1_000_000)
    steps: int | None = Field(None, ge=1, le=1_000_000_000)
    batch_patches: int = Field(128, ge=1, le=1_000_000)
    """Examples (patches, or clips for a probe) of one step, over all processes."""
    patches_per_clip: int | None = Field(None, ge=1, le=1_000_000)
    """Patches drawn at random from each clip in an epoch; None takes all of them."""
    balanced_sampling: bool = False
    """Draw clips, with replacement, by the inverse frequency of their classes."""
    mixup: float = Field(0.0, ge=0, le=1_000)
    """Beta(mixup, mixup) is how much of an example is its own, the rest another's; 0 is off."""
    specaugment: SpecAugmentParams = SpecAugmentParams()
    solver: Literal["adamw", "lbfgs"] = "adamw"
    """``lbfgs`` fits a linear probe to all clips at once, in ``epochs`` iterations at most."""
    ridge: float = Field(0.2, ge=0, le=1e9)
    """With ``lbfgs``: half of it weighs the squared weights against the summed loss."""
    learning_rate: float = Field(1e-3, gt=0, le=1_000)
    schedule: Literal["constant", "cosine"] = "cosine"
    """``cosine`` warms up over the first twentieth of the steps, then decays to zero."""
    loss: Literal["sum", "mean_kept"] = "sum"
    """``sum`` over classes as in equation (1), or the mean over labels that are not ignored."""
    weight_decay: float = Field(0.0, ge=0, le=1_000)
    """Decoupled from the gradient, as in AdamW."""
    average_share: float = Field(0.0, ge=0, le=1)
    """Share of the last steps whose weights are averaged into the result; 0 takes the last."""
    patience: int = Field(0, ge=0, le=1_000_000)
    """Stop after so many epochs without a better result on the tune split, and keep the best
    weights; 0 never stops."""
    watch: Literal["lwlrap", "loss"] = "lwlrap"
    """What a better result on the tune split is."""
    number_type: Literal["float32", "bfloat16", "float16", "auto", "float64"] = "float32"
    """Of activations: ``auto`` mixes on a GPU and is float32 elsewhere; the two short ones need a
    GPU; ``float64`` holds the weights too, and is there for checks."""
    seed: Seed = 0
    checkpoint_seconds: float = Field(60.0, ge=0, le=1e6)
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


class CrossFitParams(Params):
    """How the teacher scores the clips that it was trained on."""

    n_folds: int = Field(3, ge=2, le=1_000)
    in_sample: bool = False
    """Score with a teacher trained on the very same clips, as the paper did."""


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
    seeds: tuple[Seed, ...] = Field((0,), max_length=1_000)
    random_control_percents: tuple[float, ...] = (1.0,)
    """Points at which a control student ignores as many labels, chosen at random."""
    labels: str = "given"
    """The name of a corrected label set (``earmark relabel``): also trains on it, alone and
    ignoring, and judges by it."""
    ignored_percent: float = Field(1.0, ge=0, le=100)
    """Labels of the evaluation splits that are left out by the teacher's scores; 0: not done."""
    n_resamples: int = Field(1_000, ge=100, le=1_000_000)
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
    seeds: tuple[Seed, ...] = Field((0, 1, 2), max_length=1_000)
    choose_by: Literal["lwlrap", "d_prime_explicit", "d_prime_all", "map"] = "lwlrap"
    """The metric on ``tune`` by which each strategy's operating point is chosen."""
    ignored_percent: float = Field(1.0, ge=0, le=100)
    """Labels of the evaluation splits that are left out by the teacher's scores; 0: not done."""
    n_resamples: int = Field(1_000, ge=100, le=1_000_000)
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

    classes: Annotated[
        tuple[str, ...],
        Option("Names or identifiers, with commas; all with scores.", read=read_names),
    ] = ()
    """Classes by name or identifier, in the order of listening; empty takes all with scores."""
    discard_percents: tuple[float, ...] = PAPER_DISCARD_PERCENTS
    """Operating points between which the bands lie; what is below the last is unflagged."""
    aim: Annotated[Aim, Option()] = "find"
    """To find most missing labels (a queue that learns from answers, with a random sample in every
    block); to measure (a random sample of every class and band, drawn at once); or to find those
    that a student needs (as ``find``, rare classes before common ones)."""
    sample_share: Annotated[
        float, Option("Share of a random sample in every block; 0.06.", low=0.01, high=1)
    ] = Field(0.06, gt=0, le=1)
    """Share of the random sample in what a queue that learns asks about."""
    n_items: Annotated[int | None, Option("Labels to hear; no end.", low=1)] = Field(
        None, ge=1, le=1_000_000_000
    )
    """Labels to listen to in all, controls not counted. By default a queue that learns has no end,
    and one that measures ``blocks_per_class`` blocks."""
    flags_per_block: Annotated[int, Option("Labels in a block; 25.", low=1)] = Field(
        25, ge=1, le=10_000
    )
    """Labels of one class that are sampled for a block, controls not counted."""
    blocks_per_class: Annotated[int, Option("To measure; 4.", low=1)] = Field(4, ge=1, le=100_000)
    control_share: float = Field(0.1, ge=0, lt=1)
    """Share of a block's items that are controls, rounded up."""
    overlap: Annotated[
        float, Option("Share of blocks that all raters judge; 0.2.", low=0, high=1)
    ] = Field(0.2, ge=0, le=1)
    """Share of the blocks that every rater judges; the others are dealt out."""
    held_out: Annotated[bool, Option("Of the tune and eval splits alone.")] = False
    """Whether labels of the tune and eval splits alone are listened to, in place of the whole."""
    seed: Annotated[Seed, Option("Of the queue's random sample; 0.")] = 0

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


class SceneParams(Params):
    """Synthetic sound scenes with known truth."""

    n_train: int = Field(1_800, ge=1, le=10_000_000)
    n_tune: int = Field(400, ge=1, le=10_000_000)
    n_eval: int = Field(800, ge=1, le=10_000_000)
    clip_seconds: float = Field(4.0, ge=0.5, le=4_000)
    max_events: int = Field(4, ge=1, le=1_000)
    shortest_event_seconds: float = Field(0.3, gt=0, le=4_000)
    """Events last from this to the whole clip, evenly on a logarithmic scale."""
    level_range_db: tuple[Decibels, Decibels] = (-6.0, 18.0)
    """Event level above the background noise, drawn uniformly."""
    prior_exponent: float = Field(1.0, ge=0, le=100)
    """Class priors fall as rank ** -exponent: 0 is flat, 1 is Zipf's law."""
    with_parents: bool = True
    """Whether the classes above those that sound, such as Animal, are labelled too."""
    seed: Seed = 0

    @model_validator(mode="after")
    def _events_fit_into_a_clip(self) -> Self:
        if self.shortest_event_seconds > self.clip_seconds:
            raise ValueError(
                f"events of at least {self.shortest_event_seconds} s do not fit into clips of "
                f"{self.clip_seconds} s"
            )
        return self


class MixtureParams(Params):
    """Mixtures of recordings of one class each, with known truth."""

    n_clips: Annotated[int, Option("Clips to make; 6,000.", "--clips", low=1)] = Field(
        6_000, ge=1, le=10_000_000
    )
    clip_seconds: Annotated[float, Option("Length of a clip; 5.")] = Field(5.0, ge=0.5, le=4_000)
    max_sounds: Annotated[int, Option("Sounds in a clip; 4.", low=1)] = Field(4, ge=1, le=1_000)
    shortest_sound_seconds: Annotated[
        float, Option("Seconds that a sound lasts at least; 1.", "--shortest-sound")
    ] = Field(1.0, gt=0, le=4_000)
    """Sounds last from this to the whole clip, evenly on a logarithmic scale."""
    level_range_db: tuple[Decibels, Decibels] = (-12.0, 0.0)
    """Level of a sound, drawn uniformly; at 0 dB all recordings are alike."""
    background_range_db: tuple[Decibels, Decibels] = (-40.0, -20.0)
    prior_exponent: float = Field(0.5, ge=0, le=100)
    """Class priors fall as rank ** -exponent: 0 is flat, 1 is Zipf's law."""
    n_groups: Annotated[
        int, Option("Parts of the recordings; no clip mixes two; 10.", "--groups", low=3)
    ] = Field(10, ge=3, le=1_000_000)
    """Groups that recordings are dealt to; a clip's sounds are of one group."""
    seed: Annotated[Seed, Option("Other clips, other hidden labels; 0.", low=0)] = 0

    @model_validator(mode="after")
    def _sounds_fit_into_a_clip(self) -> Self:
        if self.shortest_sound_seconds > self.clip_seconds:
            raise ValueError(
                f"sounds of at least {self.shortest_sound_seconds} s do not fit into clips of "
                f"{self.clip_seconds} s"
            )
        return self

    def split_of(self, group: int) -> Literal["train", "tune", "eval"]:
        """Return the split of a group: of ten, one is tune's and three are eval's."""
        n_eval, n_tune = max(round(0.3 * self.n_groups), 1), max(round(0.1 * self.n_groups), 1)
        if group >= self.n_groups - n_eval:
            return "eval"
        return "tune" if group >= self.n_groups - n_eval - n_tune else "train"


class HidingParams(Params):
    """The nominator that decides which labels a person is asked about."""

    max_candidates: int = Field(10, ge=1, le=1_000_000)
    recall_range: tuple[Share, Share] = (0.3, 0.95)
    """Lowest and highest chance, over classes, that a present sound is nominated."""
    false_candidates: float = Field(2.0, ge=0, le=1_000_000)
    """Mean number of absent classes nominated per clip: they become explicit negatives."""
    sibling_bias: float = Field(4.0, ge=1, le=1e9)
    """How much likelier a sibling of a present class is nominated wrongly than another class."""
    seed: Seed = 0


class TaskResources(Params):
    """What one task takes of a machine; a cluster runs as many at once as fit."""

    cpus: float = Field(1, ge=0, le=100_000)
    gpus: float = Field(0, ge=0, le=100_000)
    """A part of one packs several tasks on a GPU; more than one must be whole."""
    memory_gb: float = Field(0, ge=0, le=1_000_000)
    """Set aside, so that tasks do not crowd one another out; 0 asks for none."""

    @model_validator(mode="after")
    def _gpus_are_a_part_or_whole(self) -> Self:
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus is a part of one or a whole number, got {self.gpus}")
        return self


class ResourceParams(Params):
    """What the tasks of each stage take; changes where they run, never what they compute."""

    features: TaskResources = TaskResources()
    score: TaskResources = TaskResources()
    train: TaskResources = TaskResources()
