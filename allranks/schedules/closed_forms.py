"""How large are the bubble and the memory of a schedule, by its paper's formula?

The model: p equal ranks, transfers that take no time, T_F, T_B and T_W the seconds of one micro-batch's
forward, input gradient and weight gradient on one rank. A bubble is what one rank idles in a step, in
seconds; "of ideal" divides it by the m(T_F+T_B+T_W) that the rank computes, "of total" by both together.
"""

from ..inputs import one_of, quantity, whole
from ..interleaving import flushed_bubble, group_size
from .bidirectional import dualpipe_bubble
from .split_backward import zb_h1_bubble, zb_h2_bubble

FLUSHED = ("gpipe", "one_f_one_b", "looped_bfs", "interleaved")
WITH_BUBBLE = FLUSHED + ("pipedream", "zb_h1", "zb_h2", "zb_v", "dualpipe")
WITH_PEAK = WITH_BUBBLE + ("dualpipe_v",)


def bubble_seconds(
    name, stages, *, chunks=1, microbatches=None, forward=1.0, input_grad=1.0, weight_grad=1.0,
    forward_and_backward=None,
):  # fmt: skip
    """Seconds that the busiest rank of the schedule `name` idles in a step; None micro-batches are enough.

    gpipe, one_f_one_b: (p-1)(T_F+T_B+T_W); interleaved and looped_bfs 1/v of it, with v = `chunks` (Huang
    et al. 2019, section 2.3; Narayanan et al. 2021, section 2.2). With m < p `microbatches`, every one of the
    v-1 wraps from the last rank to the first waits for p-m more: (p-1 + (v-1)(p-m))(T_F+T_B+T_W)/v.
    pipedream: 0 in steady state. zb_h1: (p-1)(T_F+T_B-T_W); zb_h2: (p-1)(T_F+T_B-2T_W); zb_v: 0 if the
    three are equal (Qi et al. 2024, table 2 and section 6; zb_h2 and zb_v from each rank's own start to its
    own end). dualpipe: (p/2-1)(F&B+B-3W), where B = T_B+T_W and F&B is `forward_and_backward`, T_F+T_B+T_W
    if left out (DeepSeek-AI 2024, table 2).
    """
    one_of("name", name, WITH_BUBBLE)
    whole("stages", stages)
    _chunks(name, chunks)
    quantity("forward", forward), quantity("input_grad", input_grad), quantity("weight_grad", weight_grad)
    if forward_and_backward is not None and name != "dualpipe":
        raise ValueError(f"forward_and_backward is for dualpipe, not for {name}")
    if name in FLUSHED:
        return flushed_bubble(stages, microbatches, forward + input_grad + weight_grad, chunks)
    least = {"zb_h1": stages, "zb_h2": 2 * stages - 1, "zb_v": 2 * stages - 1, "dualpipe": 2 * stages}
    least = least.get(name, 1)
    if microbatches is not None and whole("microbatches", microbatches) < least:
        raise ValueError(
            f"the closed form of {name} needs at least {least} micro-batches on {stages} ranks, "
            f"not {microbatches}: simulate it"
        )
    if name in ("zb_h1", "zb_h2"):
        published = zb_h1_bubble if name == "zb_h1" else zb_h2_bubble
        bubble = published(stages, forward, input_grad, weight_grad)
        if bubble < 0 or weight_grad > (forward if name == "zb_h1" else min(forward, input_grad)):
            raise ValueError(
                f"the closed form of {name} does not hold for weight_grad = {weight_grad}, "
                f"forward = {forward} and input_grad = {input_grad}: simulate it"
            )
        return bubble
    if name == "dualpipe":
        if forward_and_backward is None:
            forward_and_backward = forward + input_grad + weight_grad
        return dualpipe_bubble(stages, forward, input_grad + weight_grad, weight_grad, forward_and_backward)
    if name == "zb_v" and not forward == input_grad == weight_grad:
        raise ValueError(
            "the bubble of zb_v has a closed form where forward, input_grad and weight_grad are equal, "
            f"not for {forward}, {input_grad} and {weight_grad}: simulate it"
        )
    return 0.0


def bubble_of_ideal(name, stages, microbatches, **durations):
    """`bubble_seconds` over m(T_F+T_B+T_W): (p-1)/m for gpipe and one_f_one_b, (p-1)/(vm) for interleaved."""
    bubble, ideal = _bubble_and_ideal(name, stages, microbatches, durations)
    return bubble / ideal


def bubble_of_total(name, stages, microbatches, **durations):
    """`bubble_seconds` over itself and m(T_F+T_B+T_W): (p-1)/(m+p-1) for gpipe and one_f_one_b."""
    bubble, ideal = _bubble_and_ideal(name, stages, microbatches, durations)
    return bubble / (bubble + ideal)


def _bubble_and_ideal(name, stages, microbatches, durations):
    bubble = bubble_seconds(name, stages, microbatches=microbatches, **durations)
    step = sum(durations.get(each, 1.0) for each in ("forward", "input_grad", "weight_grad"))
    if step == 0:
        raise ValueError("forward, input_grad and weight_grad must not all be 0")
    return bubble, whole("microbatches", microbatches) * step


def peak_activations(name, stages, microbatches, chunks=1):
    """For each rank the most activations that live at once, in micro-batches of one rank's whole share.

    All activations of a micro-batch stay until its weight gradient (M_W = M_B of Qi et al. 2024). gpipe and
    looped_bfs: m. one_f_one_b and pipedream: p-r, at most m. interleaved in groups of N: N + (2p-1-2r-N)/v,
    at most m; with N = p, 1+(p-1)/(pv) times p on the first rank (Korthikanti et al. 2022, section 4.2.3).
    zb_h1, zb_v: p; zb_h2: 2p-1; dualpipe: p+1, dualpipe_v: p+1/2, as its 2p+1 are halves (table 2 of Qi et
    al. 2024 and of DeepSeek-AI 2024). Each of these is at most m; zb_v, whose second halves run while later
    micro-batches are in their first, (m+r+1)/2 too, which is less than p on early ranks if m < 2p-1.
    """
    one_of("name", name, WITH_PEAK)
    whole("stages", stages), whole("microbatches", microbatches)
    v = _chunks(name, chunks)
    if name in ("gpipe", "looped_bfs"):
        return (microbatches,) * stages
    if name in ("one_f_one_b", "pipedream"):
        return tuple(min(stages - rank, microbatches) for rank in range(stages))
    if name == "interleaved":
        ahead = (v - 1) * group_size(stages, microbatches)
        most = [2 * (stages - 1 - rank) + ahead + 1 for rank in range(stages)]
        return tuple(min(each, v * microbatches) / v for each in most)
    if name == "zb_v":
        return tuple(min(stages, microbatches, (microbatches + rank + 1) / 2) for rank in range(stages))
    limit = {
        "zb_h1": stages,
        "zb_h2": 2 * stages - 1,
        "dualpipe": stages + 1,
        "dualpipe_v": stages + 0.5,
    }[name]
    return (min(limit, microbatches),) * stages


def _chunks(name, chunks):
    if whole("chunks", chunks) > 1 and name not in ("interleaved", "looped_bfs"):
        raise ValueError(f"chunks is for interleaved and looped_bfs, not for {name}")
    return chunks
