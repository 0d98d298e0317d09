"""Where does a piece of a tensor belong? Checkpoints that ranks of another number and layout can load.

A piece is what a rank holds of a whole tensor: (offsets, tensor), where `offsets` say where it begins in the
whole, one number a dim. Pieces go by the name that the tensor has in the model of one process, so a layout
that cuts the model elsewhere asks for other pieces of the same names (Wan et al. 2025).
"""

import hashlib
import json
import shutil
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Replicate, Shard

from allranks.parallel.tensor import Column, ParallelEmbedding, Row

MOMENTS = "exp_avg", "exp_avg_sq"


def overlap(saved, wanted):
    """Return what two boxes (offsets, sizes) share, as slices of one and of the other; None if nothing."""
    there, here = [], []
    for a, m, b, n in zip(*saved, *wanted, strict=True):
        low, high = max(a, b), min(a + m, b + n)
        if low >= high:
            return None
        there.append(slice(low - a, high - a))
        here.append(slice(low - b, high - b))
    return tuple(there), tuple(here)


def save(pieces, folder):
    """Write this rank's `pieces`, a dict from names to pieces; of equal pieces, the first rank's alone.

    Every rank of the world calls it. A folder without "index.json", which is written last, is not complete.
    If a rank cannot write, `RanksFailed` is raised on all.
    """
    folder, rank = Path(folder), dist.get_rank()
    boxes = {name: (offsets, list(t.shape)) for name, (offsets, t) in pieces.items()}
    plans, index, mine = [None] * dist.get_world_size(), {}, {}
    dist.all_gather_object(plans, boxes)
    for writer, plan in enumerate(plans):
        for name, box in plan.items():
            entries = index.setdefault(name, [])
            if box not in [entry[1:] for entry in entries]:
                entries.append((writer, *box))
                if writer == rank:
                    mine[name] = pieces[name][1].detach().contiguous()

    def write_pieces():
        folder.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(mine, folder / f"rank_{rank}.safetensors")

    def write_index():
        if rank == 0:
            (folder / "index.part").write_text(json.dumps(index))
            (folder / "index.part").replace(folder / "index.json")

    together(write_pieces), together(write_index)


@torch.no_grad()
def load(pieces, folder):
    """Fill the tensors of `pieces`, in place, from whatever pieces another layout has saved."""
    index = json.loads(Path(folder, "index.json").read_text())
    for name, (offsets, t) in pieces.items():
        for writer, *saved in index[name]:
            common = overlap(saved, (offsets, t.shape))
            if common:
                there, here = common
                file = Path(folder, f"rank_{writer}.safetensors")
                with safetensors.safe_open(file, "pt") as stored:
                    t[here] = stored.get_tensor(name)[there]


def cut_dims(part):
    """Return {parameter: dim} for the parameters of `part` of which this rank has a slice along that dim."""
    dims = {}
    for module in part.modules():
        if isinstance(module, Column | ParallelEmbedding):
            dims.update(dict.fromkeys(module.parameters(), 0))
        elif isinstance(module, Row):
            dims[module.weight] = 1
    return dims


def whole_names(part, stage=0):
    """Yield (name, parameter) of pipeline stage number `stage`: names as in the model of one process."""
    first = stage * len(part.layers)
    for name, p in part.named_parameters():
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            name = f"layers.{first + int(layer)}.{rest}"
        yield name, p


def adam_states(p, optimizer):
    """Return what Adam keeps for the parameter `p`, by name; make it, zeros, if there is nothing yet."""
    state = optimizer.state[p]
    if not state:
        state["step"] = torch.tensor(0.0)
        state.update({moment: torch.zeros_like(p) for moment in MOMENTS})
    return state


def named_states(part, optimizer, stage=0):
    """Yield (name, parameter, tensor) for each weight and each of Adam's states of pipeline stage `stage`."""
    for name, p in whole_names(part, stage):
        yield name, p, p
        for kind, t in adam_states(p, optimizer).items():
            yield f"{name}.{kind}", p, t


def pieces_of(part, optimizer, group=None, stage=0):
    """Return this rank's weights and Adam's states as pieces; the ranks of `group` share its layers."""
    pieces, dims = {}, cut_dims(part)
    for name, p, t in named_states(part, optimizer, stage):
        offsets = [0] * t.ndim
        if p in dims and t.ndim:
            offsets[dims[p]] = dist.get_rank(group) * t.shape[dims[p]]
        pieces[name] = offsets, t
    return pieces


def dtensors_of(part, optimizer, mesh, stage=0):
    """Return the same as DTensors, which torch's DCP saves; `mesh`, of one axis, has the ranks of `group`."""
    found, dims = {}, cut_dims(part)
    for name, p, t in named_states(part, optimizer, stage):
        placement = Shard(dims[p]) if p in dims and t.ndim else Replicate()
        found[name] = DTensor.from_local(t.detach(), mesh, [placement], run_check=False)
    return found


class RanksFailed(RuntimeError):
    """Raised on every rank by `together`; it names the ranks at fault and what happened there."""


def cause(error):
    """Say in one line what went wrong on which rank: of DCP's exception, of `together`'s, or of any other."""
    if isinstance(error, RanksFailed):
        return str(error)
    failures = (
        error.failures if isinstance(error, dcp.CheckpointException) else {dist.get_rank(): (error, None)}
    )
    return " · ".join(f"rank {rank}: {type(e).__name__}: {e}" for rank, (e, _) in sorted(failures.items()))


def together(act):
    """Call `act()` on every rank and return what all of them returned, by rank, once all have ended.

    If it raises on a rank, `RanksFailed` is raised on all. A collective within `act` must not be left waiting
    for a rank that raises; nest `together` there. What `act` returns must be something that pickles.
    """
    answers, answer = [None] * dist.get_world_size(), (None, None)
    try:
        answer = act(), None
    except (Exception, dcp.CheckpointException) as error:
        answer = None, cause(error)
    dist.all_gather_object(answers, answer)
    causes = dict.fromkeys(found for _, found in answers if found)
    if causes:
        raise RanksFailed(" · ".join(causes))
    return [result for result, _ in answers]


def keep(write, folder):
    """Let `write(path)` write a checkpoint, on every rank; it is called `folder` only once it is complete.

    If anything fails on any rank, RuntimeError is raised on all and names that rank; what `write` sends must
    end on all ranks or on none, as in `save` and in DCP's. Other checkpoints are not touched, one that is
    called `folder` already is kept, and "hashes.json" has the SHA-256 of each file.
    """
    folder, rank, ranks = Path(folder), dist.get_rank(), dist.get_world_size()
    part, hashes = folder.with_name(f"{folder.name}.part"), {}

    def write_part():
        write(part)

    def hash_share():
        files = sorted(f for f in part.rglob("*") if f.is_file())[rank::ranks]
        return {str(f.relative_to(part)): digest(f) for f in files}

    def rename():
        if rank == 0:
            (part / "hashes.json").write_text(json.dumps(hashes))
            part.replace(folder)

    try:
        together(lambda: remove(part) if rank == 0 else None)
        together(write_part)
        for share in together(hash_share):
            hashes.update(share)
        together(rename)
    except RanksFailed as error:
        raise RuntimeError(f"{folder.name} is not complete ({error})") from None


def remove(folder):
    """Remove a folder and what is in it, if there is one."""
    shutil.rmtree(folder, ignore_errors=True)


def digest(file):
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def damaged(folder):
    """Return the names of files in a checkpoint that `keep` wrote which are missing or not what they were."""
    hashes = json.loads(Path(folder, "hashes.json").read_text())
    files = {name: Path(folder, name) for name in hashes}
    return [name for name, file in files.items() if not file.exists() or digest(file) != hashes[name]]


def newest(parent):
    """Return the newest of the checkpoints "step_…" in a folder that is complete and not damaged, or None."""
    found = [path for path in Path(parent).glob("step_*") if path.suffix != ".part"]
    found.sort(key=lambda path: int(path.name.removeprefix("step_")))
    return next((path for path in reversed(found) if not damaged(path)), None)


def disagreeing(tensors):
    """Return {name: ranks} for those of `tensors` whose bits differ from most ranks' on these ranks.

    tensors: a dict, on every rank a replica of the same. Each rank sends 8 bytes a tensor. Two equal flips in
    one tensor escape the XOR; that an error reached all ranks alike, by a collective, cannot be seen.
    """
    hashes = torch.stack([torch.hash_tensor(t.detach()) for t in tensors.values()]).view(torch.int64)
    table = hashes.new_empty(dist.get_world_size() * len(hashes))
    dist.all_gather_single(table, hashes)
    table = table.view(-1, len(hashes))
    odd = (table != table.mode(0).values).T
    return {name: ranks.nonzero().flatten().tolist() for name, ranks in zip(tensors, odd) if ranks.any()}
