"""Real DeepSpeed on two CPU ranks: do its stages train as one process does, and what does it refuse?

    python benchmarks/deepspeed_stages.py

DeepSpeed builds a communication operator the first time it starts on a CPU; `"torch_adam": true` spares it
the one for its own Adam. Each configuration trains the digits model for six steps, or is refused.
What DeepSpeed does is printed beside what `allranks.deepspeed_config` says to the same configuration.
"""

import os
import subprocess
import sys
import warnings

STEPS, BATCH, RANKS = 6, 24, 2
ADAM = {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}}
OFF = {"gradient_clipping": 0.0}  # without this line DeepSpeed clips the gradient's norm at 1
CPU, NVME = {"device": "cpu", "pin_memory": False}, {"device": "nvme", "pin_memory": False}
CASES = {
    "stage 2, clipping not mentioned": {"stage": 2},
    **{f"stage {stage}": {"stage": stage} for stage in range(4)},
    **{f"stage {stage}, optimizer on cpu": {"stage": stage, "offload_optimizer": CPU} for stage in range(4)},
    "stage 3, both on cpu": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
    "stage 3, weights on cpu": {"stage": 3, "offload_param": CPU},
    "stage 2, weights on cpu": {"stage": 2, "offload_param": CPU},
    "stage 2, optimizer on nvme": {"stage": 2, "offload_optimizer": {**NVME, "nvme_path": "/tmp"}},
    "stage 2, ratio 0.5": {"stage": 2, "offload_optimizer": {**CPU, "ratio": 0.5}},
    "stage 4": {"stage": 4},
    "offload_optimiser": {"stage": 2, "offload_optimiser": CPU},
    "device tape": {"stage": 2, "offload_optimizer": {"device": "tape"}},
}
BATCHES = {
    "8 = 3 x 1 x 2": {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3},
    "accumulation alone": {"gradient_accumulation_steps": 2},
    "batch 7 on 2 ranks": {"train_batch_size": 7},
    "auto": {"train_batch_size": "auto"},
    "train_batchsize": {"train_batchsize": 8, "train_micro_batch_size_per_gpu": 4},
    "fp16 and bf16": {"train_batch_size": 8, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
}


def configurations():
    for name, zero in CASES.items():
        clipping = {} if "clipping" in name else OFF
        yield name, {"train_batch_size": BATCH, "optimizer": ADAM, "zero_optimization": zero, **clipping}
    for name, options in BATCHES.items():
        yield name, {"optimizer": ADAM, **OFF, **options}


def one_line(error):
    """What an error says, in the words of its last line of substance."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "Error" not in line and "validation" not in line), "")
    return f"{type(error).__name__}: {lines[0] if len(lines) < 2 else said}"[:150]


def trained(config, batches):
    """The losses of real DeepSpeed, averaged over the ranks."""
    import deepspeed
    import torch
    import torch.distributed as dist

    from allranks.model import GPT, loss_of

    torch.manual_seed(0)
    model = GPT(layers=2, hidden=32)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    losses = []
    for batch in batches:
        loss = loss_of(engine, batch.chunk(RANKS)[dist.get_rank()])
        engine.backward(loss)
        engine.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


def on_rank():
    import copy

    import deepspeed
    import torch
    import torch.distributed as dist

    from allranks import deepspeed_config
    from allranks.model import GPT, digits, train

    data, choose = digits(), torch.Generator().manual_seed(0)
    batches = [data[torch.randint(len(data), (BATCH,), generator=choose)] for _ in range(STEPS)]
    torch.manual_seed(0)
    alone = train(GPT(layers=2, hidden=32), batches)
    deepspeed.init_distributed("gloo")
    for name, config in configurations():
        try:
            losses = trained(copy.deepcopy(config), batches)
            apart = max(abs(ours - theirs) / ours for ours, theirs in zip(alone, losses, strict=True))
            result = f"trains; relative difference {apart:.0e}"
        except Exception as error:
            result = f"refuses: {one_line(error)}"
        try:
            deepspeed_config.check(config, RANKS)
            ours = "legal"
        except ValueError as error:
            ours = f"refuses: {error}"
        if dist.get_rank() == 0:
            print(f"| {name} | {result} | {ours} |", flush=True)


if __name__ == "__main__":
    if "RANK" in os.environ:
        warnings.simplefilter("ignore")
        on_rank()
    else:
        options = ["--standalone", f"--nproc-per-node={RANKS}", __file__]
        variables = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "torch.distributed.run", *options]
        sys.exit(subprocess.run(command, env=variables).returncode)
