"""How large are the letters of a wide picture? Large enough for a projector, where it is shown as wide."""

from .svg import WIDE


def legible(svg, width):
    """The picture `svg`, of letters of 12 and 13 pixels, with none below 14 if it is WIDE."""
    if width != WIDE:
        return svg
    return svg.replace(' font-size="12"', ' font-size="14"').replace(' font-size="13"', ' font-size="14"')
