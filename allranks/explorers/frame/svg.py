"""How is a picture written? A few marks as SVG text, in the book's colours, light and dark.

Coordinates are pixels of a picture `width` wide: 720 on a page, 360 on a phone. A colour is a name of
the page's palette; where there is no page (a file, Jupyter) its light value stands in.
"""

WIDE, NARROW = 720, 360

COLOURS = {
    "forward": "#06729e",
    "backward-input": "#bd5516",
    "backward-weight": "#248368",
    "comm": "#6d1b57",
    "idle": "#e3e7ea",
    "ink": "#20262e",
    "ink-soft": "#4d5966",
    "paper": "#ffffff",
    "tint": "#f6f7f8",
    "grid": "#dde2e6",
    "grid-strong": "#98a3ad",
    "accent": "#005f96",
    "alarm": "#a3262b",
    "rank-0": "#06729e",
    "rank-1": "#bd5516",
    "rank-2": "#248368",
    "rank-3": "#6d1b57",
    "rank-4": "#36300c",
    "rank-5": "#4a35e0",
    "rank-6": "#c30743",
    "rank-7": "#1557bd",
}


def colour(name):
    """The CSS value of a colour of the palette."""
    return f"var(--ar-{name},{COLOURS[name]})"


def number(x):
    """A coordinate: at most one decimal."""
    tenths = int(x * 10 + 0.5) if x >= 0 else -int(0.5 - x * 10)  # round() is not the same everywhere
    return f"{tenths // 10}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"


def escape(words):
    """`words` as text of an SVG."""
    return str(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def picture(width, height, *parts):
    """The whole SVG; `parts` are its marks, or lists of them."""
    marks = "".join(part if isinstance(part, str) else "".join(part) for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}"'
        f' width="{number(width)}" height="{number(height)}" font-family="system-ui,sans-serif"'
        f' font-size="13" style="font-variant-numeric:tabular-nums">'
        f'<rect width="100%" height="100%" style="fill:{colour("paper")}"/>{marks}</svg>'
    )


def rectangle(x, y, width, height, fill="tint", stroke=None, title=None, opacity=None):
    """A rectangle filled with a colour of the palette; `title` is what a pointer over it shows."""
    style = f"fill:{colour(fill)}" if fill else "fill:none"
    if stroke:
        style += f";stroke:{colour(stroke)}"
    if opacity is not None:
        style += f";opacity:{opacity}"
    at = f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    at += f' style="{style}"'
    return f"{at}><title>{escape(title)}</title></rect>" if title else f"{at}/>"


def text(x, y, words, anchor="start", size=None, ink="ink", bold=False):
    """Words whose base line begins (anchor "middle", "end": is centred, ends) at (x, y)."""
    style = f"fill:{colour(ink)}"
    extra = f' font-size="{size}"' if size else ""
    extra += f' text-anchor="{anchor}"' if anchor != "start" else ""
    extra += ' font-weight="600"' if bold else ""
    return f'<text x="{number(x)}" y="{number(y)}"{extra} style="{style}">{escape(words)}</text>'


def line(x1, y1, x2, y2, stroke="grid-strong", width=1, dash=None):
    """A straight line; `dash` as in SVG, for example "3 3"."""
    extra = f";stroke-dasharray:{dash}" if dash else ""
    at = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f'<line {at} style="stroke:{colour(stroke)};stroke-width:{width}{extra}"/>'


def path(d, stroke="ink", width=1.5, fill=None, dash=None):
    """A path in SVG's own notation."""
    style = f"fill:{colour(fill) if fill else 'none'}"
    style += f";stroke:{colour(stroke)};stroke-width:{width}" if stroke else ""
    style += f";stroke-dasharray:{dash}" if dash else ""
    return f'<path d="{d}" style="{style}"/>'


def circle(x, y, r, fill="tint", stroke=None, title=None):
    """A disc."""
    style = f"fill:{colour(fill)}" + (f";stroke:{colour(stroke)}" if stroke else "")
    at = f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(r)}" style="{style}"'
    return f"{at}><title>{escape(title)}</title></circle>" if title else f"{at}/>"


def mark(x, y, width, height, sets, words, lights=""):
    """A place of the picture that answers: `words` say what it is, a click sets "name=value,…" if not "".

    lights: one name or more; a place under the pointer lights all that share a name with it.
    """
    at = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    role = f'"button" data-set="{sets}"' if sets else '"img"'
    lit = f' data-light="{lights}"' if lights else ""
    return f'<rect {at} role={role} tabindex="-1"{lit} aria-label="{escape(words)}"/>'


def marks_over(width, height, marks):
    """The places that answer, as a picture of their own to lie over one of the same size."""
    box = f'viewBox="0 0 {number(width)} {number(height)}"'
    label = "Marks in the picture: a mark sets a control, and arrow keys go from mark to mark"
    return f'<svg class="ar-marks" {box} role="group" aria-label="{label}">{"".join(marks)}</svg>'


def hatches(mark):
    """Patterns for `bars` and `block`: for each kind of work its colour, under stripes of its own.

    mark: sets the names apart from those of other pictures of the page.
    """
    stripe = f'style="stroke:{colour("paper")};stroke-opacity:.4;fill:none"'
    drawn = (
        ("backward-input", f'<path d="M0 8L8 0" stroke-width="1" {stripe}/>'),
        ("backward-weight", f'<path d="M0 1H8M0 5H8" stroke-width="1" {stripe}/>'),
        ("comm", f'<path d="M0 0L8 8M8 0L0 8" stroke-width="1" {stripe}/>'),
    )
    patterns = [
        f'<pattern id="{mark}-{name}{tenths}" width="8" height="8" patternUnits="userSpaceOnUse"{scaled}>'
        f'<rect width="8" height="8" style="fill:{colour(name)}"/>{lines}</pattern>'
        for name, lines in drawn
        for tenths, scaled in (("", ""), ("-bars", ' patternTransform="scale(10)"'))
    ]
    return f"<defs>{''.join(patterns)}</defs>"


def block(x, y, width, height, fill, mark=None):
    """A rectangle in a colour or, with `mark`, under the stripes of the picture's `hatches`."""
    style = f"fill:url(#{mark}-{fill})" if mark else f"fill:{colour(fill)}"
    at = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect {at} style="{style}"/>'


def bars(pieces, height, fill, mark=None):
    """Many bars of one height and colour: each piece is "M{x} {y}h{width}", whole tenths of a pixel.

    (x, y) is the middle of a bar's left side. Whole numbers are written faster than decimals, and a page
    may show thousands of bars.
    """
    style = f"stroke:url(#{mark}-{fill}-bars)" if mark else f"stroke:{colour(fill)}"
    style += f";stroke-width:{number(10 * height)};fill:none"
    return f'<path transform="scale(.1)" d="{"".join(pieces)}" style="{style}"/>'


def legend(x, y, width, entries, mark):
    """Lines of entries (colour, words, hatched), wrapped to `width`; returns (marks, height)."""
    marks, left, top = [], x, y
    for fill, words, hatch in entries:
        needed = 24 + 7.4 * len(words) + 16
        if left > x and left + needed > x + width:
            left, top = x, top + 21
        marks.append(block(left, top - 11, 18, 14, fill, mark if hatch else None))
        marks.append(text(left + 24, top, words, ink="ink-soft"))
        left += needed
    return marks, top - y + 21
