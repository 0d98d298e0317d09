"""Which article does a name take? "An" before the sound of a vowel: a lock, an int, an H100, a GB200.

A name that begins with two capitals, or with a capital and a digit, is said letter by letter.
"""

SPELLED_WITH_A_VOWEL = "AEFHILMNORSX"


def with_article(name):
    """`a lock`, `an int`, `an ndarray`, `an H100`, `a B200`."""
    vowel = name[0] in (SPELLED_WITH_A_VOWEL if name[:2].isupper() and len(name) > 1 else "aeiouAEIO")
    return f"{'an' if vowel or name == 'ndarray' else 'a'} {name}"
