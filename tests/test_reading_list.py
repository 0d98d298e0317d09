"""The reading list holds every work it should, with all that is said of each, and its paths fit the time."""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml
from pybtex.database import parse_file

from allranks.claims import table

BOOK = Path(__file__).resolve().parent.parent / "book"
NOTEBOOKS = BOOK.parent / "notebooks"
SCRIPT = BOOK / "_static" / "reading_list.js"
STORED = yaml.safe_load((BOOK / "reading_list.yaml").read_text(encoding="utf-8"))
WORKS = {work["key"]: work for work in STORED["works"]}
KINDS = {"paper", "survey", "book", "documentation", "tutorial", "code", "blog", "tool", "conference"}
STATES = {"current", "maintained", "superseded", "ended"}
ALWAYS = {"key", "title", "name", "kind", "topic", "priority", "minutes", "focus", "insight", "why", "needs"}
ALWAYS |= {"chapters", "state"}
SOMETIMES = {"url", "labs", "claims", "state_note", "corrected", "checked"}

# What the list has to hold: title → address, or None where any address will do.
WANTED = {
    "Understanding LLMs: A Comprehensive Overview from Training to Inference": None,
    "The Llama 3 Herd of Models": None,
    "A Hitchhiker's Guide On Distributed Training of Deep Neural Networks": None,
    "Scaling Distributed Machine Learning with the Parameter Server": None,
    "Sparse Communication for Distributed Gradient Descent": None,
    "Large Batch Optimization for Deep Learning: Training BERT in 76 Minutes": None,
    "Mesh-TensorFlow: Deep Learning for Supercomputers": None,
    "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism": (
        "arxiv.org/abs/1811.06965"
    ),
    "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism": (
        "arxiv.org/abs/1909.08053"
    ),
    "MegatronLM: Training Billion+ Parameter Language Models Using GPU Model Parallelism": None,
    "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models": "arxiv.org/abs/1910.02054",
    "GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding": None,
    "Using DeepSpeed and Megatron to Train Megatron-Turing NLG 530B": None,
    "Mesh TensorFlow": "github.com/tensorflow/mesh",
    "Megatron-LM and Megatron Core": "github.com/NVIDIA/Megatron-LM",
    "Accelerate": "huggingface.co/docs/accelerate",
    "Introducing Accelerate": "huggingface.co/blog/accelerate-library",
    "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel": None,
    "DistributedDataParallel": (
        "pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
    ),
    "FullyShardedDataParallel": "pytorch.org/docs/stable/fsdp.html",
    "DeepSpeed Configuration JSON": "www.deepspeed.ai/docs/config-json/",
    "Mixed Precision Training": "arxiv.org/abs/1710.03740",
    "PipeDream: Generalized Pipeline Parallelism for DNN Training": None,
    "PipeDream: Fast and Efficient Pipeline Parallel DNN Training": "arxiv.org/abs/1806.03377",
    "DeepSpeedExamples": "github.com/microsoft/DeepSpeedExamples",
    "Getting Started with Fully Sharded Data Parallel": (
        "pytorch.org/tutorials/intermediate/FSDP_tutorial.html"
    ),
    "torchtune": "github.com/pytorch/torchtune",
    "Reducing Activation Recomputation in Large Transformer Models": "arxiv.org/abs/2205.05198",
    "PyTorch Distributed: Experiences on Accelerating Data Parallel Training": "arxiv.org/abs/2006.15704",
    "ZeRO-Infinity: Breaking the GPU Memory Wall": "arxiv.org/abs/2104.07857",
    "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM": (
        "arxiv.org/abs/2104.04473"
    ),
    "torch.profiler": "pytorch.org/docs/stable/profiler.html",
    "Nsight Systems": "developer.nvidia.com/nsight-systems",
    "Debugging torch.distributed Applications": None,
    "NCCL Environment Variables: NCCL_DEBUG": None,
    # subjects that neighbour this one
    "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness": None,
    "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers": None,
    "Efficiently Scaling Transformer Inference": None,
    "Triton: An Intermediate Language and Compiler for Tiled Neural Network Computations": None,
    # what a reader needs now
    "Zero Bubble Pipeline Parallelism": None,
    "DualPipe": None,
    "Ring Attention with Blockwise Transformers for Near-Infinite Context": None,
    "DeepSpeed Ulysses": None,
    "DiLoCo: Distributed Low-Communication Training of Language Models": None,
    "GSPMD: General and Scalable Parallelization for ML Computation Graphs": None,
    "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning": None,
    "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs": None,
    "DeepSeek-V3 Technical Report": None,
    "Efficient Memory Management for Large Language Model Serving with PagedAttention": None,
    "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve": None,
    "DistServe: Disaggregating Prefill and Decoding": None,
    "Orca: A Distributed Serving System for Transformer-Based Generative Models": None,
    "Fast Inference from Transformers via Speculative Decoding": None,
}
# The sections that others name wrongly: key → what is said here, and that it is said.
CORRECTED = {
    "rajbhandari2020": ["§5", "§3.1", "§7"],
    "huang2019": ["§2.2", "§2.3", "fixed micro-batch size"],
    "narayanan2019": ["Harlap", "asynchronous"],
    "micikevicius2018": ["no table"],
    "korthikanti2022": ["§4.2.2", "§5"],
    "narayanan2021": ["§3", "§5"],
    "accelerate": ["not GPipe"],
    "torchtune": ["out of date"],
    "fsdptutorial": ["FSDP2"],
    "smith2022": ["Megatron-Turing"],
    "chahal2018": ["Chahal"],
}
CARD = [
    "DDP basics",
    "ZeRO stages",
    "Tensor parallelism",
    "Pipeline parallelism",
    "Mixed precision",
    "FSDP usage",
]


@cache
def bibliography():
    return parse_file(str(BOOK / "references.bib")).entries


def address(work):
    fields = bibliography()[work["key"]].fields
    return work.get("url") or fields.get("url") or f"https://doi.org/{fields.get('doi', '')}"


def plain(title):
    return re.sub(r"[{}\\]", "", title)


# ---- every work is there ----


@pytest.mark.parametrize("title", WANTED)
def test_a_work_that_a_reader_looks_for_is_listed(title):
    found = [work for work in WORKS.values() if title.lower() in work["title"].lower()]
    assert found
    where = WANTED[title] or ""
    assert any(where in address(work).replace("docs.pytorch.org", "pytorch.org") for work in found)


@pytest.mark.parametrize("topic", ["serving", "network", "data", "conferences", "related"])
def test_no_topic_is_a_heading_only(topic):
    assert sum(work["topic"] == topic for work in WORKS.values()) >= 4


@pytest.mark.parametrize("key", CORRECTED)
def test_what_others_name_wrongly_is_said_right(key):
    assert [words for words in CORRECTED[key] if words not in WORKS[key]["corrected"]] == []


@pytest.mark.parametrize("key", sorted({"zhao2023", "torchfullyshard", "torchtitan"}))
def test_what_took_the_place_of_an_older_work_is_listed(key):
    assert key in WORKS


# ---- what is said of a work ----


def test_a_key_is_listed_once():
    assert len(WORKS) == len(STORED["works"])


@pytest.mark.parametrize("key", WORKS)
def test_a_work_says_all_that_it_should(key):
    work = WORKS[key]
    assert ALWAYS <= set(work) <= ALWAYS | SOMETIMES
    assert work["kind"] in KINDS and work["state"] in STATES and work["topic"] in STORED["topics"]
    assert work["priority"] in (1, 2, 3) and work["minutes"] % 5 == 0 and 10 <= work["minutes"] <= 600
    for field in ("focus", "insight", "why"):
        assert work[field].endswith(".") and len(work[field]) <= 300
    if work["state"] == "superseded":
        assert work["state_note"]


@pytest.mark.parametrize("key", WORKS)
def test_a_work_is_in_the_bibliography_under_its_title(key):
    entry = bibliography()[key]
    assert plain(entry.fields["title"]) == WORKS[key]["title"]
    assert entry.persons["author"] and address(WORKS[key]).startswith("https://")


@pytest.mark.parametrize("key", WORKS)
def test_chapters_and_labs_of_a_work_exist(key):
    work = WORKS[key]
    pages = [*work["chapters"], *(f"labs/{lab}" for lab in work.get("labs", []))]
    assert [page for page in pages if not (NOTEBOOKS / f"{page}.ipynb").exists()] == []


def test_a_work_names_its_entries_in_the_ledger():
    checked = {claim.paper for claim in table().claims}
    named = {paper for work in WORKS.values() for paper in work.get("claims", [])}
    assert named <= checked
    assert {key for key in WORKS if key in checked} <= named


def test_no_work_needs_itself_by_a_detour():
    state = {}

    def visit(key):
        assert state.get(key) != "open", f"{key} needs itself"
        if key not in state:
            state[key] = "open"
            for need in WORKS[key]["needs"]:
                visit(need)
            state[key] = "done"

    for key in WORKS:
        visit(key)


# ---- the card ----


def test_the_card_has_its_concepts_once_and_names_works():
    concepts = [row["concept"] for row in STORED["quick_reference"]]
    assert set(CARD) <= set(concepts) and len(concepts) == len(set(concepts))
    for row in STORED["quick_reference"]:
        assert row["minutes"] <= WORKS[row["key"]]["minutes"]
        assert not row["chapter"] or (NOTEBOOKS / f"{row['chapter']}.ipynb").exists()


# ---- paths ----


def paths(*requests):
    """What the page's script picks for each request {works, minutes, read}."""
    node = shutil.which("node") or shutil.which("node", path=Path(sys.executable).parent)
    if node is None:
        pytest.fail("There is no Node to run the script: `make setup` installs it.", pytrace=False)
    program = (
        "const { path } = require(process.argv[1]);"
        "const requests = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        "console.log(JSON.stringify(requests.map((one) =>"
        " path(one.works, one.minutes, new Set(one.read)).map((work) => work.key))));"
    )
    ran = subprocess.run(
        [node, "-e", program, str(SCRIPT)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


def request(minutes, read=(), works=None):
    return {"works": works or list(WORKS.values()), "minutes": minutes, "read": list(read)}


def small(key, minutes, priority, *needs, topic="a", kind="paper"):
    return {
        "key": key,
        "minutes": minutes,
        "priority": priority,
        "needs": needs,
        "topic": topic,
        "kind": kind,
    }


def test_a_path_fits_the_time_and_each_work_comes_after_those_it_needs():
    asked = [
        (minutes, read) for minutes in (15, 60, 120, 480, 100_000) for read in ([], ["huang2019", "li2020"])
    ]
    for (minutes, read), keys in zip(asked, paths(*(request(*one) for one in asked)), strict=True):
        assert sum(WORKS[key]["minutes"] for key in keys) <= minutes
        assert len(keys) == len(set(keys)) and not set(keys) & set(read)
        for place, key in enumerate(keys):
            assert set(WORKS[key]["needs"]) <= {*keys[:place], *read}


def test_with_all_the_time_everything_but_conferences_is_read():
    (keys,) = paths(request(100_000))
    assert set(keys) == {key for key, work in WORKS.items() if work["kind"] != "conference"}


def test_two_hours_begin_with_the_most_important_works():
    (keys,) = paths(request(120))
    assert keys and {WORKS[key]["priority"] for key in keys} == {3}


def test_the_important_come_first_and_what_is_too_long_is_passed_over():
    works = [
        small("first", 20, 1),
        small("long", 500, 3),
        small("base", 30, 1),
        small("goal", 30, 3, "base"),
        small("venue", 5, 3, kind="conference"),
    ]
    picked = paths(*(request(minutes, read, works) for minutes, read in ((60, ()), (59, ()), (30, ["base"]))))
    assert picked == [["base", "goal"], ["first", "base"], ["goal"]]


def test_of_equal_works_each_topic_has_one_before_any_has_two():
    works = [small("a1", 30, 3), small("a2", 30, 3), small("b1", 30, 3, topic="b")]
    assert paths(request(60, works=works)) == [["a1", "b1"]]
