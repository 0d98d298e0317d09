"""The exercises of the chapter Five axes."""

import itertools

from allranks.check import exercise
from allranks.check.answers import near
from allranks.check.stubs import is_returned

MESHES = (
    ({"pp": 2, "dp": 2, "cp": 2, "tp": 2}, ()),
    ({"pp": 2, "dp": 2, "cp": 2, "tp": 2}, ("cp", "tp")),
    ({"pp": 4, "dp": 3, "cp": 2, "tp": 5}, ("tp",)),
    ({"pp": 1, "dp": 3, "cp": 2, "tp": 4}, ("dp", "cp", "tp")),
)


def _counted(sizes, cut):
    """How many ranks hold what rank 0 holds: those with its places along pp and along `cut`."""
    places = [dict(zip(sizes, place)) for place in itertools.product(*map(range, sizes.values()))]
    return sum(all(place[axis] == 0 for axis in ("pp", *cut)) for place in places)


@exercise
def copies(answer):
    """`answer(sizes, cut)`: how many ranks of a mesh hold a copy of a parameter that `cut` cuts."""
    for sizes, cut in MESHES:
        got, right = answer(dict(sizes), cut), _counted(sizes, cut)
        is_returned(got, "a number of ranks")
        of = f"On {sizes}, for a parameter cut by {' and '.join(cut) or 'no axis'}"
        stages = sizes["pp"]
        assert stages == 1 or got != right * stages, f"{of}: the stages of pp hold different parameters."
        assert got == right, f"{of}, {right} ranks hold the same part, not {got}."
    return "Every copy is counted, on four meshes."


@exercise
def borrowed(answer):
    """`answer`: over how many ranks an expert is summed; pp 4, dp 8, cp 2, tp 4, and ep 32."""
    slips = {
        8: "dp has 8 ranks, but ep borrows from dp as well.",
        64: "That is for a parameter that no axis cuts: each rank of a stage has a copy.",
        16: "That is for a matrix that tp cuts.",
        32: "That many ranks hold *different* experts.",
    }
    near(answer, 8 * 2 * 4 // 32, slips)
    return "2 ranks: a stage has 64, of which 32 hold different experts."
