"""Bad input is refused with what was given and what is allowed."""

import re

import pytest

from allranks import inputs


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: inputs.whole("stages", 0), "stages must be a whole number of at least 1, not 0"),
        (lambda: inputs.whole("stages", 2.0), "stages must be a whole number of at least 1, not 2.0"),
        (lambda: inputs.whole("stages", True), "stages must be a whole number of at least 1, not True"),
        (lambda: inputs.whole("zero_stage", 4, 0, 3), "zero_stage must be a whole number from 0 to 3, not 4"),
        (lambda: inputs.quantity("nbytes", -1), "nbytes must be a number of at least 0, not -1"),
        (lambda: inputs.quantity("nbytes", float("nan")), "nbytes must be a number of at least 0, not nan"),
        (lambda: inputs.quantity("nbytes", float("inf")), "nbytes must be a number of at least 0, not inf"),
        (lambda: inputs.quantity("nbytes", "4"), "nbytes must be a number of at least 0, not '4'"),
        (lambda: inputs.quantity("seconds", 0, positive=True), "seconds must be a number above 0, not 0"),
        (lambda: inputs.one_of("unit", "x", ("a", "b")), "unit must be one of 'a', 'b', not 'x'"),
        (lambda: inputs.multiple("hidden", 10, "heads", 4), "hidden must be a multiple of heads = 4, not 10"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()


def test_a_good_value_comes_back():
    assert inputs.whole("stages", 3) == 3
    assert [inputs.whole("zero_stage", stage, 0, 3) for stage in (0, 3)] == [0, 3]
    assert inputs.quantity("nbytes", 0) == 0
    assert inputs.quantity("seconds", 1e-6, positive=True) == 1e-6
    assert inputs.one_of("unit", "a", ("a", "b")) == "a"
    assert inputs.multiple("hidden", 12, "heads", 4) == 12
