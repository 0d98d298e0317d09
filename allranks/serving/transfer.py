"""How does a cache get to another rank? Page by page, head by head, and layer by layer.

One group prefills, another decodes (DistServe, Zhong et al. 2024; Splitwise, Patel et al. 2024). What travels
is the content of a request's pages; their numbers are those of each pool. `group` has the senders first and
then the receivers, and `routes` of `allranks.inference` says who sends which heads to whom. Pages are equally
large on both sides. On NCCL the group must have run a collective before: `batch_isend_irecv` asks for all
ranks of a group in its first call.
"""

import torch
import torch.distributed as dist

from .paged import PagedCache


def send_pages(cache, peer, group=None):
    """Send the pages of the only sequence of `cache`, all layers in one message."""
    pages = cache.stored[:, :, cache.tables[0]]  # layers, keys and values, pages, heads, page, width
    dist.send(pages.contiguous(), group=group, group_dst=peer)


def receive_pages(cache, length, peer, group=None):
    """Receive `length` tokens into pages of `cache`, which has one sequence and is empty."""
    cache.reserve(length)
    pages = torch.empty_like(cache.stored[:, :, cache.tables[0]])
    dist.recv(pages, group=group, group_src=peer)
    cache.stored[:, :, cache.tables[0]] = pages
    cache.length = length


def start(operation, messages, group=None):
    """Start to send or receive the tensors of `messages`, pairs (peer, tensor); return what to wait for."""
    operations = [dist.P2POp(operation, tensor, group=group, group_peer=peer) for peer, tensor in messages]
    return operations, dist.batch_isend_irecv(operations) if operations else []


class Sending(PagedCache):
    """Pages of one sequence, a prefill of one pass, whose layers are sent as soon as they are written."""

    def __init__(self, shape, pages, page, routes, group=None, **options):
        super().__init__(shape, 1, pages, page, **options)
        rank = dist.get_rank(group)
        self.routes = [route for route in routes if route.sender == rank]
        self.group, self.sent = group, []

    def append(self, layer, k, v):
        super().append(layer, k, v)
        pages = self.stored[layer][:, self.tables[0]]  # keys and values, pages, heads, page, width
        messages = [(r.receiver, pages[:, :, r.source :][:, :, : r.heads].contiguous()) for r in self.routes]
        self.sent.append(start(dist.isend, messages, self.group))

    def wait(self):
        """Wait until all that was sent has left."""
        for _, requests in self.sent:
            for request in requests:
                request.wait()


class Arriving(PagedCache):
    """Pages of one sequence of `length` tokens, received a layer at a time; a layer waits only for itself."""

    def __init__(self, shape, length, pages, page, routes, group=None, **options):
        super().__init__(shape, 1, pages, page, **options)
        self.reserve(length)
        self.length, self.places = length, self.tables[0]  # the table grows, the pages that come do not
        rank = dist.get_rank(group)
        self.routes = [route for route in routes if route.receiver == rank]
        self.coming = [self.receive(group) for _ in range(shape.layers)]

    def receive(self, group):
        """Start to receive a layer; return its parts, one for each route, and what to wait for."""
        pages, (page, width) = len(self.places), self.stored.shape[4:]
        new = self.stored.new_empty
        parts = [new(2, pages, route.heads, page, width) for route in self.routes]
        peers = [route.sender for route in self.routes]
        return parts, start(dist.irecv, zip(peers, parts, strict=True), group)

    def append(self, layer, k, v):
        if self.coming:  # the first step after the transfer meets the layers in their order
            place(self, layer, *self.coming.pop(0))
        super().append(layer, k, v)


def place(cache, layer, parts, started):
    """Wait for a layer, and write its heads into the pages of `cache`."""
    _, requests = started
    for request in requests:
        request.wait()
    for r, part in zip(cache.routes, parts, strict=True):
        heads = slice(r.target, r.target + r.heads)
        cache.stored[layer][:, cache.places, heads] = part
