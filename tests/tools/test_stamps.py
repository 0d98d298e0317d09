"""A test is skipped only while every byte that it looks at is what it last passed on."""

import json

import pytest
import stamps


@pytest.fixture
def tree(tmp_path, monkeypatch):
    (tmp_path / "part").mkdir()
    (tmp_path / "notebooks/one").mkdir(parents=True)
    for name in ("part/a.py", "part/b.py", "notebooks/one/page.ipynb", "constraints.txt"):
        (tmp_path / name).write_text(f"of {name}", encoding="utf-8")
    monkeypatch.setattr(stamps, "INPUTS", {"hub": ("part/*.py",), "lecture": ("part/a.py",)})
    monkeypatch.setattr(stamps, "ALWAYS", ("constraints.txt",))
    return tmp_path


def digests(tree):
    stamps.digest.cache_clear()
    return {
        "hub": stamps.digest("hub", root=tree),
        "page": stamps.digest("lecture", "notebooks/one/page", root=tree),
    }


@pytest.mark.parametrize(
    "changed, seen_by",
    [
        ("part/b.py", {"hub"}),
        ("part/a.py", {"hub", "page"}),
        ("notebooks/one/page.ipynb", {"page"}),
        ("constraints.txt", {"hub", "page"}),
        ("README.md", set()),
    ],
)
def test_a_changed_byte_changes_the_hash_of_those_who_look_at_it(tree, changed, seen_by):
    before = digests(tree)
    (tree / changed).write_text("changed", encoding="utf-8")
    after = digests(tree)
    assert {group for group in before if before[group] != after[group]} == seen_by


def test_a_new_and_a_renamed_input_change_the_hash(tree):
    before = digests(tree)["hub"]
    (tree / "part/c.py").write_text("", encoding="utf-8")
    grown = digests(tree)["hub"]
    (tree / "part/c.py").rename(tree / "part/d.py")
    assert len({before, grown, digests(tree)["hub"]}) == 3


def test_a_pattern_that_names_nothing_is_an_error(tree):
    with pytest.raises(ValueError, match=r"no file is called gone/\*: correct INPUTS"):
        stamps.files(["gone/*"], tree)


def test_every_group_has_inputs_and_no_stamp_means_changed(tmp_path):
    assert not any(stamps.unchanged(group, file=tmp_path / "none.json") for group in stamps.INPUTS)


def test_what_is_written_holds_until_something_changes(tmp_path):
    file = tmp_path / "stamps.json"
    stamps.write("tests", file)
    assert stamps.unchanged("launch", file=file) and not stamps.unchanged("hub", file=file)
    stamps.write("pages", file)
    assert all(stamps.unchanged(group, file=file) for group in stamps.INPUTS if group != "lecture")
    assert all(stamps.unchanged("lecture", page, file) for page in stamps.pages())
    kept = json.loads(file.read_text(encoding="utf-8")) | {"hub": "another"}
    file.write_text(json.dumps(kept), encoding="utf-8")
    assert not stamps.unchanged("hub", file=file)
    assert not stamps.unchanged("lecture", "book/index", file), "a page without a stamp is always looked at"
