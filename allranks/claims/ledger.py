"""What does the ledger hold? An entry for each published number, in a YAML file or two for each paper.

The files are in `papers/`; `papers.yaml` names the papers. An entry names the place, the string as printed
and an expression over the arithmetic. A `table` is many entries, one for each cell, with the ids
table-row-column; its expression may name `row` and `column`. A printed formula is compared by its values:
`formula` writes it as an expression, `at` lists where.
"""

import functools
import itertools
import math
import re
from collections import namedtuple
from importlib import resources

from . import expressions, printed

STATUSES = ("reproduced", "erratum", "differs", "quoted")
SLUG = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
REQUIRED = ("where", "what", "printed")
OPTIONAL = ("unit", "ours", "rounding", "status", "why", "formula", "at")
TABLE = ("columns", "rows")
NO_CELL = {"-", "–"}

Outcome = namedtuple("Outcome", "agrees shown")


class Claim(
    namedtuple("Claim", "id paper where what printed unit ours rounding status why formula at names")
):
    """One published number. `ours` is an expression, `names` what it may name besides the arithmetic."""

    def outcome(self):
        """Whether ours is what is printed, and how it reads beside it; None for a quotation."""
        return self._outcome

    @functools.cached_property
    def _outcome(self):  # simulated for some, and asked for by the tests, by each table and by the errata
        if self.status == "quoted":
            return None
        try:
            return self._formula() if self.formula else self._number()
        except ValueError as error:
            raise ValueError(f"{self.paper}.yaml, {self.id}: {error}") from error

    def problem(self):
        """What is wrong with the status in a sentence, or None: it is the one that the numbers have."""
        outcome = self.outcome()
        if outcome is None or outcome.agrees == (self.status == "reproduced"):
            return None
        verdict = "agrees" if outcome.agrees else "does not agree"
        return (
            f"{self.paper}.yaml, {self.id}: the status says {self.status}, but ours {verdict} with"
            f" what is printed ({self.printed}; ours {outcome.shown})"
        )

    def _number(self):
        text = printed.parse(self.printed)
        number = expressions.value(self.ours, self.names)
        return Outcome(text.agrees(number, self.rounding), text.show(number, self.rounding))

    def _formula(self):
        apart = []
        for values in itertools.product(*self.at.values()):
            names = dict(zip(self.at, values))
            theirs = expressions.value(self.formula, names)
            ours = expressions.value(self.ours, names)
            if not math.isclose(theirs, ours, rel_tol=1e-9):
                apart.append((names, ours))
        if apart:
            names, ours = apart[0]
            return Outcome(
                False, f"{ours:.4g} at {'; '.join(f'{k} = {_short(v)}' for k, v in names.items())}"
            )
        varied = {name: values for name, values in self.at.items() if len(values) > 1} or self.at
        places = (f"{name} = {', '.join(map(_short, values))}" for name, values in varied.items())
        return Outcome(True, f"equal for {'; '.join(places)}")


def _short(value):
    """A value of a letter, for reading: 1024 or 1e+09."""
    return f"{value}" if isinstance(value, int) and value < 1e6 else f"{value:g}"


@functools.cache
def papers():
    """The papers of the ledger: bibliography key -> name (Authors year)."""
    text = resources.files(__package__).joinpath("papers.yaml").read_text(encoding="utf-8")
    return _load(text, "papers.yaml")


@functools.cache
def entries():
    """Every entry of the package's ledger: id -> Claim, by paper and in the papers' order."""
    files = resources.files(__package__).joinpath("papers").iterdir()
    texts = {file.name: file.read_text(encoding="utf-8") for file in files if file.name.endswith(".yaml")}
    return read(texts, papers())


def read(texts, known_papers):
    """The entries of the files `texts` (name -> text), or one ValueError that names file and entry."""
    order = list(known_papers)
    found = {}
    for name, text in sorted(texts.items(), key=lambda each: _place(each[0], order)):
        for claim in _claims(name, text, known_papers):
            if claim.id in found:
                raise ValueError(f"{name}, {claim.id}: this id is also in {found[claim.id].paper}.yaml")
            found[claim.id] = claim
    return found


def _place(name, order):
    key = name.removesuffix(".yaml").partition("-")[0]
    return (order.index(key) if key in order else len(order), name)


def _claims(name, text, known_papers):
    content = _load(text, name)
    if not isinstance(content, dict) or set(content) != {"paper", "claims"}:
        raise ValueError(f"{name}: a file has the two fields `paper` and `claims`")
    paper = content["paper"]
    if paper not in known_papers:
        raise ValueError(f"{name}: there is no paper {paper!r} in papers.yaml (and in book/references.bib)")
    if name.removesuffix(".yaml").partition("-")[0] != paper:
        raise ValueError(f"{name}: a file of {paper} is called {paper}.yaml or {paper}-….yaml")
    if not isinstance(content["claims"], list):
        raise ValueError(f"{name}: `claims` is a list")
    for number, entry in enumerate(content["claims"], start=1):
        if not isinstance(entry, dict) or ("id" in entry) == ("table" in entry):
            raise ValueError(f"{name}, entry {number}: an entry has either an `id` or the name of a `table`")
        where = f"{name}, {entry.get('id', entry.get('table'))}"
        yield from _cells(where, paper, entry) if "table" in entry else [_claim(where, paper, entry)]


def _claim(where, paper, entry, names=None):
    """The `Claim` of one entry."""
    _only(where, entry, ("id", *REQUIRED, *OPTIONAL))
    given = {"unit": "", "ours": "", "rounding": "nearest", "why": "", "formula": "", "at": {}, **entry}
    given["status"] = entry.get("status", "reproduced")
    for field in ("id", *REQUIRED, "unit", "ours", "why", "formula"):
        if not isinstance(given[field], str):
            raise ValueError(f"{where}: `{field}` is a text; write it in quotes")
        given[field] = " ".join(given[field].split())
    if not SLUG.fullmatch(given["id"]):
        raise ValueError(f"{where}: an id is made of a-z, 0-9, hyphens and points, not {given['id']!r}")
    for field, allowed in (("rounding", tuple(printed.ROUNDING)), ("status", STATUSES)):
        if given[field] not in allowed:
            raise ValueError(f"{where}: `{field}` is one of {', '.join(allowed)}, not {given[field]!r}")
    _status_has_what_it_needs(where, given)
    return Claim(paper=paper, names=names or {}, **{k: given[k] for k in Claim._fields if k in given})


def _status_has_what_it_needs(where, given):
    status = given["status"]
    if status == "quoted" and given["ours"]:
        raise ValueError(f"{where}: a quoted number is not computed; leave out `ours`, or the status")
    if status != "quoted" and not given["ours"]:
        raise ValueError(f"{where}: `ours` is missing; a number that is not computed has the status quoted")
    if status in ("erratum", "differs") and not given["why"]:
        raise ValueError(f"{where}: the status {status} needs a `why`")
    at = given["at"]
    if bool(given["formula"]) != bool(at):
        raise ValueError(f"{where}: a `formula` needs values to compare it `at`, and `at` needs a `formula`")
    if not isinstance(at, dict) or not all(isinstance(values, list) and values for values in at.values()):
        raise ValueError(f"{where}: `at` maps each letter of the formula to a list of values")
    if status != "quoted" and not given["formula"]:
        try:
            printed.parse(given["printed"])
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error


def _cells(where, paper, table):
    """One `Claim` for each cell of a table."""
    _only(where, table, ("table", *REQUIRED, *TABLE, *OPTIONAL, "exceptions"), ("table", *REQUIRED, *TABLE))
    if not isinstance(table["printed"], str):
        raise ValueError(f"{where}: `printed` is a text of one line a row")
    cells, rows, columns = table["printed"].split(), table["rows"], table["columns"]
    for field in TABLE:
        if not isinstance(table[field], dict):
            raise ValueError(f"{where}: `{field}` maps a part of the id to a value")
    lines = [line for line in table["printed"].splitlines() if line.strip()]
    if len(lines) != len(rows) or any(len(line.split()) != len(columns) for line in lines):
        raise ValueError(
            f"{where}: {len(rows)} rows × {len(columns)} columns are {len(rows) * len(columns)} cells,"
            f" `printed` has {len(cells)} in {len(lines)} lines"
        )
    shared = {k: v for k, v in table.items() if k in (*REQUIRED, *OPTIONAL)}
    exceptions = dict(table.get("exceptions") or {})
    for (row, column), text in zip(itertools.product(rows, columns), cells):
        fields = exceptions.pop(f"{row}-{column}", None) or exceptions.pop(
            f"{table['table']}-{row}-{column}", {}
        )
        if text in NO_CELL:
            continue
        cell = f"{where}-{row}-{column}"
        _only(cell, fields, OPTIONAL, ())
        entry = {**shared, "printed": text, **fields, "id": f"{table['table']}-{row}-{column}"}
        for field in ("where", "what"):
            entry[field] = str(entry[field]).replace("{row}", str(row)).replace("{column}", str(column))
        yield _claim(cell, paper, entry, {"row": rows[row], "column": columns[column]})
    for name in exceptions:
        raise ValueError(f"{where}: there is no cell {name!r} for an exception")


def _only(where, entry, allowed, required=REQUIRED):
    for field in entry:
        if field not in allowed:
            raise ValueError(f"{where}: unknown field {field!r}; the fields are {', '.join(allowed)}")
    for field in required:
        if field not in entry:
            raise ValueError(f"{where}: the field `{field}` is missing")


def _load(text, name):
    import yaml

    try:
        return yaml.load(text, _loader())
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{name}: {' '.join(str(error).split())}") from error


@functools.cache
def _loader():
    """A safe YAML loader that reads 7.5e9 as a number and yes as a word, and accepts no key twice."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012 (that is how PyYAML is told)

        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"{key!r} is there twice{node.start_mark}")
            return super().construct_mapping(node, deep)

    for tag, pattern, first in (
        ("bool", r"true|false", "tf"),
        ("null", r"~|null|", ["~", "n", ""]),
        ("int", r"[-+]?\d+", "-+0123456789"),
        ("float", r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?", "-+.0123456789"),
    ):
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first))
    return Loader
