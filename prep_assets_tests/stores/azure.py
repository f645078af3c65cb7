"""A server of Azure's blobs on this machine: Microsoft's own emulator, Azurite, which npm installs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

import pytest

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Those of every emulator; they are public."""
_VERSION = "2021-08-06"


@contextmanager
def serving() -> Iterator[dict[str, str]]:
    """A server with an empty container ``bucket``; gives the variables of the environment that lead to it."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not installed: npm install -g azurite")
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        port = asking.getsockname()[1]
    command = [program, "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck", f"--blobPort={port}"]
    process = subprocess.Popen([*command, "--blobHost=127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        _make_container(f"http://127.0.0.1:{port}")
        yield {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }
    finally:
        process.terminate()
        process.wait(20)


def _wait(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < end, "Azurite does not answer"
            time.sleep(0.1)
        else:
            return


def _make_container(server: str) -> None:
    """Signed with the shared key of the account."""
    date = formatdate(usegmt=True)
    said = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), said.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    urllib.request.urlopen(urllib.request.Request(f"{server}/{ACCOUNT}/bucket?restype=container", method="PUT", headers=headers))
