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
from allranks_book.reading import citations
from pybtex.database import parse_file

from allranks.claims import table

BOOK = Path(__file__).resolve().parents[2] / "book"
NOTEBOOKS = BOOK.parent / "notebooks"
SCRIPT = BOOK / "_static" / "reading_list.js"
STORED = yaml.safe_load((BOOK / "reading_list.yaml").read_text(encoding="utf-8"))
WORKS = {work["key"]: work for work in STORED["works"]}
KINDS = {"paper", "survey", "book", "documentation", "tutorial", "code", "blog", "tool", "conference"}
STATES = {"current", "maintained", "superseded", "ended"}
ALWAYS = {"key", "title", "name", "kind", "topic", "priority", "minutes", "focus", "insight", "why", "needs"}
ALWAYS |= {"runs_in", "related", "state"}
SOMETIMES = {"url", "word", "claims", "state_note", "corrected", "checked"}

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
    "DeepSpeedExamples": "github.com/deepspeedai/DeepSpeedExamples",
    "Getting Started with Fully Sharded Data Parallel": (
        "pytorch.org/tutorials/intermediate/FSDP_tutorial.html"
    ),
    "torchtune": "github.com/meta-pytorch/torchtune",
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
    # 2024 to 2026
    "MoE Parallel Folding": "arxiv.org/abs/2504.14960",
    "DeepEP": "github.com/deepseek-ai/DeepEP",
    "Dion: Distributed Orthonormalized Updates": "arxiv.org/abs/2504.05295",
    "Demystifying NCCL": "arxiv.org/abs/2507.04786",
    "Collective Communication for 100k+ GPUs": "arxiv.org/abs/2510.20171",
    "torchcomms": "github.com/meta-pytorch/torchcomms",
    "PyTorch Symmetric Memory": "docs/stable/symmetric_memory.html",
    "Introducing Async Tensor Parallelism in PyTorch": None,
    "torchft": "github.com/meta-pytorch/torchft",
    "Robust LLM Training Infrastructure at ByteDance": "arxiv.org/abs/2509.16293",
    "ByteCheckpoint": "arxiv.org/abs/2407.20143",
    "Flight Recorder for Debugging Stuck Jobs": "tutorials/unstable/flight_recorder_tutorial.html",
    "Recipes for Pre-training LLMs with MXFP8": "arxiv.org/abs/2506.08027",
    "Pretraining Large Language Models with NVFP4": "arxiv.org/abs/2509.25149",
    "Arctic Long Sequence Training": "arxiv.org/abs/2506.13996",
    "WLB-LLM": "arxiv.org/abs/2503.17924",
    "HybridFlow": "arxiv.org/abs/2409.19256",
    "AReaL": "arxiv.org/abs/2505.24298",
    "INTELLECT-3": "arxiv.org/abs/2512.16144",
    "Alibaba HPN": None,
    "Topology and block scheduling in Slurm": None,
    "NVIDIA Dynamo": "github.com/ai-dynamo/dynamo",
    "llm-d": "github.com/llm-d/llm-d",
    "Shardy": "github.com/openxla/shardy",
    "Machine Learning Engineering Open Book": "github.com/stas00/ml-engineering",
    "Holistic Trace Analysis": "github.com/facebookresearch/HolisticTraceAnalysis",
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
    "torchtune": ["recipes/", "ended"],
    "deepspeedconfig": ["Trainer"],
    "fsdptutorial": ["FSDP2"],
    "smith2022": ["Megatron-Turing"],
    "chahal2018": ["Chahal"],
}
# Papers with an arXiv number that were also published: where and when.
PUBLISHED = {
    "agrawal2024": "Operating Systems Design and Implementation 2024",
    "barham2022": "Machine Learning and Systems 2022",
    "chowdhery2022": "Journal of Machine Learning Research 2023",
    "dai2024": "Association for Computational Linguistics 2024",
    "hoffmann2022": "Neural Information Processing Systems 35 2022",
    "hwang2023": "Machine Learning and Systems 2023",
    "jacobs2023": "Principles of Distributed Computing 2024",
    "jiang2024megascale": "Networked Systems Design and Implementation 2024",
    "kokolis2024": "High-Performance Computer Architecture 2025",
    "korthikanti2022": "Machine Learning and Systems 2023",
    "lamypoirier2023": "Machine Learning and Systems 2023",
    "leviathan2023": "International Conference on Machine Learning 2023",
    "liu2023": "Learning Representations 2024",
    "patel2024": "Computer Architecture 2024",
    "pope2022": "Machine Learning and Systems 2023",
    "qi2024memory": "Neural Information Processing Systems 37 2024",
    "qin2024": "File and Storage Technologies 2025",
    "rajbhandari2021": "SC21",
    "ren2021": "USENIX Annual Technical Conference 2021",
    "sheng2025": "European Conference on Computer Systems 2025",
    "wan2025checkpoint": "Networked Systems Design and Implementation 2025",
    "wan2025robust": "Operating Systems Principles 2025",
    "wang2023": "Learning Representations 2024",
    "wang2025": "Operating Systems Design and Implementation 2025",
    "zhao2025": "Computer Architecture 2025",
    "zheng2024": "Neural Information Processing Systems 37 2024",
    "zhong2024": "Operating Systems Design and Implementation 2024",
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
    assert WORKS[key].get("url") or citations()[key]["url"], "its address is missing: url or doi"
    assert entry.persons["author"] and address(WORKS[key]).startswith("https://")


@pytest.mark.parametrize("key", WORKS)
def test_the_pages_of_a_work_exist_and_each_either_runs_it_or_is_related(key):
    pages = WORKS[key]["runs_in"] + WORKS[key]["related"]
    assert [page for page in pages if not (NOTEBOOKS / f"{page}.ipynb").exists()] == []
    assert len(pages) == len(set(pages))


@cache
def cells(page, kind):
    """The source of all cells of a kind in a notebook."""
    notebook = json.loads((NOTEBOOKS / f"{page}.ipynb").read_text(encoding="utf-8"))
    return "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind)


def cited_in(page):
    roles = re.findall(r"\{cite[:\w]*\}`([^`]+)`", cells(page, "markdown"))
    return {key.strip() for keys in roles for key in keys.split(",")}


@pytest.mark.parametrize("key", [key for key, work in WORKS.items() if work["runs_in"]])
def test_a_notebook_that_runs_a_work_cites_it_or_has_its_word_in_the_code(key):
    work = WORKS[key]
    uncited = [page for page in work["runs_in"] if key not in cited_in(page)]
    assert not uncited or "word" in work, f"none of {uncited} cites {key}, and it has no word to look for"
    assert [page for page in uncited if work["word"] not in cells(page, "code")] == []
    assert bool(uncited) or "word" not in work, "the word is not needed"


def test_at_most_ten_works_are_the_ones_to_start_with():
    start = STORED["start"]
    assert len(start) <= 10 and set(start) == {key for key, work in WORKS.items() if work["priority"] == 3}
    for place, key in enumerate(start):
        assert set(WORKS[key]["needs"]) & set(start) <= set(start[:place])


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_paper_is_cited_as_it_was_published(key):
    fields = bibliography()[key].fields
    assert PUBLISHED[key] in f"{fields.get('booktitle', '')}{fields.get('journal', '')} {fields['year']}"


def test_notes_belong_to_topics():
    assert set(STORED["notes"]) <= set(STORED["topics"])


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
        if row["chapter"]:
            runs = row["chapter"] in WORKS[row["key"]]["runs_in"]
            assert runs or row["word"] in cells(row["chapter"], "code"), row["concept"]


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
    first = [WORKS[key] for key in keys if WORKS[key]["priority"] == 3]
    assert keys[0] == first[0]["key"] and sum(work["minutes"] for work in first) >= 90


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
