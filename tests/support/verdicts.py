"""What a check prints about an answer."""


def verdict(capture, one_check, *answers):
    """Return it: one line with ✓ or ✗, below it where ranks stood, if any did; and nothing on stderr.

    `capture` is pytest's capsys, or capfd where ranks print too.
    """
    one_check(*answers)
    printed, errors = capture.readouterr()
    first, *places = printed.splitlines()
    assert first[0] in "✓✗" and errors == ""
    assert all(place.startswith("  rank") for place in places), printed
    return printed.strip()
