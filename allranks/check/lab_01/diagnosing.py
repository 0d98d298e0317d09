"""Which ranks are missing, or differ? NCCL's log and the errors of TORCH_DISTRIBUTED_DEBUG=DETAIL say it."""

import random

from allranks.check import exercise
from allranks.check.labs import is_written, on_ranks

OPTIONS = (
    "TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
)


@exercise
def logs(answer, odd):
    """`answer(log)` says who is missing or waits; `odd(messages)` which ranks differ from most."""
    is_written(answer, odd)
    draw = random.Random(random.random())
    cases = [
        _case(draw, *one) for one in ((2, 2, (), (1, 3)), (3, 4, (11,), (2, 7, 10)), (2, 8, (3, 12, 15), ()))
    ]
    found = on_ranks(lambda: [answer(log) for log, *_ in cases], world_size=1)[0]
    for said, (_, *right) in zip(found, cases, strict=True):
        _is_read(said, *right)
    for ranks, differing, change in (
        (4, (2,), "shape"), (5, (1, 4), "op"), (6, (0, 3), "number"), (3, (0,), "dtype"), (4, (), "shape"),
    ):  # fmt: skip
        messages = _messages(draw, ranks, differing, change)
        said = on_ranks(odd, messages, world_size=1)[0]
        _are_odd(said, ranks, differing, change)
    return "nccl_log finds interfaces, missing and waiting ranks, and odd_ranks finds the odd ones."


def _case(draw, hosts, per_host, missing, waiting):
    """(log, interfaces, missing, waiting, ranks): the lines of all processes, mixed."""
    interfaces = {
        f"node-{draw.randrange(100)}{host}": draw.choice(["eno", "ib", "bond"]) + str(host)
        for host in range(hosts)
    }
    ranks, streams = hosts * per_host, []
    for rank in set(range(ranks)) - set(missing):
        (host, interface), gpu = list(interfaces.items())[rank // per_host], rank % per_host
        process, ip = 4000 + draw.randrange(1000), f"10.0.{rank // per_host}.{draw.randrange(9, 99)}"
        start = f"{host}:{process}:{{}} [{gpu}] NCCL INFO "
        comm = f"comm 0x55{draw.randrange(10**8)} rank {rank} nranks {ranks} cudaDev {gpu} busId {gpu}b"
        lines = [
            f"Bootstrap : Using {interface}:{ip}<0>",
            f"NET/Socket : Using [0]lo{gpu}:127.0.0.1<0> [1]{interface}:{ip}<0>",
        ]
        lines += ["Using network Socket", f"{comm} commId 0x{draw.randrange(10**8)} - Init START"]
        lines += [] if rank in waiting else [f"{comm} commId 0x{draw.randrange(10**8)} - Init COMPLETE"]
        streams.append([start.format(process + (k > 1)) + line for k, line in enumerate(lines)])
    log = ["NCCL version 2.27.5+cuda12.9"]
    while streams := [lines for lines in streams if lines]:
        log.append(draw.choice(streams).pop(0))
    return "\n".join(log), interfaces, list(missing), list(waiting), ranks


def _is_read(said, interfaces, missing, waiting, ranks):
    assert isinstance(said, tuple | list) and len(said) == 3, (
        f"nccl_log returned {str(said)[:40]}; expected three things: interfaces, missing, waiting."
    )
    assert isinstance(said[0], dict) and set(said[0]) == set(interfaces), (
        f"The hosts are {sorted(interfaces)}; nccl_log has {str(said[0])[:60]}."
    )
    for host, name in interfaces.items():
        assert said[0][host] == name, (
            f"{host} has the interface {said[0][host]!r}; expected {name!r}, from its line with Bootstrap."
        )
    for what, found, right, rule in (
        ("missing", said[1], missing, f"those below nranks, {ranks}, that have no line with Init START"),
        ("waiting", said[2], waiting, "those with Init START and without Init COMPLETE"),
    ):
        assert list(found) == right, f"The {what} ranks are {found}; expected {right}: {rule}."


def _messages(draw, ranks, differing, change):
    """What each rank's exception says, in any order; it ends with something about another rank."""
    usual = {
        "number": draw.randrange(9, 99),
        "op": "ALLREDUCE",
        "shape": f"{draw.randrange(2, 99)}, 2",
        "dtype": "Float",
    }
    others = {
        "number": usual["number"] + 1,
        "op": "BROADCAST",
        "shape": f"{draw.randrange(100, 999)}, 2",
        "dtype": "Double",
    }
    run = {rank: usual | ({change: others[change]} if rank in differing else {}) for rank in range(ranks)}
    messages, rest = [], [rank for rank in range(ranks) if rank not in differing]
    for rank in (
        *reversed(differing),
        *draw.sample(rest, len(rest)),
    ):  # neither the first one nor the order helps
        other = (rank + 1) % ranks
        messages.append(
            f"Detected mismatch between collectives on ranks. Rank {rank} is running collective: "
            f"{_print(run[rank])}, but Rank {other} is running collective: "
            f"CollectiveFingerPrint(SequenceNumber={usual['number'] - 1}OpType=GATHER)."
            "Collectives differ in the following aspects: \t Sequence number"
        )
    return messages


def _print(run):
    return (
        f"CollectiveFingerPrint(SequenceNumber={run['number']}, OpType={run['op']}, "
        f"TensorShape=[{run['shape']}], TensorDtypes={run['dtype']}, TensorDeviceTypes={OPTIONS})"
    )


def _are_odd(said, ranks, differing, change):
    names = {"shape": "TensorShape", "op": "OpType", "number": "SequenceNumber", "dtype": "TensorDtypes"}
    where = f"Where {len(differing)} of {ranks} ranks differ in {names[change]}"
    assert isinstance(said, list | tuple), f"{where}, odd_ranks returned {said!r}; expected a list of ranks."
    assert list(said) == list(differing), (
        f"{where}, odd_ranks returned {list(said)}; expected {list(differing)}, in order: those whose own "
        "collective, named first in a rank's message, differs from that of most ranks."
    )
