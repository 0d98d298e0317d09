"""Three engines, one load: ours, vLLM as recorded, and the continuous batching of transformers."""

from importlib import resources

import pytest
import torch

from allranks import inference
from allranks.serving import Engine, Pool, Scheduler, load, recorded

transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")
OURS = {
    "one process": {},
    "four slots": {"slots": 4},
    "a budget of 16 tokens": {"budget": 16},
    "eight pages": {"pages": 8},
}


class Timed(Engine):
    """Our engine, noting the step in which each request writes each token."""

    def __init__(self, scheduler):
        super().__init__(load(), scheduler)
        self.times = {}

    def write(self, request, logits):
        self.times.setdefault(request, []).append(len(self.log) - 1)
        super().write(request, logits)


def scheduler(pages=64, slots=16, budget=None):
    return Scheduler(Pool(pages, recorded.PAGE, prefixes=True), slots, budget)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("load_name", recorded.LOADS)
@pytest.mark.parametrize("name", OURS)
def test_our_engine_does_what_vllm_did(name, load_name):
    """Tokens, their steps, what the cache had, and preemptions; the halves come again to the same pages."""
    engine = Timed(scheduler(**OURS[name]))
    for run in [run for key, run in recorded.vllm()["runs"][name].items() if key.startswith(load_name)]:
        engine.log = []
        orders = recorded.loads()[load_name]
        engine.run(orders)
        for order, request in zip(orders, run["requests"], strict=True):
            assert order.tokens[len(order.prompt) :] == request["tokens"]
            assert engine.times[order] == request["steps"]
            assert order.reused == request["cached"]
        assert sum(order.preemptions for order in orders) == run["counters"]["num_preemptions"]


def test_a_second_vllm_draws_on_from_the_pages_of_the_first():
    split, halves = recorded.vllm()["split"], recorded.loads()["halves"]
    element, shape = 4, load().shape
    full = [len(half.prompt) // recorded.PAGE * recorded.PAGE for half in halves]
    sent = [inference.moved_bytes(shape, tokens, page=recorded.PAGE, element=element) for tokens in full]
    assert sum(split["files"]) == sum(sent) and len(split["files"]) == shape.layers * len(halves)
    pictures = {row[0]: row for row in recorded.pictures()}
    for half, tokens, first, rest in zip(halves, full, split["prefill"], split["decode"], strict=True):
        assert half.prompt + first["tokens"] + rest["tokens"] == pictures[half.prompt[0]]
        assert (first["steps"], rest["steps"]) == ([0], list(range(half.new - 1)))
        assert (first["cached"], rest["cached"]) == (0, tokens)


def test_vllm_accepts_as_many_guesses_as_the_formula_says():
    for row in recorded.vllm()["coins"]:
        acceptance, guesses, times = row.values()
        found = sum(tokens * count for tokens, count in enumerate(times, 1)) / sum(times)
        assert len(times) == guesses + 1
        assert found == pytest.approx(inference.expected_tokens(acceptance, guesses), rel=0.05)


def test_transformers_writes_the_same_tokens():
    folder = resources.files("allranks.serving") / "digits"
    peer = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    orders = recorded.loads()["mixed"]
    written = peer.eval().generate_batch(
        [order.prompt for order in orders],
        generation_config=transformers.GenerationConfig(
            max_new_tokens=max(order.new for order in orders),
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        ),
        continuous_batching_config=transformers.ContinuousBatchingConfig(
            page_size=recorded.PAGE, num_blocks=64, max_batch_tokens=64
        ),
    )
    requests = recorded.vllm()["runs"]["one process"]["mixed"]["requests"]
    for order, request, output in zip(orders, requests, written.values(), strict=True):
        assert output.generated_tokens[: order.new] == request["tokens"]
