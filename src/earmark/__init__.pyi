from . import losses as losses
from . import metrics as metrics
from . import pipeline as pipeline
from .config import PAPER_DISCARD_PERCENTS as PAPER_DISCARD_PERCENTS
from .datasets import Workspace as Workspace
from .errors import EarmarkError as EarmarkError
from .errors import EarmarkWarning as EarmarkWarning
from .experiments import Supervision as Supervision
from .flags import count_missing as count_missing
from .flags import flag as flag
from .flags import thresholds as thresholds
from .labels import LabelSet as LabelSet
from .losses import ignored as ignored
from .metrics import evaluate as evaluate
from .models import ClipDataset as ClipDataset
from .pipeline import run as run
from .pipeline import scan as scan
from .training import MissingLabelFilter as MissingLabelFilter

__version__: str
