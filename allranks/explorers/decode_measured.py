"""How near has somebody come to the bound of a decode step? What gpt-fast measured, from its README."""

from .frame.words import percent

MEASURED = (  # model, A100s, tokens a second of one sequence: as in the ledger
    ("llama2-7b", 1, 104.9),
    ("llama2-7b", 2, 168.84),
    ("llama2-7b", 4, 254.02),
    ("llama2-7b", 8, 328.43),
    ("llama2-70b", 2, 21.32),
    ("llama2-70b", 4, 38.01),
    ("llama2-70b", 8, 62.5),
)


def published(given):
    """Pairs (ranks, tokens a second): what gpt-fast measured of one sequence of at most 205 tokens."""
    same = (given["accelerator"], given["link"]) == ("a100-80gb", "nvlink")
    if not same or given["sequences"] * given["stages"] > 1 or given["context"] > 256:
        return []
    return [(ranks, rate) for model, ranks, rate in MEASURED if model == given["model"]]


def measured(given, token):
    """What was measured at this setting, beside the bound."""
    rate = dict(published(given)).get(given["ranks"])
    if rate is None:
        return ""
    return f" gpt-fast measured {rate} tokens a second, {percent(rate * token.seconds, 0)} of this bound."
