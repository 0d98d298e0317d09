"""How fast can the machine be? Accelerators and links by name, with what their makers or NCCL say of them.

Peaks are those of dense products, where data sheets print twice as much for sparse ones. Memory is as
printed, a GB being 10⁹ bytes. A link's bandwidth is that of one direction, for one accelerator. Its α is no
property of the cable: it is what NCCL's own model charges for a hop of a ring that runs at full bandwidth
(protocol Simple). For short messages NCCL has two protocols with a smaller α: `protocols`.
"""

from collections import OrderedDict, namedtuple

from .inputs import one_of, whole

Accelerator = namedtuple("Accelerator", "name memory bandwidth peak source date")


class Link(namedtuple("Link", "name α bandwidth source date")):
    """A way between two accelerators: a message of n bytes takes α + βn seconds on it."""

    @property
    def β(self):
        """Seconds a byte, the inverse of the bandwidth."""
        return 1 / self.bandwidth


def by_name(records):
    """A dictionary of the records, in their order also in MicroPython."""
    return OrderedDict((record.name, record) for record in records)


V100 = {"fp16": 125e12, "fp32": 15.7e12}
A100 = {"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12}
HOPPER = {"fp8": 1978.9e12, "bf16": 989.4e12, "fp16": 989.4e12, "tf32": 494.7e12, "fp32": 66.9e12}

ACCELERATORS = by_name(
    [
        Accelerator("v100-32gb", 32e9, 900e9, V100, "NVIDIA, Tesla V100 data sheet (SXM2)", "2020"),
        Accelerator("a100-40gb", 40e9, 1555e9, A100, "NVIDIA, A100 data sheet (SXM4)", "2021"),
        Accelerator("a100-80gb", 80e9, 2039e9, A100, "NVIDIA, A100 data sheet (SXM4)", "2021"),
        Accelerator("h100", 80e9, 3.35e12, HOPPER, "NVIDIA, H100 architecture white paper (SXM5)", "2022"),
        Accelerator("h200", 141e9, 4.8e12, HOPPER, "NVIDIA, H200 data sheet (SXM5); peaks: H100", "2023"),
        Accelerator(
            "b200",
            180e9,
            8e12,
            {"fp4": 9e15, "fp8": 4.5e15, "bf16": 2.25e15, "fp16": 2.25e15},
            "NVIDIA, Blackwell architecture brief (HGX B200, 1000 W); memory: DGX B200 data sheet",
            "2024",
        ),
        Accelerator(
            "b300",
            270e9,
            7.7e12,
            {"fp4": 13.5e15, "fp8": 4.5e15, "bf16": 2.25e15, "fp16": 2.25e15},
            "NVIDIA, dgxc-benchmarking, README",
            "read 2026",
        ),
        Accelerator(
            "gb200",
            186e9,
            8e12,
            {"fp4": 10e15, "fp8": 5e15, "bf16": 2.5e15, "fp16": 2.5e15},
            "NVIDIA, GB200 NVL72 page, a 72nd (dgxc-benchmarking takes 98 % of these peaks)",
            "2024",
        ),
        Accelerator(
            "gb300",
            279e9,
            8e12,
            {"fp4": 15e15, "fp8": 5e15, "bf16": 2.5e15, "fp16": 2.5e15},
            "NVIDIA, Blackwell Ultra data sheet (dgxc-benchmarking takes 98 % of these peaks)",
            "2025",
        ),
        Accelerator(
            "mi300x",
            192e9,
            5.3e12,
            {"fp8": 2614.9e12, "bf16": 1307.4e12, "fp16": 1307.4e12, "fp32": 163.4e12},
            "AMD, Instinct MI300X data sheet",
            "2023",
        ),
        Accelerator(
            "mi355x",
            288e9,
            8e12,
            {"fp4": 10.1e15, "fp8": 5e15, "bf16": 2.5e15, "fp16": 2.5e15, "fp32": 157.3e12},
            "AMD, Instinct MI355X product page",
            "2025",
        ),
        Accelerator("tpu-v3", 32 * 2**30, 900e9, {"bf16": 123e12}, "Google Cloud, TPU v3 page", "read 2026"),
        Accelerator("tpu-v4", 32 * 2**30, 1.2e12, {"bf16": 275e12}, "Google Cloud, TPU v4 page", "read 2026"),
        Accelerator("tpu-v5e", 16e9, 819e9, {"bf16": 197e12}, "Google Cloud, TPU v5e page", "read 2026"),
        Accelerator(
            "tpu-v5p", 95 * 2**30, 2765e9, {"bf16": 459e12}, "Google Cloud, TPU v5p page", "read 2026"
        ),
        Accelerator("tpu-v6e", 32e9, 1638e9, {"bf16": 918e12}, "Google Cloud, TPU v6e page", "read 2026"),
        Accelerator(
            "tpu-7x",
            192 * 2**30,
            7380e9,
            {"fp8": 4614e12, "bf16": 2307e12},
            "Google Cloud, TPU7x page",
            "read 2026",
        ),
        Accelerator(
            "trainium2",
            96 * 2**30,
            2.9e12,
            {"fp8": 1299e12, "bf16": 667e12, "fp16": 667e12, "tf32": 667e12, "fp32": 181e12},
            "AWS, Neuron documentation, Trainium2 architecture",
            "read 2026",
        ),
        Accelerator(
            "trainium3",
            144 * 2**30,
            4.9e12,
            {"fp4": 2517e12, "fp8": 2517e12, "bf16": 671e12, "fp16": 671e12, "tf32": 671e12, "fp32": 183e12},
            "AWS, Neuron documentation, Trainium3 architecture",
            "read 2026",
        ),
    ]
)

NCCL = "α: NCCL 2.30.7, src/graph/tuning.cc, ring, Simple"
PROTOCOLS = ("LL", "LL128", "Simple")
HOPS = OrderedDict(  # seconds of a ring's hop under each of PROTOCOLS: hwLatencies in NCCL 2.30.7's tuning.cc
    [
        ("nvlink", (0.6e-6, 1.9e-6, 3.4e-6)),
        ("pcie", (1.0e-6, 2.5e-6, 5.7e-6)),
        ("network", (5.0e-6, 8.5e-6, 14.0e-6)),  # one rank a node: the row that NCCL calls Tree
        ("network, from nodes of several ranks", (2.7e-6, 4.0e-6, 14.0e-6)),
    ]
)
SHARES = (0.5, 0.92, 1.0)  # of the bandwidth, under each of PROTOCOLS
NVLINK_α, PCIE_α, NETWORK_α = (HOPS[kind][-1] for kind in ("nvlink", "pcie", "network"))


def pcie(generation, gigatransfers, date):
    """A PCIe slot of 16 lanes, one bit a transfer and lane, of which 128 in 130 are data."""
    bandwidth = gigatransfers * 1e9 * 16 * 128 / 130 / 8
    return Link(f"pcie-{generation}", PCIE_α, bandwidth, f"PCI-SIG, base specification; {NCCL}", date)


def network(name, gigabits, source, date):
    """A network card for each accelerator; NCCL charges the same α for every network."""
    return Link(name, NETWORK_α, gigabits * 1e9 / 8, f"{source}; {NCCL}, any network", date)


LINKS = by_name(
    [
        Link("nvlink-2", NVLINK_α, 150e9, f"NVIDIA, V100 data sheet, 300 GB/s both ways; {NCCL}", "2020"),
        Link("nvlink-3", NVLINK_α, 300e9, f"NVIDIA, A100 data sheet, 600 GB/s both ways; {NCCL}", "2021"),
        Link("nvlink-4", NVLINK_α, 450e9, f"NVIDIA, H100 data sheet, 900 GB/s both ways; {NCCL}", "2022"),
        Link("nvlink-5", NVLINK_α, 900e9, f"NVIDIA, Blackwell brief, 1.8 TB/s both ways; {NCCL}", "2024"),
        pcie(3, 8, "2010"),
        pcie(4, 16, "2017"),
        pcie(5, 32, "2019"),
        network("infiniband-edr", 100, "InfiniBand EDR, four lanes", "2014"),
        network("infiniband-hdr", 200, "Narayanan et al. 2021, section 5", "2021"),
        network("infiniband-ndr", 400, "InfiniBand NDR, four lanes", "2021"),
        network("infiniband-xdr", 800, "NVIDIA, ConnectX-8 firmware notes, 800 Gb/s", "2024"),
        network("roce-400", 400, "Grattafiori et al. 2024, section 3.3.1", "2024"),
        network("ethernet-100", 100, "IEEE 802.3ba", "2010"),
        network("ethernet-25", 25, "IEEE 802.3by", "2016"),
        network("ethernet-10", 10, "IEEE 802.3ae", "2002"),
    ]
)


def accelerator(name):
    """The `Accelerator` of this name; ValueError with the names there are."""
    return ACCELERATORS[one_of("accelerator", name, list(ACCELERATORS))]


def called(name):
    """An accelerator as people write its name: "A100" for both of its memories, "TPU v5e", "Trainium2"."""
    model, _, variant = accelerator(name).name.partition("-")
    if model == "tpu":
        return f"TPU {variant}"
    return "T" + model[1:] if model.startswith("trainium") else model.upper()


def link(name):
    """The `Link` of this name; ValueError with the names there are."""
    return LINKS[one_of("link", name, list(LINKS))]


def protocols(name, ranks_per_node=1):
    """The link of this name as NCCL's protocols use it: a `Link` called "LL", "LL128" and "Simple" each.

    Simple fences once a chunk and moves the full bandwidth. LL sends a flag with each 4 bytes, so that no
    hop waits for a fence, and LL128 one with each 120: half and 92 % of the bandwidth, for less α
    (ncclTopoTuneModel in NCCL 2.30.7, src/graph/tuning.cc; its caps for a processor, and the microseconds of
    a call, are left out). ranks_per_node: of the ring, where the link is a network. NCCL takes the fastest.
    """
    one, kind = link(name), name.split("-")[0]
    whole("ranks_per_node", ranks_per_node)
    if kind not in HOPS:
        kind = "network" if ranks_per_node == 1 else "network, from nodes of several ranks"
    return tuple(
        Link(protocol, α, share * one.bandwidth, one.source, one.date)
        for protocol, α, share in zip(PROTOCOLS, HOPS[kind], SHARES)
    )


def peak(name, dtype="bf16"):
    """Peak FLOP/s of dense products in `dtype` on the accelerator of this name; ValueError if it has none."""
    peaks = accelerator(name).peak
    return peaks[one_of(f"dtype on {name}", dtype, sorted(peaks))]


def ridge(name, dtype="bf16"):
    """FLOPs a byte from which on the memory is not what limits: peak / bandwidth (Williams et al. 2009)."""
    return peak(name, dtype) / accelerator(name).bandwidth
