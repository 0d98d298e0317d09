"""Settings that every test shares."""

import os

os.environ.setdefault("MPLBACKEND", "Agg")
