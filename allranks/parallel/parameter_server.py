"""How do ranks train with a parameter server? Workers push gradients, owners of weights answer pulls.

One server that waits for all workers, or for one at a time; and slices with any owners. With as many equal
slices as workers, each the owner of one, a push is a reduce-scatter and a pull an all-gather.
"""

import torch
import torch.distributed as dist


def serve(weights, rate, steps):
    """Rank 0: average the gradients of all other ranks, update `weights`, and send them to all."""
    gradient, workers = torch.empty_like(weights), range(1, dist.get_world_size())
    for _ in range(steps):
        total = torch.zeros_like(weights)
        for worker in workers:
            dist.recv(gradient, worker)
            total += gradient
        weights -= rate * total / len(workers)
        for worker in workers:
            dist.send(weights, worker)


def work(weights, gradient_at, batches):
    """Every other rank: push `gradient_at(weights, batch)` for each batch, and pull the weights."""
    for batch in batches:
        dist.send(gradient_at(weights, batch), 0)
        dist.recv(weights, 0)


def serve_in_turns(weights, rate, turns):
    """Rank 0: update `weights` with each gradient at once; return how stale each was.

    turns: the ranks to receive from, in order. None is whichever comes first, which NCCL does not have.
    """
    gradient, given, stale = torch.empty_like(weights), {}, []
    for version, turn in enumerate(turns):
        worker = dist.recv(gradient, turn)
        stale.append(version - given.get(worker, 0))
        weights -= rate * gradient
        given[worker] = version + 1
        dist.send(weights, worker)
    return stale


def exchange(sends, receives):
    """Send and receive pairs of a tensor and a rank, all at once; skip empty ones, and those to oneself."""
    messages = [
        dist.P2POp(operation, tensor, rank)
        for operation, pairs in ((dist.isend, sends), (dist.irecv, receives))
        for tensor, rank in pairs
        if len(tensor) and rank != dist.get_rank()
    ]
    for request in dist.batch_isend_irecv(messages) if messages else ():
        request.wait()


def push(gradient, slices, workers):
    """Return the sum of the workers' gradients on this rank's slice; `slices` are elements of each rank."""
    pieces, rank = gradient.split(slices), dist.get_rank()
    came = [pieces[rank] if rank == worker else torch.empty_like(pieces[rank]) for worker in workers]
    owners = range(len(slices)) if rank in workers else ()
    pushes = [(pieces[owner], owner) for owner in owners]
    exchange(pushes, zip(came, workers, strict=True))
    return sum(came)


def pull(weights, slices, workers):
    """Fill the workers' `weights` from the ranks that own slices of it."""
    pieces, rank = weights.split(slices), dist.get_rank()
    owners = range(len(slices)) if rank in workers else ()
    answers = [(pieces[rank], worker) for worker in workers]
    exchange(answers, [(pieces[owner], owner) for owner in owners])
