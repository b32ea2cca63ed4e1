"""Train on labels of which some are missing, in a plain torch loop.

Run it with `python examples/plain_torch.py`; it needs `pip install 'earmark[train]'`. The data are
made up: five classes, of which a person was asked about half, and a teacher that is mostly right.
"""

import numpy as np
import torch

import earmark


def made_up(n_clips: int = 600) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return inputs [clip, feature], labels (+1, -1, 0: nobody asked) and a teacher's logits."""
    random = np.random.default_rng(0)
    present = random.random((n_clips, 5)) < 0.2
    was_asked = random.random(present.shape) < 0.5
    labels = np.where(was_asked, np.where(present, 1, -1), 0).astype(np.int8)
    inputs = present @ random.normal(size=(5, 16)) + 0.3 * random.normal(size=(n_clips, 16))
    scores = np.where(present, 2.0, -2.0) + random.normal(size=present.shape)
    return torch.tensor(inputs, dtype=torch.float32), labels, scores


def main(strategy: str = "hedge@10", n_epochs: int = 8) -> list[float]:
    """Train a small network, print and return the mean loss of every epoch."""
    torch.manual_seed(0)
    inputs, labels, scores = made_up()
    supervision = earmark.Supervision(labels, scores, strategy)  # with your own teacher's logits
    network = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for epoch in range(n_epochs):
        total = 0.0
        for rows in torch.randperm(len(inputs)).split(64):  # which clips are in the batch
            loss = supervision.loss(network(inputs[rows]), rows, epoch=epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows) / len(inputs)
        losses.append(total)
        print(f"epoch {epoch + 1}: loss {total:.3f}")
    return losses


if __name__ == "__main__":
    main()
