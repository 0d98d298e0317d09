"""What the simulator says of a published trace, and of the few facts of it that the book keeps.

    PYTHONPATH=. python benchmarks/arrivals.py AzureLLMInferenceTrace_code.csv

The file is in `data` of github.com/Azure/AzurePublicDataset. The first ten minutes go to four servers three
times: as they are, as `allranks.inference.azure` draws them again, and at random times of the same mean rate.
"""

import csv
import sys
from datetime import datetime
from functools import partial
from itertools import pairwise
from statistics import mean, median, pstdev

from allranks import inference
from allranks.inference import Request, azure
from allranks.transformer import PRESETS

SECONDS = 600


def trace(path):
    """All requests of a file, the first at second 0."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp() for row in rows]
    return [
        Request(time - times[0], int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        for time, row in zip(times, rows, strict=True)
    ]


def percentiles(values, parts=20):
    ordered = sorted(values)
    return tuple(ordered[round(i / parts * (len(ordered) - 1))] for i in range(parts + 1))


def counts(requests):
    found = [0] * SECONDS
    for request in requests:
        found[int(request.arrival)] += 1
    return found


def systems():
    llama = PRESETS["llama3-8b"]
    gpu = inference.engine(llama, "h100", efficiency=0.6, overhead=0.0005)
    link = inference.cache_link(llama, "infiniband-ndr")
    four = partial(inference.serve_replicas, engine=gpu, servers=4)
    split = partial(inference.serve_split, engine=gpu, link=link, budget=4096)
    return {
        "prompts first": partial(four, policy="continuous", budget=4096),
        "chunks of 512": partial(four, policy="chunked", budget=512),
        "2 prefill, 2 decode": partial(split, prefills=2, decodes=2),
        "3 prefill, 1 decode": partial(split, prefills=3, decodes=1),
    }


def main(path):
    whole = trace(path)
    gaps = [after.arrival - before.arrival for before, after in pairwise(whole)]
    print(
        f"{len(whole):,} requests in {whole[-1].arrival:,.0f} s; gaps vary by {pstdev(gaps) / mean(gaps):.1f}"
    )
    print(f"medians: {median(r.prompt for r in whole)} and {median(r.output for r in whole)} tokens")
    first = [request for request in whole if request.arrival < SECONDS]
    same = counts(first) == azure.code_arrivals()
    lengths = [percentiles(r.prompt for r in whole), percentiles(r.output for r in whole)]
    print("the book keeps its facts:", same and lengths == [azure.CODE_PROMPTS, azure.CODE_OUTPUTS])
    poisson = inference.poisson(len(first) / SECONDS, len(first))
    loads = {
        "as they are": first,
        "drawn again": inference.code_requests(),
        "Poisson": [r._replace(arrival=time) for r, time in zip(first, poisson, strict=True)],
    }
    for name, serve in systems().items():
        for load, requests in loads.items():
            run = serve(requests)
            late = [inference.percentile(map(inference.ttft, run.served), share) for share in (0.5, 0.99)]
            later = inference.percentile(map(inference.tpot, run.served), 0.99)
            found = " and ".join(f"{1e3 * seconds:.0f}" for seconds in late)
            print(f"{name}, {load}: first token {found} ms, later ones {1e3 * later:.1f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
