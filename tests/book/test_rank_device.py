"""A notebook does not decide for its ranks where tensors belong: they may lack the GPU that it has."""

import ast
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist

from allranks.model import rank_device

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def decided(source):
    """The names that a cell gives, outside of functions, a value that depends on whether there is a GPU."""
    body = ast.parse(source).body if not source.startswith("%") else []
    given = [
        node for node in body if isinstance(node, ast.Assign) and "cuda.is_available" in ast.unparse(node)
    ]
    return [ast.unparse(target) for node in given for target in node.targets]


def test_a_name_that_a_cell_decides_on_is_found():
    assert decided('DEVICE = "cuda" if torch.cuda.is_available() else "cpu"') == ["DEVICE"]
    assert decided("def new_model():\n    gpu = torch.cuda.is_available()") == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.rglob("*.ipynb")), ids=lambda path: path.stem)
def test_no_cell_decides_for_the_ranks(path):
    cells = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    assert [name for source in cells for name in decided(source)] == []


@pytest.mark.parametrize(
    "in_a_world, gpu, device",
    [(True, True, "cuda"), (True, False, "cpu"), (False, True, "cpu"), (False, False, "cpu")],
)
def test_only_a_rank_with_a_gpu_keeps_its_tensors_there(monkeypatch, in_a_world, gpu, device):
    monkeypatch.setattr(dist, "is_initialized", lambda: in_a_world)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert rank_device() == device
