"""The checks of the chapter on frameworks say ✓ to right answers and ✗, with a hint, to wrong ones."""

import pytest
from verdicts import verdict

from allranks import framework_config
from allranks.check import frameworks as checks


@pytest.mark.parametrize(
    "answer, said",
    [
        ((3, 7, 11, 15), "✓ Ranks 3, 7, 11, 15"),
        ([15, 11, 7, 3], "✓"),
        ((8, 9, 10, 11), "hold other parts"),
        ((11, 27), "other layers"),
        ((3, 7, 15), "to its own group"),
        ((3, 7, 11, 15, 19, 23, 27, 31), "second stage"),
        ((3, 11), "4 ranks, one for each replica"),
        ((8, 11, 12, 15), "steps over tp groups"),
        (None, "None"),
        (11, "✗"),
    ],
)
def test_group(capsys, answer, said):
    assert said in verdict(capsys, checks.group, answer)


def degrees(flags, world_size):
    sizes = dict(framework_config.megatron(flags, world_size).mesh)
    return {
        "tensor_parallel_degree": sizes["tp"],
        "context_parallel_degree": sizes["cp"],
        "pipeline_parallel_degree": sizes["pp"],
        "data_parallel_shard_degree": sizes["dp_shard"],
        "data_parallel_replicate_degree": sizes["dp_replicate"],
    }


def without(name):
    def wrong(flags, world_size):
        return {key: size for key, size in degrees(flags, world_size).items() if key != name}

    return wrong


@pytest.mark.parametrize(
    "answer, said",
    [
        (degrees, "✓ Both have the same groups"),
        (without("tensor_parallel_degree"), "torchtitan refuses"),
        (without("data_parallel_shard_degree"), "✓"),
        (without("data_parallel_replicate_degree"), "torchtitan refuses"),
        (lambda flags, ranks: {"tensor_parallel_degree": 2}, "give both degrees"),
        (lambda flags, ranks: {}, "rank 0's tp group is (0,)"),
        (lambda flags, ranks: {"tp_degree": 2}, "is not a size that torchtitan knows"),
        (lambda flags, ranks: None, "✗"),
        (None, "✗"),
    ],
)
def test_translate(capsys, answer, said):
    assert said in verdict(capsys, checks.translate, answer)
