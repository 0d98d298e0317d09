"""Where do the published runs come from, how do their sources count, and what does their software do?"""

from collections import OrderedDict, namedtuple

FIELDS = (
    "key url counts counted zero overlap recipe fused sequence_parallel dropout outside unit summed gathered"
    " loss first"
)


class Stack(namedtuple("Stack", FIELDS)):
    """A source of runs.

    key: in the bibliography. url: where its table is. counts: which FLOPs its MFU or TFLOP/s are. counted:
    the recomputation in these FLOPs. zero: what shards the states where a row does not say. overlap, recipe,
    fused, sequence_parallel, dropout: options of `plan.price`. outside:
    bytes that its memory counts and the planner does not. unit: bytes of what it prints as memory. summed:
    whether gradients in bf16 are summed in 4 bytes beside them. gathered: whether it keeps the inputs that
    sequence parallelism gathered, instead of gathering them again. loss: bytes of a logit while the loss is
    computed. first: whether it prints the memory of the first stage, and not of the fullest.
    """


def stack(
    key, url, counts, counted="none", zero="ZeRO-1", overlap=1.0, recipe="copied-20", fused=True,
    sequence_parallel=True, dropout=False, outside=0, unit=2**30, summed=False,
    gathered=False, loss=12, first=False,
):  # fmt: skip
    return Stack(
        key, url, counts, counted, zero, overlap, recipe, fused, sequence_parallel, dropout, outside, unit,
        summed, gathered, loss, first,
    )  # fmt: skip


GITHUB = "https://github.com/"
CAUSAL = "model FLOPs, half of the attention's pairs"
ALL = "model FLOPs, all pairs of tokens"
OLD = {"fused": False, "sequence_parallel": False, "dropout": True, "overlap": 0.0}

STACKS = OrderedDict(
    [
        (
            "dgxc",
            stack(
                "dgxc2025", GITHUB + "NVIDIA/dgxc-benchmarking", ALL + "; in FP8 a share of the FP8 peak"
            ),
        ),
        ("nemo", stack("nemo2024", GITHUB + "NVIDIA/NeMo", ALL)),
        ("nemo-long", stack("nemo2024", GITHUB + "NVIDIA/NeMo", ALL)),
        ("megatron-bridge", stack("megatronbridge2026", GITHUB + "NVIDIA-NeMo/Megatron-Bridge", CAUSAL)),
        ("automodel", stack("automodel2026", GITHUB + "NVIDIA-NeMo/Automodel", CAUSAL, zero="FSDP")),
        (
            "llm-foundry",
            stack("llmfoundry", GITHUB + "mosaicml/llm-foundry", ALL + "; HFU adds a third", zero="FSDP"),
        ),
        (
            "torchtitan",
            # loss: cross_entropy of logits.float() under loss_parallel holds 4 tensors of 4 bytes in backward
            # (torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward)
            stack(
                "torchtitan", GITHUB + "pytorch/torchtitan", ALL, zero="FSDP", gathered=True, loss=16,
            ),
        ),
        (
            "fms-fsdp",
            stack("fmsfsdp", GITHUB + "foundation-model-stack/fms-fsdp", ALL + "; rounded", zero="FSDP"),
        ),
        (
            "playbook",
            # first: helpers.py, log_throughput, writes on rank 0. loss: logits in 2 bytes and in 4, and less
            # their maximum in 4, on which the rest works in place (tensor_parallel/functional.py)
            stack(
                "tazi2025", "https://huggingface.co/spaces/nanotron/ultrascale-playbook",
                ALL + "; with a pipeline the tied embedding counts twice", overlap=0.0,
                summed=True, gathered=True, loss=10, first=True,
            ),
        ),
        (
            "bigscience",
            stack(
                "bigscience2022", GITHUB + "bigscience-workshop/bigscience",
                "FLOPs with recomputation: MFU is 3/4 of it", counted="full", summed=True, outside=13 * 2**30,
                loss=8, **OLD,
            ),
        ),
        (
            "bigscience-1b3",
            # ZeRO: tr3m-1B3-emb-norm-pile.slurm, which the page names. outside: a CUDA context, as the page
            # measures, and DeepSpeed's two buckets of 5e8 elements (its configuration's default)
            stack(
                "bigscience2022", GITHUB + "bigscience-workshop/bigscience",
                "FLOPs with recomputation, without attention", counted="full",
                outside=1113 * 2**20 + 2 * 10**9, loss=8, **OLD,
            ),
        ),
        (
            "narayanan",
            stack(
                "narayanan2021", "https://arxiv.org/abs/2104.04473", "FLOPs with recomputation",
                counted="full", zero="none", **OLD,
            ),
        ),
        (
            "korthikanti",
            stack("korthikanti2022", "https://arxiv.org/abs/2205.05198", "seconds", zero="none", **OLD),
        ),
        ("megascale", stack("jiang2024megascale", "https://arxiv.org/abs/2402.15627", ALL)),
        (
            "llama3",
            stack("grattafiori2024", "https://arxiv.org/abs/2407.21783", "not said", zero="ZeRO-2"),
        ),
        ("nanotron", stack("nanotronbench", "https://huggingface.co/nanotron/old_bench", "not said")),
        ("maxtext", stack("maxtext", GITHUB + "AI-Hypercomputer/maxtext", "TFLOP/s a chip")),
    ]
)  # fmt: skip
