"""The bubble that the pipeline explorer names is that of the chosen schedule, whatever stands beside it."""

import pytest

from allranks import explorers
from allranks.explorers.frame.words import percent


@pytest.mark.parametrize("beside", ["", "one_f_one_b", "zero_bubble"])
@pytest.mark.parametrize("p, m", [(4, 8), (2, 3)])
def test_gpipe_s_bubble_is_the_papers(p, m, beside):
    """(p−1)/(m+p−1) of the step (Huang et al. 2019, section 2.3)."""
    given = {"schedule": "gpipe", "beside": beside, "stages": p, "microbatches": m}
    value, what = explorers.draw("pipeline", given)["result"]
    assert value == percent((p - 1) / (m + p - 1)) and "bubble" in what


def test_the_two_schedules_change_places_and_the_bubble_changes_with_them():
    both = [
        explorers.draw("pipeline", {"schedule": one, "beside": other, "stages": 4, "microbatches": 8})[
            "result"
        ][0]
        for one, other in (("gpipe", "zero_bubble"), ("zero_bubble", "gpipe"))
    ]
    assert both[0] == percent(3 / 11) and float(both[1].split()[0]) < float(both[0].split()[0])
