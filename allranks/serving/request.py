"""What does a server know about one request?

There is no state "prefill" or "decode": a request has `tokens`, of which the first `computed` are cached, and
the next step computes those that are missing. A preempted request has computed none and keeps what it wrote.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Request:
    """Write `new` tokens behind `prompt`, starting in step `arrival`; with a `seed` they are drawn."""

    prompt: list
    new: int
    seed: int | None = None
    arrival: int = 0
    computed: int = 0  # tokens whose keys and values are in `pages`
    pages: list = field(default_factory=list)
    lost: int = 0  # what the last preemption threw away
    preemptions: int = 0
    reused: int = 0  # tokens found in the cache instead of computed

    def __post_init__(self):
        if not self.prompt or self.new < 1:
            raise ValueError(
                f"{len(self.prompt)} known and {self.new} new tokens: a request needs at least one of each"
            )
        self.tokens = list(self.prompt)

    @property
    def missing(self):
        return len(self.tokens) - self.computed

    @property
    def phase(self):
        """What the next step is for this request: a word for logs and figures, not for the scheduler."""
        if self.computed < self.lost:
            return "recompute"
        return "prefill" if self.computed < len(self.prompt) else "decode"
