"""Does vLLM write what our engine writes? Greedy digits from one checkpoint, token for token.

    make engine
    PYTHONPATH=. .venv-engine/bin/python benchmarks/engine.py

Both run on the CPU in float32: ours in this process, vLLM in processes of its own. A page of the cache has 32
tokens, so a digit and its first 31 pixels are one whole page.
"""

import os
import time
from pathlib import Path

os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from vllm import LLM, SamplingParams

from allranks.model import GREYS, PIXELS
from allranks.serving import generate, load

PAGE = 32
DIGITS = Path(__file__).resolve().parents[1] / "allranks" / "serving" / "digits"


def engine(ranks=1, **options):
    """vLLM with our checkpoint; `ranks` share it by tensor parallelism."""
    return LLM(
        model=str(DIGITS),
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        block_size=PAGE,
        max_model_len=72,
        max_num_seqs=16,
        kv_cache_memory_bytes=64 << 20,
        disable_log_stats=False,
        tensor_parallel_size=ranks,
        **options,
    )


def drawn(llm, prompts):
    """(tokens written, tokens found in the cache) of each prompt, the likeliest token each time."""
    greedy = {"temperature": 0, "ignore_eos": True, "detokenize": False}
    settings = [SamplingParams(max_tokens=1 + PIXELS - len(prompt), **greedy) for prompt in prompts]
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], settings, use_tqdm=False)
    return [(list(out.outputs[0].token_ids), out.num_cached_tokens or 0) for out in outputs]


def preemptions(llm):
    """How often a request has lost its pages and was computed again."""
    return sum(m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions")


def main():
    ours, _ = generate(load(), torch.arange(10)[:, None] + GREYS)
    whole = [row[:1] for row in ours.tolist()]
    halves = [row[: 1 + PAGE] for row in ours.tolist()]
    print("| vLLM | tokens equal to ours | found in the cache | preemptions | seconds |")
    print("|---|---|---|---|---|")
    for name, options in {
        "one process": {},
        "two tensor-parallel ranks": {"ranks": 2},
        "room for 9 pages": {"num_gpu_blocks_override": 9},
    }.items():
        llm = engine(**options)
        for what, prompts in (("ten digits", whole), ("ten halves", halves), ("the halves again", halves)):
            before, start = preemptions(llm), time.perf_counter()
            written = drawn(llm, prompts)
            seconds = time.perf_counter() - start
            equal = sum(
                tokens == row[len(prompt) :]
                for (tokens, _), row, prompt in zip(written, ours.tolist(), prompts, strict=True)
            )
            found = sum(cached for _, cached in written)
            lost = preemptions(llm) - before
            print(f"| {name}, {what} | {equal} of 10 | {found} | {lost} | {seconds:.2f} |", flush=True)
        llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
