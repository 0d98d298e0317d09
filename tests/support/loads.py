"""Requests for a server under load, and engines that serve them, drawn at random."""

from hypothesis import strategies as st

from allranks import inference

ENGINES = (
    inference.constant(0.25),
    inference.Engine(0.1, 0.2, 0, 1, 0.05, 0.001, 0.002, ((0.01, 0.003), (0.05, 0.001)), ()),
)


@st.composite
def loads(draw, **options):
    """Requests, options that can serve them, and an engine; `options` are strategies for further options."""
    count = draw(st.integers(1, 12))
    arrivals = sorted(draw(st.lists(st.floats(0, 9), min_size=count, max_size=count)))
    sizes = st.lists(st.integers(1, 40), min_size=count, max_size=count)
    listed = inference.requests(arrivals, draw(sizes), draw(sizes))
    page = draw(st.integers(1, 8))
    least = max(-(-(each.prompt + each.output - 1) // page) for each in listed)
    room = {
        "slots": draw(st.integers(1, 12)),
        "page": page,
        "pages": draw(st.none() | st.integers(least, least + 20)),
    }
    return listed, room | {name: draw(each) for name, each in options.items()}, draw(st.sampled_from(ENGINES))
