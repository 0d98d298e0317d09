"""Where do the sources of a page live, in the one repository that `_config.yml` names?"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, urlencode

GITHUB = "https://github.com/"


class Repository(NamedTuple):
    """The public home of the sources: its address and the branch that readers get."""

    url: str
    branch: str

    @property
    def name(self) -> str:
        """The folder that a clone makes."""
        return self.url.rsplit("/", 1)[1]

    @property
    def on_github(self) -> bool:
        """Whether the addresses below exist: they are GitHub's forms."""
        return self.url.startswith(GITHUB)

    def source(self, path: str) -> str:
        """The file as GitHub shows it."""
        return f"{self.url}/blob/{self.branch}/{quote(path)}"

    def edit(self, path: str) -> str:
        """The file in GitHub's editor."""
        return f"{self.url}/edit/{self.branch}/{quote(path)}"

    def history(self, path: str) -> str:
        """Every change of the file."""
        return f"{self.url}/commits/{self.branch}/{quote(path)}"

    def issue(self, path: str) -> str:
        """A new report that names the file."""
        return f"{self.url}/issues/new?{urlencode({'title': f'On {path}: '})}"

    def colab(self, path: str) -> str:
        """The notebook in Colab, which reads it from GitHub."""
        below = self.url.removeprefix(GITHUB)
        return f"https://colab.research.google.com/github/{below}/blob/{self.branch}/{quote(path)}"

    def binder(self, path: str) -> str:
        """The notebook in JupyterLab on mybinder.org, which builds the repository by its folder `binder`."""
        below, opens = self.url.removeprefix(GITHUB), urlencode({"urlpath": f"lab/tree/{path}"})
        return f"https://mybinder.org/v2/gh/{below}/{quote(self.branch, safe='')}?{opens}"

    @property
    def pages(self) -> str:
        """Where GitHub Pages publishes the book; for a repository elsewhere, the repository."""
        owner, name = self.url.rsplit("/", 2)[1:]
        return f"https://{owner.lower()}.github.io/{name}" if self.on_github else self.url

    @property
    def install(self) -> str:
        """The cell that brings the package to a machine that has none of it."""
        return f"%pip install -q git+{self.url}" + (f"@{self.branch}" if self.branch != "main" else "")


def repository(config) -> Repository:
    """The repository of a Sphinx configuration."""
    options = config.html_theme_options
    url = options.get("repository_url", "").rstrip("/").removesuffix(".git")
    if not url.startswith("https://") or url.count("/") < 4:
        raise ValueError(
            f"repository: url in _config.yml is {url!r}; give the https address of the sources, "
            "such as https://github.com/owner/name"
        )
    return Repository(url, options.get("repository_branch") or "main")
