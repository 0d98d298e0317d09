"""What does the page ask Python? For a picture and its words, or why a setting is refused. JSON both ways."""

import json

from .. import NARROW, WIDE, draw


def answer(question):
    """Answer {"explorer", "settings", "narrow"} with what `draw` returns, or with {"refusal": why}."""
    asked = json.loads(question)
    try:
        shown = draw(asked["explorer"], asked["settings"], NARROW if asked["narrow"] else WIDE)
    except ValueError as refusal:
        shown = {"refusal": str(refusal)}
    return json.dumps(shown)
