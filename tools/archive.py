"""How does the built book fit into one file that opens without a network, the same bytes each time?"""

from __future__ import annotations

import zipfile
from pathlib import Path

from downloads import ARCHIVE, FIRST_PAGE, PDF, filled

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "all-ranks"
BESIDE = ("LICENSE", "LICENSE-TEXT", "CITATION.cff")
NOT_READ = (ARCHIVE, PDF, ".buildinfo", "objects.inv", "sitemap.xml")
SAID = '<p class="ar-downloads">This is the copy for reading without a network.</p>'
EARLIEST = (1980, 1, 1, 0, 0, 0)


def write_archive(site: Path, target: Path) -> None:
    """Every file of the site that a reader needs, in order, without times; the licences beside them."""
    files = {path.relative_to(site).as_posix(): path for path in site.rglob("*") if path.is_file()}
    contents = {name: path.read_bytes() for name, path in files.items() if name not in NOT_READ}
    contents[FIRST_PAGE] = filled(contents[FIRST_PAGE].decode(), SAID).encode()
    contents |= {name: (ROOT / name).read_bytes() for name in BESIDE}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents[name])
