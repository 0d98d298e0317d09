"""How does a trained model write, one token after another? The digits model and its caches.

`model` is a Llama, `checkpoint` stores it for Hugging Face's libraries too, `cache` is what it remembers,
`sliced` divides one cache over ranks, `paged` keeps it in pages, and `generation` writes. `tensor` cuts the
model itself for several ranks, and `stages` makes a pipeline of them. An `engine` serves many requests: a
`scheduler` decides whose turn it is, and a `pool` who holds which page. `transfer` sends a cache to other
ranks, and `speculation` writes several tokens in one pass.
"""

from .cache import Cache, attend
from .checkpoint import load, save
from .engine import Engine, Packed
from .generation import generate
from .model import Llama
from .paged import PagedCache
from .pool import Pool, page_keys
from .request import Request
from .scheduler import Scheduler
from .sliced import SlicedCache, merge
from .speculation import lookup, outcomes, speculate
from .stages import generate_in_stages
from .tensor import parallelize
from .transfer import Arriving, Sending, receive_pages, send_pages

__all__ = [
    "Arriving",
    "Cache",
    "Engine",
    "Llama",
    "Packed",
    "PagedCache",
    "Pool",
    "Request",
    "Scheduler",
    "Sending",
    "SlicedCache",
    "attend",
    "generate",
    "generate_in_stages",
    "load",
    "lookup",
    "merge",
    "outcomes",
    "page_keys",
    "parallelize",
    "receive_pages",
    "save",
    "send_pages",
    "speculate",
]
