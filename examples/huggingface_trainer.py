"""Train on labels of which some are missing, with Hugging Face's Trainer.

Run it with `python examples/huggingface_trainer.py`; it needs `pip install 'earmark[examples]'`.
Made-up spectrograms, each class in a band of its own, teach a very small AST.
"""

from typing import Any

import numpy as np
import torch
from transformers import ASTConfig, ASTForAudioClassification, Trainer, TrainingArguments

import earmark

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
QUIET = {"logging_strategy": "epoch", "save_strategy": "no", "report_to": "none"}
SHAPE = {"max_length": 24, "num_mel_bins": 20, "patch_size": 8, "num_labels": 5}


class TrainerWithMissingLabels(Trainer):
    """A Trainer whose items have a row, the number of their clip, and no labels."""

    def __init__(self, *args: Any, supervision: earmark.Supervision, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supervision = supervision

    def compute_loss(
        self, model: torch.nn.Module, inputs: Any, return_outputs: bool = False, **_: Any
    ) -> Any:
        rows = inputs.pop("rows")
        outputs = model(**inputs)
        loss = self.supervision.loss(outputs.logits, rows, epoch=int(self.state.epoch or 0))
        return (loss, outputs) if return_outputs else loss


def main(strategy: str = "hedge@10", n_epochs: int = 12) -> Trainer:
    """Train on made-up data, of which a person was asked about half; return the trainer."""
    random = np.random.default_rng(0)
    present = random.random((400, 5)) < 0.2
    labels = np.where(random.random(present.shape) < 0.5, np.where(present, 1, -1), 0)
    scores = np.where(present, 2.0, -2.0) + random.normal(size=present.shape)
    sounds = np.repeat(present, 4, axis=1)[:, None] + 0.3 * random.normal(size=(400, 24, 20))
    sounds = torch.tensor(sounds, dtype=torch.float32)  # [clip, frame, band]
    clips = [{"input_values": sound, "rows": row} for row, sound in enumerate(sounds)]
    asked = TrainingArguments(
        num_train_epochs=n_epochs,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        remove_unused_columns=False,  # the row of a clip is no argument of the network
        **QUIET,
    )
    network = ASTForAudioClassification(ASTConfig(intermediate_size=64, **SIZES, **SHAPE))
    supervision = earmark.Supervision(labels, scores, strategy)
    trainer = TrainerWithMissingLabels(network, asked, train_dataset=clips, supervision=supervision)
    trainer.train()
    return trainer


if __name__ == "__main__":
    main()
