"""DeepSpeed's own reading of a configuration, beside ours: its batches, its refusals, what it lets pass."""

import os
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allranks import deepspeed_config

CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "/local"}
SIZES = st.none() | st.integers(1, 12)


class Ranks:
    """What DeepSpeed asks for the number of ranks."""

    def __init__(self, world_size):
        self.world_size = world_size

    def get_data_parallel_world_size(self):
        return self.world_size


@pytest.fixture(scope="module")
def read():
    """A function that lets DeepSpeed read a configuration: what it understood, or its objection."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runtime = pytest.importorskip(
            "deepspeed.runtime.config", reason="the peer DeepSpeed is not installed"
        )

    def reading(config, world_size, monkeypatch):
        monkeypatch.setattr(runtime.dist, "get_rank", lambda: 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return runtime.DeepSpeedConfig(config, mpu=Ranks(world_size))

    return reading


def test_deepspeed_completes_and_refuses_the_same_batches(read, monkeypatch):
    @settings(max_examples=200, deadline=None)
    @given(SIZES, SIZES, SIZES, st.integers(1, 4))
    def agree(batch, micro, steps, ranks):
        sizes = (batch, micro, steps)
        names = (deepspeed_config.BATCH, deepspeed_config.MICRO, deepspeed_config.STEPS)
        config = {name: size for name, size in zip(names, sizes, strict=True) if size is not None}
        try:
            theirs = read(dict(config), ranks, monkeypatch)
        except (AssertionError, ZeroDivisionError):
            with pytest.raises(ValueError):
                deepspeed_config.check(config, ranks)
        else:
            ours = deepspeed_config.check(config, ranks)
            assert ours[:3] == tuple(getattr(theirs, name) for name in names)
            assert ours.clipping == theirs.gradient_clipping

    agree()


def zero(**options):
    return {"train_batch_size": 4, "zero_optimization": options}


@pytest.mark.parametrize(
    "config",
    [
        zero(stage=4),
        zero(stage=2, offload_optimiser=CPU),
        zero(stage=2, offload_optimizer={"device": "tape"}),
        zero(stage=2, offload_optimizer={**CPU, "ratio": 0.5}),
        {"train_batch_size": 4, "fp16": {"enabled": True}, "bf16": {"enabled": True}},
        {"train_batch_size": "auto"},
    ],
)
def test_both_refuse(read, monkeypatch, config):
    with pytest.raises(ValueError):
        deepspeed_config.check(config, 2)
    with pytest.raises((AssertionError, TypeError, ValueError)):
        read(config, 2, monkeypatch)


@pytest.mark.parametrize(
    "config",
    [
        zero(stage=2, offload_param=CPU),
        zero(stage=2, offload_optimizer=NVME),
        zero(stage=0, offload_optimizer=CPU),
        zero(stage=3, offload_optimizer={"device": "nvme"}),
        {"train_batch_size": 4, "train_batchsize": 8},
    ],
)
def test_deepspeed_reads_without_a_word_what_would_have_no_effect(read, monkeypatch, config):
    with pytest.raises(ValueError):
        deepspeed_config.check(config, 2)
    assert read(config, 2, monkeypatch).train_batch_size == 4
