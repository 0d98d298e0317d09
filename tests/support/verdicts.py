"""What a check prints about an answer, and what every check of a number or of a letter has to print."""


def verdict(capture, one_check, *answers):
    """Return it: one line with ✓ or ✗, below it where ranks stood, above it what gloo said on a rank.

    Nothing is on stderr. `capture` is pytest's capsys, or capfd where ranks print too.
    """
    one_check(*answers)
    printed, errors = capture.readouterr()
    first, *places = (line for line in printed.splitlines() if not line.startswith("[rank "))
    assert first[0] in "✓✗" and errors == "", printed + errors
    assert "Traceback" not in printed and all(place.startswith("  rank") for place in places), printed
    return "\n".join([first, *places])


def assert_number(capture, one_check, right, wrong, hint):
    """Assert that `one_check` accepts `right`, says `hint` about `wrong`, and raises for no other answer."""
    for answer, part in ((right, "✓"), (wrong, hint), (None, "None"), (7e7, "is not right"), ("x", "✗")):
        assert part in verdict(capture, one_check, answer)


def assert_letter(capture, one_check, right, hints):
    """Assert that `one_check` accepts the letter `right`, and says of each other one what `hints` has."""
    for answer in (right, f" {right.lower()}"):
        assert verdict(capture, one_check, answer).startswith("✓")
    for letter, hint in hints.items():
        line = verdict(capture, one_check, letter)
        assert line.startswith("✗") and hint in line
    assert "None" in verdict(capture, one_check, None)
    for other in (7, "F", "", [right]):
        assert "one of the letters A, B, C, D, E" in verdict(capture, one_check, other)
