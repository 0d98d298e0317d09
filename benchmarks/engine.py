"""What vLLM does with the digits model, step by step: the file that the book compares with its own engine.

    make engine
    PYTHONPATH=. .venv-engine/bin/python benchmarks/engine.py

A server and its clients, then greedy digits in float32 with an engine for each load, all on the CPU. vLLM
keeps one page of the cache for itself, so that 9 are 8. Takes 6 minutes; writes allranks/serving/vllm.json.
With names behind it, "server", "split", "coins" or a run's, only those are recorded again.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # so that a call of step() is one step
os.environ["OMP_NUM_THREADS"] = "1"

import engine_draft
import vllm
from safetensors.torch import load_file
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig

from allranks.model import PIXELS
from allranks.serving import recorded
from allranks.serving.request import Request

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
GUESSES = ((0.6, 2), (0.7, 3), (0.8, 2), (0.8, 5), (0.9, 2), (0.9, 10))  # Leviathan et al. 2023, table 1


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


def pool(role, folder, orders):
    """What one of two engines does with orders: it writes their caches to a folder, or reads them there."""
    connector = KVTransferConfig(
        kv_connector="ExampleConnector",
        kv_role=role,
        kv_connector_extra_config={"shared_storage_path": folder},
    )
    llm = LLM(**OPTIONS, async_scheduling=False, disable_log_stats=False, kv_transfer_config=connector)
    requests = stepped(llm, orders)
    llm.llm_engine.engine_core.shutdown()
    return [{key: one[key] for key in ("steps", "tokens", "cached")} for one in requests]


def split():
    """The halves in two engines: one reads them and writes their first pixel, the other draws the rest."""
    halves = recorded.loads()["halves"]
    with tempfile.TemporaryDirectory() as folder:
        prefill = apart(pool, "kv_producer", folder, [Request(one.prompt, 1) for one in halves])
        nbytes = [moved(path) for path in sorted(Path(folder).rglob("*.safetensors"))]
        rest = [
            Request(one.prompt + first["tokens"], one.new - 1)
            for one, first in zip(halves, prefill, strict=True)
        ]
        decode = apart(pool, "kv_consumer", folder, rest)
    return {"prefill": prefill, "decode": decode, "files": nbytes}


def moved(path):
    """Bytes of keys and values in a file of the connector, which has one layer of one request."""
    return sum(tensor.nbytes for tensor in load_file(path).values())


def coins():
    """How many passes with all their guesses write 1, 2, … tokens, for each of `GUESSES`."""
    most = max(guesses for _, guesses in GUESSES)
    draft = {"method": "custom_class", "model": "engine_draft.Coins", "num_speculative_tokens": most}
    llm = LLM(**OPTIONS, speculative_config=draft, async_scheduling=False, disable_log_stats=False)
    found = []
    for acceptance, guesses in GUESSES:
        engine_draft.toss(acceptance, guesses)
        orders, times = [one for _ in range(10) for one in recorded.loads()["whole"]], [0] * (guesses + 1)
        for order, served in zip(orders, stepped(llm, orders), strict=True):
            if order.prompt + served["tokens"] != engine_draft.PICTURES[order.prompt[0]]:
                sys.exit(f"engine: with {guesses} guesses, digit {order.prompt} has other pixels")
            for written in full_passes(served["steps"], guesses):
                times[written - 1] += 1
        found.append({"acceptance": acceptance, "guesses": guesses, "times": times})
    llm.llm_engine.engine_core.shutdown()
    return found


def full_passes(steps, guesses):
    """Tokens of each pass with all guesses, from the step of each token; the first pass reads the prompt."""
    written = 0
    for step in sorted(set(steps)):
        count = steps.count(step)
        if 0 < written < PIXELS - guesses:
            yield count
        written += count


def apart(function, *args):
    """The result of a function in a process of its own: vLLM patches what is imported whenever it starts."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        return process.submit(function, *args).result()


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
    elif part == "split":
        found["split"] = split()
    elif part == "coins":
        found["coins"] = apart(coins)
    else:
        found["runs"][part] = {}
        for load in recorded.LOADS:
            found["runs"][part] |= apart(run, part, load)
    FILE.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for part in sys.argv[1:] or ("server", *RUNS, "split", "coins"):
        record(part)
        print(part, flush=True)
