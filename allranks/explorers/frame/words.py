"""How is a number said? With few digits, and alike in every Python: halves are rounded up, by whole numbers.

`round` and the formats of floats decide ties in different ways in CPython and MicroPython.
"""


def fixed(x, decimals=1):
    """`x` with this many decimals: fixed(27.25) is "27.3"."""
    scaled = int(abs(x) * 10**decimals + 0.5)
    whole, part = scaled // 10**decimals, scaled % 10**decimals
    sign = "-" if x < 0 and scaled else ""
    if not decimals:
        return f"{sign}{whole:,}"
    return f"{sign}{whole:,}." + "0" * (decimals - len(str(part))) + str(part)


def figures(x, digits=3):
    """`x` with `digits` significant digits and no zeros at its end: 0.333, 2.5, 1,234."""
    size, decimals = abs(x), digits - 1
    while size >= 10 and decimals > 0:
        size, decimals = size / 10, decimals - 1
    while 0 < size < 1 and decimals < 12:
        size, decimals = size * 10, decimals + 1
    said = fixed(x, decimals)
    return said.rstrip("0").rstrip(".") if "." in said else said


def many(count, thing):
    """A number of things, which may be in words already: "1 rank", "8 micro-batches", "2.5 units"."""
    plural = "es" if thing[-1] == "h" else "s"
    return f"{count} {thing}" if str(count) == "1" else f"{count} {thing}{plural}"


def percent(part, decimals=1):
    """A part of one as a percentage: percent(0.2727) is "27.3 %"."""
    return f"{fixed(100 * part, decimals)} %"


def scaled(x, unit, digits=3, names=("", "k", "M", "G", "T", "P", "E")):
    """`x` with the prefix that leaves it between 1 and 1000: scaled(31.4e9, "B") is "31.4 GB"."""
    step = 0
    while abs(x) >= 999.5 and step < len(names) - 1:
        x, step = x / 1000, step + 1
    return f"{figures(x, digits)} {names[step]}{unit}".rstrip()


def gigabits(megabits, digits=3):
    """A bandwidth given in Mbit/s, as links are sold: gigabits(500) is "0.5 Gbit/s"."""
    return f"{figures(megabits / 1000, digits)} Gbit/s"


def counted(x, digits=3):
    """A large number of things, as the field says it: counted(7.5e9) is "7.5 B", counted(1e12) is "1 T"."""
    return scaled(x, "", digits, ("", "k", "M", "B", "T"))


def seconds(x, digits=3):
    """A time with its unit: seconds(0.0025) is "2.5 ms"."""
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if x >= size * 0.9995:
            return f"{figures(x / size, digits)} {unit}"
    return f"{figures(x * 1e9, digits)} ns" if x else "0 s"


def lasting(x, digits=3):
    """A time in the unit that people use: lasting(800) is "13.3 minutes", lasting(20000) "5.56 hours"."""
    for least, size, unit in ((172_800, 86_400, "days"), (5400, 3600, "hours"), (91, 60, "minutes")):
        if x >= least:
            return f"{figures(x / size, digits)} {unit}"
    return seconds(x, digits)
