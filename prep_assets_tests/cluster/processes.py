"""The services of `deploy/compose.yaml` as processes of this machine, without containers."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
DEBIAN = Path("/usr/lib/postgresql")
STORES, SECRET = "s3://bucket/team/stores", "the-secret-of-the-object-store"


def free_port() -> int:
    with socket.socket() as asking:
        asking.bind(("127.0.0.1", 0))
        return int(asking.getsockname()[1])


def wait_for(look: Callable[[], bool], what: str, *, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"{what} does not answer"
        time.sleep(0.3)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def program(name: str) -> str:
    """A program of the environment that the tests run in."""
    return str(Path(sys.executable).parent / name)


@contextmanager
def started(command: list[str], log: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended with the block, and what it started with it."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environ}, process_group=0)
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, 15)
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass


@contextmanager
def postgres(folder: Path) -> Iterator[int]:
    """A server of Postgres, and its port. It will not run as root."""
    found = shutil.which("initdb")
    programs = Path(found).resolve().parent if found else next(iter(sorted(DEBIAN.glob("*/bin"), reverse=True)), None)
    if programs is None:
        pytest.fail("Postgres is not installed: apt-get install postgresql")
    user = "postgres" if os.getuid() == 0 else None
    folder.mkdir(parents=True)
    if user:
        shutil.chown(folder, user)
    (folder.parent / "password").write_text("dagster")
    (folder.parent / "password").chmod(0o644)
    init = [str(programs / "initdb"), "--pgdata", str(folder / "data"), "--username=dagster", "--auth=scram-sha-256", "--no-sync"]
    subprocess.run([*init, f"--pwfile={folder.parent / 'password'}"], check=True, user=user, stdout=subprocess.DEVNULL)
    port = free_port()
    command = [str(programs / "postgres"), "-D", str(folder / "data"), "-p", str(port), "-c", f"unix_socket_directories={folder}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, user=user, stdout=log, stderr=log)
    try:
        wait_for(lambda: answers(port), "Postgres")
        environ = {**os.environ, "PGPASSWORD": "dagster"}
        create = [str(programs / "createdb"), "--host=127.0.0.1", f"--port={port}", "--username=dagster", "dagster"]
        subprocess.run(create, check=True, env=environ)
        yield port
    finally:
        process.send_signal(2)
        process.wait(30)


def environment(folder: Path, objects: str) -> dict[str, str]:
    """What every process of ours is told. `objects`: the address of the object store."""
    return {
        "PYTHONPATH": str(ROOT),
        "DAGSTER_HOME": str(folder / "home"),
        "DAGSTER_LOGS": str(folder / "logs"),
        "DAGSTER_POSTGRES_HOST": "127.0.0.1",
        "DAGSTER_POSTGRES_USER": "dagster",
        "DAGSTER_POSTGRES_PASSWORD": "dagster",
        "DAGSTER_POSTGRES_DB": "dagster",
        "PREP_ASSETS_CONFIG_DIR": str(folder / "configs"),
        "PREP_ASSETS_STORE_DIR": STORES,
        "PREP_ASSETS_CACHE": str(folder / "cache"),
        "AWS_ENDPOINT_URL": objects,
        "AWS_ACCESS_KEY_ID": "prep-assets",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
