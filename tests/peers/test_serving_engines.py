"""Three engines, one load: ours, vLLM as recorded, and the continuous batching of transformers."""

from importlib import resources

import pytest
import torch

from allranks.serving import Engine, Pool, Scheduler, load, recorded

transformers = pytest.importorskip("transformers", reason="the peer transformers is not installed")
OURS = {
    "one process": {},
    "four slots": {"slots": 4},
    "a budget of 16 tokens": {"budget": 16},
    "eight pages": {"pages": 8},
}


def serve(orders, pages=64, slots=16, budget=None):
    pool = Pool(pages, recorded.PAGE, prefixes=True)
    Engine(load(), Scheduler(pool, slots, budget)).run(orders)
    return orders


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", OURS)
def test_our_engine_does_what_vllm_did(name):
    """Tokens, what the cache had, and preemptions. The steps are compared in the chapter."""
    run = recorded.vllm()["runs"][name]["mixed"]
    orders = serve(recorded.loads()["mixed"], **OURS[name])
    for order, request in zip(orders, run["requests"], strict=True):
        assert order.tokens[len(order.prompt) :] == request["tokens"]
        assert order.preemptions or order.reused == request["cached"]
    assert sum(order.preemptions for order in orders) == run["counters"]["num_preemptions"]


def test_transformers_writes_the_same_tokens():
    folder = resources.files("allranks.serving") / "digits"
    peer = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    orders = serve(recorded.loads()["mixed"])
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
    for order, output in zip(orders, written.values(), strict=True):
        assert output.generated_tokens[: order.new] == order.tokens[len(order.prompt) :]
