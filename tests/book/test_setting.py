"""A link in the text that sets an explorer: what it may name, and what the build says of a wrong one."""

import logging

import pytest
from allranks_book import explorers as figures
from allranks_book import setting
from docutils import nodes
from docutils.utils import new_document
from sphinx import addnodes

from allranks import explorers


@pytest.mark.parametrize(
    "name, listed, expected",
    [
        ("pipeline", "microbatches=32,beside=", {"microbatches": 32, "beside": ""}),
        ("pipeline", "forward=1,weight_grad=0.5", {"forward": 1.0, "weight_grad": 0.5}),
        ("context_parallel", "causal=false,step=1", {"causal": False, "step": 1}),
    ],
)
def test_an_address_is_read_as_python_knows_the_values(name, listed, expected):
    assert setting.values(name, listed) == expected


def page_with(target, name="pipeline"):
    """A page with a figure and a link to `target`."""
    page = new_document("page")
    picture = explorers.draw(name)["svg"]
    page += nodes.raw("", figures.figure_html(name, {}, picture), format="html")
    link = addnodes.pending_xref("", nodes.inline("", "words"), reftype="myst", reftarget=target)
    page += nodes.paragraph("", "", link)
    return page


def told(page, caplog):
    """What the build says of the links of a page."""
    logging.getLogger("sphinx").propagate = True
    with caplog.at_level(logging.WARNING):
        setting.add_links(None, page)
    return [record.getMessage() for record in caplog.records]


def test_a_link_leads_to_the_figure_and_carries_the_setting(caplog):
    page = page_with("explorer-pipeline:microbatches=32")
    assert told(page, caplog) == []
    opening = page[1][0].astext()
    assert (
        opening
        == '<a class="ar-set reference internal" href="#explorer-pipeline" data-set="microbatches=32">'
    )
    assert page[1].astext().endswith("words</a>")


@pytest.mark.parametrize(
    "target, complaint",
    [
        ("explorer-zero:stage=1", "the page has no explorer zero"),
        ("explorer-pipeline:colour=1", "pipeline has no control 'colour'"),
        ("explorer-pipeline:microbatches=65", "microbatches must be a whole number from 1 to 64"),
        ("explorer-pipeline:microbatches=many", "invalid literal"),
        ("explorer-pipeline:schedule=dualpipe,stages=5", "stages must be a multiple of"),
    ],
)
def test_a_link_to_what_is_not_there_is_a_warning(target, complaint, caplog):
    said = told(page_with(target), caplog)
    assert len(said) == 1 and complaint in said[0]


def test_other_links_are_left_alone(caplog):
    page = page_with("some-heading")
    assert told(page, caplog) == []
    assert page[1][0]["reftarget"] == "some-heading"
