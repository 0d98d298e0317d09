"""What does gloo forgive that NCCL does not? NCCL's rules, enforced on ranks without a GPU.

`launch(f, rules="nccl")` runs `f` under gloo and holds it to the contract of NCCL. Without `launch`:
`torchrun --nproc-per-node 4 -m allranks.nccl program.py` checks any program on a laptop, and
`init_process_group("nccl_rules")`, after `import allranks.nccl`, is a backend as any other. What breaks a rule
raises `RuleBroken`, with one sentence that names rank, operation and rule.

| rule | source |
|---|---|
| Operations of a communicator run one after another, as issued. An unbatched send occupies it until its receive has come; messages of up to NCCL_BUFFSIZE bytes pass, where that is set. | `pointToPoint` in torch's ProcessGroupNCCL.cpp, of a group with `device_id`; NCCL user guide, CUDA stream semantics |
| The sends and receives of one `batch_isend_irecv` make progress together; it returns one request. | user guide, Point-to-point communication; `batch_isend_irecv` |
| No tags, and no receive from anyone: messages of a pair match in their order, with equal counts and types. | torch's documentation of `isend`; user guide, Point-to-point communication |
| All ranks of a communicator issue the same collective: operation, elements, type, root. | user guide, Collective operations |
| Ranks that share two communicators use them in one order. | user guide, Using multiple NCCL communicators concurrently |
| A result may be read, and a tensor that takes part written to, only after `wait()`. | user guide, CUDA stream semantics; torch's documentation, Synchronous and asynchronous collective operations |
| Tensors are contiguous, of a type that NCCL has. | `check_gpu_single_tensor` in ProcessGroupNCCL.cpp; NCCLUtils.hpp |
| No two ranks on one device. | user guide, Creating a communicator |

What it cannot show: kernels, the time of anything, hangs inside NCCL, what two streams of one GPU do to each
other. A program that it passes may still be wrong on NCCL; one that it refuses is not safe there.
"""  # noqa: E501

from .kernels import communicators, create, enforce, leave
from .station import RuleBroken

__all__ = ["RuleBroken", "communicators", "create", "enforce", "leave"]
