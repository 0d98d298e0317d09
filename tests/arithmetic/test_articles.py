"""The article of a name is the one that is said."""

import pytest

from allranks.articles import with_article
from allranks.explorers.zero import device
from allranks.hardware import ACCELERATORS


@pytest.mark.parametrize("name", ["an int", "a lock", "an ndarray", "a Mesh", "an Error", "a _Hidden"])
def test_a_word_goes_by_its_first_letter(name):
    assert with_article(name.split()[1]) == name


@pytest.mark.parametrize("name", ["an H100", "a B200", "an L40S", "an HTTPError", "a T", "an A"])
def test_what_is_spelled_out_goes_by_how_its_first_letter_is_said(name):
    assert with_article(name.split()[1]) == name


def test_every_accelerator_has_its_article():
    said = {with_article(device(name).split(",")[0]) for name in ACCELERATORS}
    spelled = {"an A100", "an H100", "an H200", "an MI300X", "an MI355X"}
    others = {"a B200", "a B300", "a GB200", "a GB300", "a V100", "a Trainium2", "a Trainium3"}
    tpus = {f"a TPU {version}" for version in ("v3", "v4", "v5e", "v5p", "v6e", "7x")}
    assert said == spelled | others | tpus
