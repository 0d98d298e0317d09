"""Long lines of code on a phone."""

import re
from html import unescape

import pytest
from allranks_book.code_lines import FITS, PLAIN, Formatter
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

SHORT = "x = 1"
LONG = "        reduced = dist.all_reduce(gradient / world, op=dist.ReduceOp.SUM)  # and wait"
KINDS = ("", *(f" .{STANDARD_TYPES[kind]}" for kind in PLAIN))  # the block itself, and what is plain
TABLE = "rank   bytes sent   bytes received   peers that it has talked to"


def shown(source):
    return highlight(source, PythonLexer(stripnl=False), Formatter())


@pytest.mark.parametrize(
    "source", [SHORT, LONG, f"def f():\n{LONG}\n\n{SHORT}", f'"""{LONG}\n\n{LONG}"""', TABLE]
)
def test_a_reader_copies_what_was_written(source):
    assert unescape(re.sub("<[^>]*>", "", shown(source))).rstrip() == source


def test_what_has_no_colour_of_its_own_has_no_span():
    assert shown("value = f(x)").count("<span") == 2  # one for the sign, and one that Pygments writes
    for style in ("light", "dark"):
        rules = HtmlFormatter(style=f"a11y-high-contrast-{style}").get_style_defs(".highlight")
        colours = {re.search(rf"^\.highlight{kind} {{.*color: (#\w+)", rules, re.M)[1] for kind in KINDS}
        assert len(colours) == 1


def test_only_a_long_line_goes_on_below_and_it_knows_its_indentation():
    assert re.findall(r'class="(ar-[^"]*)" style="--i:(\d+)"', shown(f"{SHORT}\n{LONG}\n")) == [
        ("ar-line", "8")
    ]
    assert "ar-line" in shown("a" * (FITS + 1)) and "ar-line" not in shown("a" * FITS)


def test_what_is_printed_in_columns_is_marked_and_a_comment_is_no_column():
    assert "ar-row" in shown(TABLE) and "ar-row" not in shown(LONG)


def test_each_line_of_a_text_over_several_lines_is_closed():
    for line in shown(f'"""{LONG}\n{LONG}"""').splitlines()[1:2]:
        assert line.count("<span") == line.count("</span")


def test_a_call_longer_than_a_line_breaks_at_a_dot_or_a_bracket_and_only_there():
    call = "gradients.parameter_of_layer(number).manual_seed(0)"
    assert re.split("<wbr>", re.sub("<(?!wbr)[^>]*>", "", shown(call)).strip()) == [
        "gradients.", "parameter_of_layer(", "number).", "manual_seed(", "0)"
    ]  # fmt: skip
    assert "<wbr>" not in shown("one = first.second(third) + fourth.fifth(sixth)")
