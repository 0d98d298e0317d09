"""How is code read on a phone? Long lines go on below, further in than they begin, and nothing scrolls.

This module marks where; `book/_static/cells.css` sets the marks.
"""

from __future__ import annotations

import re
from html import unescape

from pygments.formatters import HtmlFormatter
from pygments.token import Token
from sphinx.highlighting import PygmentsBridge

FITS = 36  # letters of a line on the narrowest phone
OPENS = re.compile(r'(<span class="o">\.</span>|[(\[{]+(?![^<>]*>))')  # where a long call may break
# In the block's own colour: nearly half of the spans.
PLAIN = {Token.Name, Token.Punctuation, Token.Text.Whitespace}
COLUMNS = re.compile(r"\S {2,}(?!#)\S")  # spaces that align, not those before a comment


class Formatter(HtmlFormatter):
    """Pygments' own, with a `span.ar-line` around each long line, which knows its indentation.

    In a block that aligns columns the lines are `ar-row`, too: what was printed so keeps its columns. What
    has no colour of its own has no span either: a page has a quarter fewer elements, and is drawn sooner.
    """

    def format(self, tokensource, outfile):
        tokens = ((Token.Text if kind in PLAIN else kind, text) for kind, text in tokensource)
        super().format(tokens, outfile)

    def wrap(self, source):
        return super().wrap(spanned(source))


def spanned(source):
    """The (kind, HTML) of each line, as Pygments passes them on; kind 1 is a line of the source."""
    lines = list(source)
    texts = [unescape(re.sub("<[^>]*>", "", html)).rstrip("\n") for _, html in lines]
    kind_of_line = "ar-line ar-row" if any(map(COLUMNS.search, texts)) else "ar-line"
    for (kind, html), text in zip(lines, texts, strict=True):
        if kind == 1 and len(text) > FITS:
            indentation = len(text) - len(text.lstrip())
            if max(map(len, text.split())) > FITS - indentation:
                html = OPENS.sub(r"\1<wbr>", html)
            html = f'<span class="{kind_of_line}" style="--i:{indentation}">{html}</span>'
        yield kind, html


def setup(app) -> None:
    """Have Sphinx highlight with it."""
    PygmentsBridge.html_formatter = Formatter
