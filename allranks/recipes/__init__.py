"""How is the same model trained under each framework? A recipe takes a model and returns what a loop needs.

A recipe returns (model, backward, step): `backward(loss)` makes the gradients, `step()` averages them where
the framework has not done so yet, changes the weights and clears the gradients. *Frameworks* shows them all.
"""

from .data_parallel import accelerate, by_hand, ddp, deepspeed, fsdp2, one_process
from .recording import recorded
from .tensor_parallel import megatron
from .training import train, train_all

__all__ = [
    "accelerate",
    "by_hand",
    "ddp",
    "deepspeed",
    "fsdp2",
    "megatron",
    "one_process",
    "recorded",
    "train",
    "train_all",
]
