"""Train on labels of which some are missing, with Lightning.

Run it with `python examples/lightning_module.py`; it needs `pip install 'earmark[examples]'`. The
callback keeps in checkpoints what the loss `consistency` remembers; others need none.
"""

from typing import Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import earmark


class Student(LightningModule):
    """A network whose batches are (inputs, rows): rows say which clips they are of."""

    def __init__(self, supervision: earmark.Supervision) -> None:
        super().__init__()
        self.supervision, self.network, self.losses = supervision, torch.nn.Linear(16, 5), []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        inputs, rows = batch
        loss = self.supervision.loss(self.network(inputs), rows, epoch=self.current_epoch)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class KeepSupervision(Callback):
    """Keeps in checkpoints what a supervision remembers."""

    def on_save_checkpoint(self, _: Trainer, student: Student, checkpoint: dict[str, Any]) -> None:
        checkpoint["supervision"] = student.supervision.state_dict()

    def on_load_checkpoint(self, _: Trainer, student: Student, checkpoint: dict[str, Any]) -> None:
        student.supervision.load_state_dict(checkpoint["supervision"])


def main(strategy: str = "hedge@10", **options: Any) -> Trainer:
    """Train on made-up data, of which a person was asked about half; return the trainer."""
    random = np.random.default_rng(0)
    present = random.random((600, 5)) < 0.2
    labels = np.where(random.random(present.shape) < 0.5, np.where(present, 1, -1), 0)
    scores = np.where(present, 2.0, -2.0) + random.normal(size=present.shape)
    inputs = torch.tensor(present @ random.normal(size=(5, 16)), dtype=torch.float32)
    trainer = Trainer(callbacks=[KeepSupervision()], logger=False, **options)
    student = Student(earmark.Supervision(labels, scores, strategy, recordings=np.arange(600) // 2))
    clips = TensorDataset(inputs, torch.arange(len(inputs)))
    trainer.fit(student, DataLoader(clips, batch_size=64, shuffle=True))
    print(f"loss: {student.losses[0]:.3f} at first, {student.losses[-1]:.3f} at last")
    return trainer


if __name__ == "__main__":
    main(max_epochs=8, enable_checkpointing=False)
