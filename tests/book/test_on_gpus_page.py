"""The example of the page On GPUs does what its comments say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "book" / "on_gpus.md"


def test_the_example_passes_on_gloo_and_is_refused_under_the_rules():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    *program, last = example.strip().split("\n")
    names = {"__name__": "__main__"}
    exec("\n".join(program), names)
    sentence = last.partition("# ")[2].removesuffix(" …")
    assert sentence.startswith("NCCL would hang")
    with pytest.raises(RuntimeError, match=sentence):
        exec(last, names)
