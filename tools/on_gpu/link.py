"""How fast is the link to the host's memory, and what does a copy over it cost the kernels beside it?"""

from . import timing


def copies(device, sizes):
    """Bytes a second between host and device: [(bytes, pinned, direction, bytes a second)].

    Pinned memory stays where it is, so that the device can read it by itself; other memory is copied twice.
    """
    import torch

    found = []
    for nbytes in sizes:
        there = torch.empty(nbytes, dtype=torch.uint8, device=device)
        for pinned in (True, False):
            here = torch.ones(nbytes, dtype=torch.uint8, pin_memory=pinned and _on_gpu(device))
            for direction, target, source in (("to device", there, here), ("to host", here, there)):

                def call(target=target, source=source, pinned=pinned):
                    target.copy_(source, non_blocking=pinned)

                found.append((nbytes, pinned, direction, nbytes / timing.best(call, device)))
    return found


def beside_products(device, nbytes, side, products=20):
    """Seconds of products, of copies, and of both at once on two streams, by what is copied where.

    {what: seconds}: "products" alone; for "to device", "to host" and "within" (the device) the copies alone
    and "… and products", both from the same start until each is done. As many copies as take as long.
    """
    import torch

    on_gpu = _on_gpu(device)
    a = torch.randn(side, side, device=device).to(torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)
    there = torch.empty(nbytes, dtype=torch.uint8, device=device)
    other = torch.empty_like(there)
    here = torch.ones(nbytes, dtype=torch.uint8, pin_memory=on_gpu)
    stream = torch.cuda.Stream() if on_gpu else None

    def multiply():
        for _ in range(products):
            torch.mm(a, b, out=out)

    found = {"products": timing.best(multiply, device)}
    for direction, target, source in (
        ("to device", there, here),
        ("to host", here, there),
        ("within", other, there),
    ):
        once = timing.best(lambda t=target, s=source: t.copy_(s, non_blocking=True), device)
        times = max(1, round(found["products"] / once))

        def copy(target=target, source=source, times=times):
            for _ in range(times):
                target.copy_(source, non_blocking=True)

        def both(copy=copy):
            if stream is None:
                copy()
            else:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    copy()
            multiply()
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)

        found[direction] = timing.best(copy, device)
        found[f"{direction} and products"] = timing.best(both, device)
    return found


def _on_gpu(device):
    import torch

    return torch.device(device).type == "cuda"
