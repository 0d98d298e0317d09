"""Where do the published runs come from, how do their sources count, and what does their software do?"""

from collections import OrderedDict, namedtuple

from ..plan import IN_2021

FIELDS = "key url counts counted zero overlap recipe fused sequence_parallel dropout"


class Stack(namedtuple("Stack", FIELDS)):
    """A source of runs.

    key: in the bibliography. url: where its table is. counts: which FLOPs its MFU or TFLOP/s are. counted:
    the recomputation in these FLOPs. zero: what shards the states where a row does not say. overlap, recipe,
    fused, sequence_parallel, dropout: options of `plan.price`.
    """


def stack(
    key, url, counts, counted="none", zero="ZeRO-1", overlap=1.0, recipe="copied-20", fused=True,
    sequence_parallel=True, dropout=False,
):  # fmt: skip
    return Stack(
        key, url, counts, counted, zero, overlap, recipe, fused, sequence_parallel, dropout
    )  # fmt: skip


GITHUB = "https://github.com/"
CAUSAL = "model FLOPs, half of the attention's pairs"
ALL = "model FLOPs, all pairs of tokens"
OLD = {name: value for name, value in IN_2021.items() if name in FIELDS.split()}
OLD.update(fused=False, dropout=True)

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
            stack("torchtitan", GITHUB + "pytorch/torchtitan", ALL, zero="FSDP"),
        ),
        (
            "fms-fsdp",
            stack("fmsfsdp", GITHUB + "foundation-model-stack/fms-fsdp", ALL + "; rounded", zero="FSDP"),
        ),
        (
            "playbook",
            stack(
                "tazi2025", "https://huggingface.co/spaces/nanotron/ultrascale-playbook",
                ALL + "; with a pipeline the tied embedding counts twice", overlap=0.0,
            ),
        ),
        (
            "bigscience",
            stack(
                "bigscience2022", GITHUB + "bigscience-workshop/bigscience",
                "FLOPs with recomputation: MFU is 3/4 of it", counted="full", **OLD,
            ),
        ),
        (
            "bigscience-1b3",
            # ZeRO: tr3m-1B3-emb-norm-pile.slurm, which the page names
            stack(
                "bigscience2022", GITHUB + "bigscience-workshop/bigscience",
                "FLOPs with recomputation, without attention", counted="full", **OLD,
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
