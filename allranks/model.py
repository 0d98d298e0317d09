"""What do all chapters train? A small GPT that learns to draw the digits 0 to 9.

A picture of scikit-learn's handwritten digits has 8×8 pixels of 17 greys. It is written as 65 tokens: the
digit it shows, then its pixels, row by row. The model predicts each token from the ones before it, so a
trained one draws a digit when it is given only the first token.
"""

from importlib.metadata import distribution

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

GREYS, DIGITS, PIXELS = 17, 10, 64
VOCABULARY = 28  # 17 greys, 10 digits, 1 unused: divisible by 2 and 4, so that ranks can share it


class Layer(nn.Module):
    """One transformer layer, norms first: (batch, sequence, hidden) to the same shape."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        y = self.norm_1(x)
        q, k, v = (
            w(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """Tokens (batch, sequence) to logits (batch, sequence, vocabulary)."""

    def __init__(self, layers=4, hidden=64, heads=4):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, hidden), nn.Embedding(PIXELS, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def digits():
    """Return all 1797 pictures as tokens (1797, 65): first the digit (17 to 26), then 64 greys (0 to 16)."""
    # What load_digits reads; but to import it takes a second.
    path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    table = torch.tensor(numpy.loadtxt(path, delimiter=",")).long()
    return torch.cat([table[:, PIXELS:] + GREYS, table[:, :PIXELS]], dim=1)


def rank_device():
    """Where a rank keeps its tensors: "cuda", its own GPU, if it has one; else, and in the notebook, "cpu".

    A notebook's serial reference is on the CPU too: its ranks are, unless there are as many GPUs, and what
    `launch` returns always is.
    """
    return "cuda" if dist.is_initialized() and torch.cuda.is_available() else "cpu"


def loss_of(model, tokens):
    """Mean cross-entropy in nats per pixel, of predicting each token of (batch, 65) from those before it."""
    tokens = tokens.to(next(model.parameters()).device)
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(model, batches, lr=3e-3):
    """Train in one process, one step a batch; return each step's loss: the reference of every chapter."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    losses = []
    for tokens in batches:
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def draw(model, digits=range(10)):
    """Let the model draw one picture for each of `digits`: (len(digits), 8, 8) greys."""
    device = next(model.parameters()).device
    tokens = torch.tensor(digits, device=device)[:, None] + GREYS
    for _ in range(PIXELS):
        greys = model(tokens)[:, -1, :GREYS].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(greys, 1)], dim=1)
    return tokens[:, 1:].view(-1, 8, 8).cpu()
