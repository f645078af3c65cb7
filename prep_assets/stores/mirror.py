"""The folder on this machine that stands for a folder of stores in a bucket: builds are written in it, what is read is fetched to it.

It looks like a folder of stores on disk, so that whatever reads stores reads it. Its file `BUCKET` says which bucket it stands for.

    <cache>/stores/<end of the address>-<hash of it>/
        bucket.json                          the address
        <asset>[/<partition>]/versions/…     versions that were built here or fetched
    <cache>/blobs/<sha256>                   their files, under other names of the same bytes on disk
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from prep_assets.disk.faults import told
from prep_assets.errors import ConfigError
from prep_assets.stores.bucket import Bucket, checked, is_bucket

BUCKET = "bucket.json"
FOLDER = "PREP_ASSETS_CACHE"


def cache_folder() -> Path:
    """Where mirrors and blobs are."""
    named, base = os.environ.get(FOLDER), os.environ.get("XDG_CACHE_HOME")
    if named == "":
        raise ConfigError(f"stores in a bucket need a folder on this machine, and {FOLDER} is empty. Name one, or leave the variable out")
    return Path(named).expanduser().absolute() if named else (Path(base) if base else Path.home() / ".cache") / "prep-assets"


def local_root(location: str | Path) -> Path:
    """The folder of stores on this machine for a folder or an address.

    Raises:
        ConfigError: an address that is not that of a bucket.
    """
    if not is_bucket(location):
        return Path(location)
    url = checked(str(location))
    name = re.sub(r"[^A-Za-z0-9]+", "-", url.rpartition("/")[2])
    root = cache_folder() / "stores" / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
    with told(root):
        root.mkdir(parents=True, exist_ok=True)
        if not (root / BUCKET).exists():
            temporary = root / f".{BUCKET}-{os.getpid()}"
            temporary.write_text(json.dumps({"url": url}) + "\n", "utf-8")
            temporary.replace(root / BUCKET)
    return root


def bucket_of(folder: Path) -> Bucket | None:
    """What a folder in a mirror stands for; `None` for any other folder."""
    real = folder.resolve()
    for above in (real, *list(real.parents)[:2]):
        if (above / BUCKET).is_file():
            url = json.loads((above / BUCKET).read_text("utf-8"))["url"]
            below = real.relative_to(above).as_posix()
            return Bucket(url) if below == "." else Bucket(url).below(below)
    return None
