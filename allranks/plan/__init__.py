"""How should a model be divided over devices? Every legal layout, with its memory, its time and its limit.

`legal` says which there are and `listed` lists them, `footprint` says what they hold, `placement` which links
they use, `step` how long a step takes and `overlap` which communication hides behind compute; `pricing` puts
that together for one, and `search` keeps those that fit and sorts them. It is arithmetic over the other
modules: each number comes from the one function that knows it. `OMITTED` says what is left out.
"""

from .collective import bus_bandwidth, collective_seconds
from .footprint import least_bytes, memory_of
from .layer import Kernels, Rates, kernels
from .legal import Layout, illegal, layout
from .listed import divisors, layouts
from .placement import LLAMA_ORDER, MEGATRON_ORDER, Path, beside, mesh_of, path, paths
from .pricing import IN_2021, Plan, price
from .reached import rates
from .search import OMITTED, plans
from .step import Communication, Parts, parts, priced

__all__ = [
    "IN_2021",
    "LLAMA_ORDER",
    "MEGATRON_ORDER",
    "OMITTED",
    "Communication",
    "Kernels",
    "Layout",
    "Parts",
    "Path",
    "Plan",
    "Rates",
    "beside",
    "bus_bandwidth",
    "collective_seconds",
    "divisors",
    "illegal",
    "kernels",
    "layout",
    "layouts",
    "least_bytes",
    "memory_of",
    "mesh_of",
    "parts",
    "path",
    "paths",
    "plans",
    "price",
    "priced",
    "rates",
]
