"""Does this environment run four ranks, and with the torch that was asked for?"""

import os

import torch
import torch.distributed as dist

from allranks import launch

RANKS = 4


def total():
    """The sum of all ranks' numbers."""
    t = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(t)
    return t.item()


def main():
    variant = os.environ["VARIANT"]
    found = "cpu" if torch.version.cuda is None else "cuda"
    if found != variant:
        raise SystemExit(
            f"torch {torch.__version__} is for {found}, asked for was {variant}; see TORCH_CPU of install.sh"
        )
    sums = launch(total, world_size=RANKS, backend="gloo")
    if sums != [sum(range(RANKS))] * RANKS:
        raise SystemExit(f"{RANKS} ranks summed up to {sums}, not to {sum(range(RANKS))} each")
    print(f"image: torch {torch.__version__}, {RANKS} ranks")


if __name__ == "__main__":
    main()
