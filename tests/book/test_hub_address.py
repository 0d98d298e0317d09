"""A hub is taken in the forms readers paste, or refused with words; links follow from the repository."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from allranks_book.opening import menu
from allranks_book.repository import Repository

BOOK = Path(__file__).resolve().parents[2] / "book"
SCRIPT = BOOK / "_static" / "opening.js"
GITHUB = Repository("https://github.com/owner/name", "main")
PROGRAM = """
const { hubAddress, pullLink } = require(process.argv[1]);
const tried = (text) => {
  try { return hubAddress(text); } catch (error) { return { refused: error.message }; }
};
const { addresses, page } = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify([addresses.map(tried), pullLink("https://hub.example.edu/x", page)]));
"""
TAKEN = {
    "https://hub.example.edu": "https://hub.example.edu",
    " https://hub.example.edu/ ": "https://hub.example.edu",
    "hub.example.edu": "https://hub.example.edu",
    "hub.example.edu:8443": "https://hub.example.edu:8443",
    "https://Hub.Example.edu/jupyter/hub/home": "https://hub.example.edu/jupyter",
    "https://hub.example.edu/user/ada/lab/tree/x?a=1#b": "https://hub.example.edu",
    "https://hub.example.edu/hub": "https://hub.example.edu",
    "http://localhost:8000/hub/login?next=": "http://localhost:8000",
    "localhost:8000": "http://localhost:8000",
    "http://127.0.0.1:8000": "http://127.0.0.1:8000",
}
REFUSED = {
    "": "Write the address",
    "http://hub.example.edu": "“http://” is not taken",
    "ftp://hub.example.edu": "“ftp://” is not taken",
    "http://localhost.example.edu": "“http://” is not taken",
    "localhost@other.example.org": "“http://” is not taken",
    "javascript:alert(1)": "is no address of a hub",
    "javascript://hub.example.edu/%0aalert(1)": "is not taken",
    "data:text/html,x": "is no address of a hub",
    "https://ada:secret@hub.example.edu": "Leave out the name and the password",
    "https://hub": "has no dot",
    "https://": "is no address",
    "my hub": "is no address",
}


def in_node(addresses, page):
    node = shutil.which("node") or shutil.which("node", path=Path(sys.executable).parent)
    if node is None:
        pytest.fail("There is no Node to run the script: `make setup` installs it.", pytrace=False)
    asked = json.dumps({"addresses": addresses, "page": page})
    ran = subprocess.run(
        [node, "-e", PROGRAM, str(SCRIPT)],
        input=asked,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    return json.loads(ran.stdout)


PULLED = {"repository": GITHUB.url, "branch": "main", "opens": "name/notebooks/a/b.ipynb"}


@pytest.fixture(scope="module")
def answers():
    given = [*TAKEN, *REFUSED]
    found, link = in_node(given, PULLED)
    return dict(zip(given, found, strict=True)), link


@pytest.mark.parametrize("given", TAKEN)
def test_a_hub_is_taken_as_it_is_pasted(answers, given):
    assert answers[0][given] == TAKEN[given]


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_no_hub_is_refused_with_words(answers, given):
    assert REFUSED[given] in answers[0][given]["refused"]


def test_the_hub_gets_a_link_in_the_form_of_nbgitpuller(answers):
    parts = urlsplit(answers[1])
    assert parts.path == "/x/hub/user-redirect/git-pull"
    assert parse_qs(parts.query) == {
        "repo": [GITHUB.url],
        "branch": ["main"],
        "urlpath": ["lab/tree/name/notebooks/a/b.ipynb"],
    }


def made(home, name="b.ipynb"):
    file = BOOK / "notation.md" if name.endswith(".md") else BOOK.parent / "notebooks/foundations/ranks.ipynb"
    return menu(home, f"notebooks/a/{name}", f"../../_sources/notebooks/a/{name}", "../how.html", file)


def test_every_link_of_a_notebook_follows_from_the_repository():
    text = made(GITHUB)
    below = "main/notebooks/a/b.ipynb"
    for address in (
        f"https://colab.research.google.com/github/owner/name/blob/{below}",
        "https://mybinder.org/v2/gh/owner/name/main?urlpath=lab%2Ftree%2Fnotebooks%2Fa%2Fb.ipynb",
        *(f"https://github.com/owner/name/{kind}/{below}" for kind in ("blob", "edit", "commits")),
        "https://github.com/owner/name/issues/new?title=On+notebooks%2Fa%2Fb.ipynb%3A+",
    ):
        assert f'href="{address}"' in text
    assert "%pip install -q git+https://github.com/owner/name<" in text


def test_a_page_without_code_is_offered_neither_to_colab_nor_to_binder():
    assert not {"colab", "mybinder"} & set(re.findall(r"\w+", made(GITHUB, "b.md")))
    assert 'data-opens="name/notebooks"' in made(GITHUB, "b.md")


def test_a_repository_elsewhere_gets_no_link_that_only_github_has():
    text = made(Repository("https://gitlab.com/owner/name", "main"))
    assert (
        "colab" not in text
        and "mybinder" not in text
        and "/blob/" not in text
        and 'href="https://gitlab.com/owner/name"' in text
    )
