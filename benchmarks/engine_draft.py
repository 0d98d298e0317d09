"""A draft for vLLM that is right as often as it is told to be: a coin is tossed for each guess.

vLLM's own synthetic acceptance stops on CPUs: "Synthetic acceptance not supported with CPU sampling". This
draft knows the picture that the model will draw, so it sets the acceptance from outside; vLLM's own rejection
then decides.
"""

import random

from allranks.model import GREYS, PIXELS
from allranks.serving import recorded

PICTURES = {row[0]: row for row in recorded.pictures()}
setting = {}  # α and γ of the run, and its coin


def toss(acceptance, guesses):
    """From now on, make `guesses` guesses, each right with probability `acceptance`."""
    setting.update(acceptance=acceptance, guesses=guesses, coin=random.Random(1))


class Coins:
    """What `speculative_config` names with the method "custom_class"."""

    def __init__(self, config):
        self.config = config

    def propose(self, sampled, known, tokens, slot_mappings=None):
        """Guesses for each request of a step: none while its prompt is being read."""
        rows = enumerate(sampled)
        return [self.guess(PICTURES[int(tokens[i, 0])], int(known[i])) if new else [] for i, new in rows]

    def guess(self, picture, known):
        count = min(setting["guesses"], PIXELS - known)
        right = [setting["coin"].random() < setting["acceptance"] for _ in range(count)]
        return [
            token if good else (token + 1) % GREYS
            for token, good in zip(picture[known:], right, strict=False)
        ]

    def load_model(self, *args, **options):
        """Nothing to load."""
