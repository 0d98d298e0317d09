"""What vLLM does with the digits model, step by step: the file that the book compares with its own engine.

    make engine
    PYTHONPATH=. .venv-engine/bin/python benchmarks/engine.py

A server and its clients, then greedy digits in float32 with an engine for each load, all on the CPU. vLLM
keeps one page of the cache for itself, so that 9 are 8. Takes 5 minutes; writes allranks/serving/vllm.json.
With names behind it, "server" or a run's, only those are recorded again.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that a call of step() is one step
os.environ["OMP_NUM_THREADS"] = "1"

import vllm
from vllm import LLM, SamplingParams

from allranks.model import PIXELS
from allranks.serving import recorded

FOLDER = Path(recorded.__file__).parent
FILE = FOLDER / "vllm.json"
OPTIONS = {
    "model": str(FOLDER / "digits"),
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": recorded.PAGE,
    "max_model_len": 2 * PIXELS,
    "max_num_seqs": 16,
    "kv_cache_memory_bytes": 64 << 20,
}
RUNS = {
    "one process": {},
    "two tensor-parallel ranks": {"tensor_parallel_size": 2},
    "four slots": {"max_num_seqs": 4},
    "a budget of 16 tokens": {"max_num_batched_tokens": 16},
    "eight pages": {"num_gpu_blocks_override": 9},
    "four guesses": {
        "speculative_config": {
            "method": "ngram",
            "num_speculative_tokens": 4,
            "prompt_lookup_min": 1,
            "prompt_lookup_max": 3,
        }
    },
}
COUNTERS = ("num_preemptions", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
CLIENTS = (1, 2, 4, 8, 16, 32)


def stepped(llm, orders):
    """The likeliest tokens for each order, the steps in which they were written, and what the cache had."""
    engine, step = llm.llm_engine, 0
    coming = sorted(enumerate(orders), key=lambda item: item[1].arrival)
    served = [{"steps": []} for _ in orders]
    while coming or engine.has_unfinished_requests():
        while coming and coming[0][1].arrival <= step:
            index, order = coming.pop(0)
            greedy = SamplingParams(
                temperature=0, max_tokens=order.new, ignore_eos=True, detokenize=False, logprobs=0
            )
            engine.add_request(str(index), {"prompt_token_ids": order.prompt}, greedy)
        for output in engine.step():
            one, written = served[int(output.request_id)], output.outputs[0]
            one["steps"] += [step] * (len(written.token_ids) - len(one["steps"]))
            one["tokens"], one["cached"] = list(written.token_ids), output.num_cached_tokens
            chances = zip(written.token_ids, written.logprobs, strict=True)
            one["logprobs"] = [round(position[token].logprob, 6) for token, position in chances]
        step += 1
    return served


def counters(llm):
    found = {metric.name.removeprefix("vllm:"): metric for metric in llm.get_metrics()}
    return {name: found[name].value for name in COUNTERS if name in found}


def run(name, load):
    """What a new engine does with a load; the halves come twice, for what the cache has kept of them."""
    found, orders = {}, recorded.loads()[load]
    llm = LLM(**OPTIONS | RUNS[name], async_scheduling=False, disable_log_stats=False)
    for again in ("", " again") if load == "halves" else ("",):
        before, requests = counters(llm), stepped(llm, orders)
        counted = {key: value - before[key] for key, value in counters(llm).items()}
        if load != "whole":
            requests = [{key: one[key] for key in ("steps", "tokens", "cached")} for one in requests]
        found[load + again] = {"requests": requests, "counters": counted}
    llm.llm_engine.engine_core.shutdown()
    return found


def client(port, requests):
    """One client's seconds to the first token and in all, for `requests` digits one after another."""
    body = {"prompt": [17], "max_tokens": PIXELS, "temperature": 0, "ignore_eos": True, "stream": True}
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    for _ in range(requests):
        start = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.readline()
        first = time.perf_counter() - start
        response.read()
        times.append((first, time.perf_counter() - start))
    return times


def server():
    """Mean seconds to the first token, in all, and tokens a second, for each number of clients."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    arguments = [f"--{key.replace('_', '-')}={value}" for key, value in OPTIONS.items() if value is not True]
    switches = [f"--{key.replace('_', '-')}" for key, value in OPTIONS.items() if value is True]
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        f"--port={port}",
        "--uvicorn-log-level=warning",
    ]
    process = subprocess.Popen([*command, *arguments, *switches], env=os.environ)
    try:
        while True:
            try:
                client(port, 3)
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit("engine: the server has ended (its message is above)")
                time.sleep(0.5)
        for clients in CLIENTS:
            start = time.perf_counter()
            with ThreadPoolExecutor(clients) as pool:
                times = [t for found in pool.map(lambda _: client(port, 6), range(clients)) for t in found]
            seconds = time.perf_counter() - start
            yield (
                clients,
                {
                    "first": round(statistics.mean(first for first, _ in times), 4),
                    "whole": round(statistics.mean(whole for _, whole in times), 4),
                    "tokens_per_second": round(len(times) * PIXELS / seconds),
                },
            )
    finally:
        process.terminate()
        process.wait()


def record(part):
    """Bring one part of the file up to date."""
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"clients": {}, "runs": {}}
    found["version"] = vllm.__version__
    if part == "server":
        found["clients"] = dict(server())
    else:
        found["runs"][part] = {}
        for load in recorded.LOADS:  # a process for each: vLLM patches what is imported whenever it starts
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
                found["runs"][part] |= pool.submit(run, part, load).result()
    FILE.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for part in sys.argv[1:] or ("server", *RUNS):
        record(part)
        print(part, flush=True)
