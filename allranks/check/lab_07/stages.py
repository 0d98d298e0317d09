"""A rank's part of the running model: its layers, cut by the reader's functions."""

import torch
import torch.distributed as dist
from torch import nn

MATRICES = "query", "key", "value", "up", "out", "down"


class Stage(nn.Module):
    """Layers of `model` for this rank's stage; hidden states, or on the last stage logits, come out."""

    def __init__(self, model, cut_layer, through, groups):
        super().__init__()
        stage, stages = dist.get_rank(groups["pp"]), dist.get_world_size(groups["pp"])
        each = len(model.layers) // stages
        self.first, self.last = stage == 0, stage == stages - 1
        self.start, self.hidden = stage * each, model.position.weight.shape[1]
        self.through, self.group = through, groups["tp"]
        self.layers = nn.ModuleList(model.layers[self.start : self.start + each])
        self.cut = set()
        for layer in self.layers:
            cut_layer(layer, self.group)
            for name in MATRICES:
                linear = getattr(layer, name)
                self.cut |= {linear.weight} if name in ("out", "down") else set(linear.parameters())
        if self.first:
            self.token, self.position = model.token, model.position
        if self.last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x):
        if self.first:
            x = self.token(x) + self.position(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = self.through(layer, x, self.group)
        return self.head(self.norm(x)) if self.last else x
