"""The day a page changed comes from git, and where git does not know all, nothing is said."""

import subprocess

import pytest
from allranks_book.changes import Change, feeds, inline, last_changed, listed
from allranks_book.repository import Repository

HOME = Repository("https://github.com/owner/name", "main")


@pytest.fixture
def history(tmp_path):
    """A repository with two commits: the second touches only one of two files."""
    root = tmp_path / "book"
    root.mkdir()

    def git(*words, day=""):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        dates = {"GIT_AUTHOR_DATE": f"{day}T12:00:00Z", "GIT_COMMITTER_DATE": f"{day}T12:00:00Z"}
        subprocess.run(["git", *who, *words], cwd=root, check=True, env=dates if day else None, timeout=60)

    git("init", "-q")
    (root / "one.md").write_text("1", encoding="utf-8")
    (root / "två.md").write_text("1", encoding="utf-8")
    git("add", ".")
    git("commit", "-qm", "[book] both", day="2026-01-02")
    (root / "one.md").write_text("2", encoding="utf-8")
    git("commit", "-qam", "[one] a clearer sentence", day="2026-03-04")
    return root


def test_the_last_commit_that_touched_a_file_counts(history):
    found = {file: (change.day, change.what) for file, change in last_changed(history).items()}
    assert found == {
        "one.md": ("2026-03-04", "[one] a clearer sentence"),
        "två.md": ("2026-01-02", "[book] both"),
    }


def test_the_newest_change_stands_first(history):
    assert list(last_changed(history)) == ["one.md", "två.md"]


def test_a_clone_without_its_history_says_nothing(history, tmp_path):
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", history.as_uri(), shallow], check=True, timeout=60)
    assert (shallow / "one.md").exists() and last_changed(shallow) == {}


def test_a_folder_without_git_says_nothing(tmp_path):
    assert last_changed(tmp_path) == {}


def test_a_copy_inside_another_repository_says_nothing(history):
    (history / "copy").mkdir()
    assert last_changed(history / "copy") == {}


def test_pages_stand_with_the_commit_that_touched_them_last():
    both, other = Change("2026-03-04", "[b] a clearer sentence", "abc"), Change("2026-03-03", "x", "def")
    text = listed({"a/b.ipynb", "a/c.md"}, {"a/c.md": both, "a/b.ipynb": both, "README.md": other}, HOME)
    day = "[2026-03-04](https://github.com/owner/name/commit/abc)"
    assert text == f"- {day}: a clearer sentence.\\\n  [](/a/b.ipynb) · [](/a/c.md)"


def test_without_history_the_list_says_so():
    assert "without its history" in listed({"a/b.ipynb"}, {}, HOME)


def test_words_of_a_commit_are_no_markup():
    assert inline("*args* in `launch(*args)` [x]") == r"\*args\* in `launch(*args)` \[x\]"


def test_feeds_are_those_of_the_repository():
    assert "https://github.com/owner/name/commits/main.atom" in feeds(HOME)
    assert ".atom" not in feeds(Repository("https://gitlab.com/owner/name", "main"))
