"""Hugging Face's transformers loads what four ranks have exported through torch's distributed checkpoint."""

from importlib import resources
from shutil import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

from allranks import launch
from allranks.model import digits
from allranks.serving import load

transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")


def export(folder):
    model = load()
    fully_shard(model)
    writer = dcp.HuggingFaceStorageWriter(folder, save_distributed=True, enable_consolidation=True)
    dcp.save(model.state_dict(), storage_writer=writer)


@torch.no_grad()
def test_transformers_computes_the_same_logits_from_the_exported_file(tmp_path):
    launch(export, str(tmp_path))
    copy(resources.files("allranks.serving") / "digits" / "config.json", tmp_path)
    peer = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    tokens = digits()[:8]
    torch.testing.assert_close(load()(tokens), peer(tokens).logits, atol=5e-5, rtol=0)
