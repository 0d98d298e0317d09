"""Train the model that the chapters on inference serve, and store it in the package.

`python tools/train_llama.py` takes two minutes on one core and writes allranks/serving/digits/. One thread
and a seed make it repeatable on one machine; another may round differently, so the weights are stored.
"""

import math
import sys
from pathlib import Path

import torch

from allranks.model import digits, loss_of
from allranks.serving import Llama, save
from allranks.transformer import PRESETS

FOLDER = Path(__file__).resolve().parents[1] / "allranks" / "serving" / "digits"
STEPS, BATCH, RATE, TEST = 1000, 32, 4e-3, 197


def train(steps=STEPS):
    """Return the model, trained with all pictures but the `TEST` whose loss is shown as unseen."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, data = Llama(PRESETS["served"]), digits()
    data = data[torch.randperm(len(data))]
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    for step in range(steps):
        warm, left = min(1, (step + 1) / 50), 0.5 + 0.5 * math.cos(math.pi * step / steps)
        optimizer.param_groups[0]["lr"] = RATE * warm * left
        batch = data[TEST:][torch.randint(len(data) - TEST, (BATCH,))]
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            with torch.no_grad():
                unseen = loss_of(model, data[:TEST]).item()
            print(f"step {step + 1}: {loss.item():.3f}, unseen {unseen:.3f}", file=sys.stderr)
    return model


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    save(train(), FOLDER)
