"""Stores in a bucket: lost answers, races, downloads that break, the cache of a machine, leases, and secrets that stay secret."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.workloads import FORMATS
from harness.workloads import publish as publish_payload

import prep_assets
from prep_assets.errors import ConfigError, StoreError, error_text
from prep_assets.extensions.buckets import backend as bucket_versions
from prep_assets.extensions.buckets import backend as catalog
from prep_assets.extensions.buckets.bucket import Bucket, checked
from prep_assets.stores.published import Place, open_published
from prep_assets.stores.remote import Unanswered, local_root, remote_of
from prep_assets.stores.version_folders import Published
from prep_assets_tests.stores.s3 import S3, Fault

OLD, NEW = "a" * 64, "b" * 64
Publish = Callable[..., Published]


@pytest.fixture
def url(s3: S3, tmp_path: Path) -> str:
    return f"s3://bucket/{tmp_path.name}"


@pytest.fixture
def place(url: str) -> Place:
    return Place(local_root(url), "sft_tokens", "gsm8k")


def objects(place: Place) -> Bucket:
    found = remote_of(place.directory)
    assert found is not None
    return Bucket(found.url)


def once(fault: Fault, method: str, ending: str) -> Callable[[str, str, Any], Fault]:
    """This fault for the first request of this kind."""
    left = [fault]
    return lambda verb, path, headers: left.pop() if left and verb == method and path.endswith(ending) else ""


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Go to another machine."""
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(folder))


@pytest.mark.parametrize("fault", ["500", "503", "409", "lost"])
@pytest.mark.parametrize("ending", ["catalog.json", "manifest.json", "notes.txt"])
def test_an_answer_that_is_lost_or_late_publishes_once(s3: S3, place: Place, publish: Publish, fault: Fault, ending: str) -> None:
    s3.plan = once(fault, "PUT", ending)
    published = publish()
    known = catalog.read(objects(place))
    assert (known.generation, known.versions) == (2, (published.version,))
    published.verify()


def test_a_change_that_was_made_and_lost_is_not_made_again_over_that_of_somebody_else(place: Place) -> None:
    """The answer is lost, another writer publishes, and the first asks again: `current` stays where the other put it."""

    class Losing(Bucket):
        def put_new(self, key: str, data: bytes) -> bool:
            super().put_new(key, data)
            catalog.change_catalog(objects(place), lambda now: now.pointed({"current": "theirs"}))
            raise Unanswered("lost")

    catalog.change_catalog(Losing(objects(place).url), lambda now: now.pointed({"current": "ours"}))
    known = catalog.read(objects(place))
    assert (known.pointers.current, known.generation) == ("theirs", 2)


def test_every_one_of_many_writers_changes_the_catalog_once(place: Place) -> None:
    found = objects(place)

    def write(number: int) -> None:
        catalog.change_catalog(found, lambda now: now.pointed({"candidate": f"v{number}"}))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(12)))
    known = catalog.read(found)
    assert (known.generation, set(known.versions)) == (12, {f"v{number}" for number in range(12)})


def test_two_machines_that_build_the_same_share_a_version(
    place: Place, publish: Publish, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = publish(accept=False)
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    other = Place(local_root(url), place.asset, place.partition)
    again = publish(where=other, again=True)
    assert (again.version, again.manifest) == (first.version, first.manifest)
    assert again.folder != first.folder
    other.accept(first, {})


def test_a_download_that_breaks_goes_on_where_it_broke(s3: S3, place: Place, publish: Publish, monkeypatch: Any, tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes(3 << 20)
    publish(files={"x": data})
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    fetched = place_of(place).current()
    assert fetched is not None
    s3.calm()
    s3.plan = once("reset", "GET", "/x")
    assert (fetched.directory / "x").read_bytes() == data
    assert len(s3.ranges) == 1 and not s3.ranges[0].startswith("bytes=0-")


def place_of(place: Place) -> Place:
    """The same place on the machine where we are now."""
    return Place(local_root(objects(place).url.removesuffix(f"/{place.asset}/{place.partition}")), place.asset, place.partition)


def test_a_training_job_of_three_workers_downloads_a_file_once_and_goes_on_elsewhere_as_from_disk(
    s3: S3, place: Place, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = pytest.importorskip("torch.utils.data", reason="data loaders are torch's")
    from prep_assets.training import DatasetFactory, ResumableDistributedSampler

    published = publish_payload(place, OLD, FORMATS["tokens bin"])
    on_disk = Place(tmp_path / "disk", place.asset, place.partition)
    publish_payload(on_disk, OLD, FORMATS["tokens bin"])

    def job(source: str, state: dict[str, Any] | None, steps: int | None) -> tuple[list[list[int]], dict[str, Any]]:
        """The batches of a job that has a state of an earlier one, and its own state after so many steps."""
        windows = DatasetFactory.load("sft", source, 64)
        sampler = ResumableDistributedSampler(windows, rank=0, world_size=1, batch_size=1)
        if state is not None:
            sampler.load_state_dict(state)
        loader = data.DataLoader(windows, batch_size=1, sampler=sampler, num_workers=3, multiprocessing_context="fork")
        seen = []
        for batch, _ in zip(loader, range(steps or len(windows)), strict=False):
            seen.append(batch["input_ids"].flatten().tolist())
            sampler.consume()
        return seen, sampler.state_dict()

    whole, _ = job(str(on_disk.directory / "current"), None, None)
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    s3.calm()
    first, state = job(f"{url}/sft_tokens/gsm8k", None, len(whole) // 2)
    asked = Counter({path: n for (method, path), n in s3.asked.items() if method == "GET" and f"/versions/{published.version}/" in path})
    files = {path: n for path, n in asked.items() if not path.endswith("manifest.json")}
    assert len(files) == len(published.manifest.files) and set(files.values()) == {1}
    elsewhere(monkeypatch, tmp_path / "another")
    rest, _ = job(f"{url}/sft_tokens/gsm8k", state, len(whole) - len(first))
    assert first + rest == whole and len(first) > 1 < len(rest)


def test_a_process_that_was_forked_is_told_and_does_not_wait_for_ever(place: Place, publish: Publish) -> None:
    publish()
    if not (child := os.fork()):
        try:
            place.current()
        except StoreError as error:
            os._exit("was forked from one that has used buckets" in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_file_that_the_bucket_altered_is_refused(place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    published = publish(files={"x": b"right"})
    objects(place).put(f"versions/{published.version}/x", b"wrong")
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    fetched = place_of(place).current()
    assert fetched is not None
    with pytest.raises(StoreError, match=r"versions/aaaa\S*/x: 5 bytes with sha256 \w+…, the manifest says 5 with"):
        _ = fetched.directory
    assert not fetched.folder.exists()


def test_a_file_of_the_cache_that_was_altered_is_fetched_again(s3: S3, place: Place, publish: Publish) -> None:
    files = {"x": b"right", "y": b"1"}
    publish(files=files)
    current = place.current()
    assert current is not None
    (current.directory / "x").write_bytes(b"wrong")
    del current
    publish(NEW, {**files, "y": b"2"}, accept=False)
    again = place.current()
    assert again is not None
    again.verify()  # drops the folder in the mirror
    assert (again.directory / "x").read_bytes() == b"right"


def test_the_cache_is_bounded_and_what_is_read_stays(
    place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    versions = [publish(key * 64, {"x": key.encode() * 100_000}) for key in "abc"]
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    monkeypatch.setenv("PREP_ASSETS_CACHE_BYTES", "250000")  # two of them with their manifests
    here = place_of(place)
    first, second, third = (here.backend.published(each.version) for each in versions)
    assert (first.directory.is_dir(), second.directory.is_dir()) == (True, True)
    with pytest.raises(
        StoreError, match=r"holds 20\d,\d{3} bytes that are in use, 100,000 more are needed, and PREP_ASSETS_CACHE_BYTES allows 250,000"
    ):
        _ = third.directory
    folder = first.folder
    del first
    assert third.directory.is_dir()
    assert (folder.exists(), second.folder.exists()) == (False, True)
    assert not [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file() and path.stat().st_nlink > 1]


@pytest.mark.parametrize(("said", "bytes_"), [("1.5KB", 1500), ("2 gb", 2 * 10**9), ("7", 7)])
def test_bounds_have_units(monkeypatch: pytest.MonkeyPatch, said: str, bytes_: int) -> None:
    from prep_assets.extensions.buckets import backend as cache

    monkeypatch.setenv("PREP_ASSETS_CACHE_BYTES", said)
    assert cache._limit() == bytes_
    monkeypatch.setenv("PREP_ASSETS_CACHE_BYTES", "lots")
    with pytest.raises(ConfigError, match="is 'LOTS'; it is a number of bytes"):
        cache._limit()


def test_prune_leaves_a_version_that_is_being_fetched_until_the_lease_is_over(
    place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = publish(OLD, {"x": b"1"}).version
    publish(NEW, {"x": b"2"})
    with bucket_versions.leased(objects(place), version):
        assert place.remove_unused() == ()
    objects(place).put(f"leases/{version}/of-one-that-was-killed", b"")
    assert place.remove_unused() == ()
    monkeypatch.setattr(bucket_versions, "LEASE", -1)
    assert place.remove_unused() == (version,)
    assert not [entry for entry in objects(place).entries("") if version in entry.key]


def test_a_version_that_is_condemned_cannot_be_read_or_pointed_to(place: Place, publish: Publish) -> None:
    old = publish(OLD, {"x": b"1"})
    publish(NEW, {"x": b"2"})
    catalog.change_catalog(objects(place), lambda now: now.condemn(old.version, "2026-01-01", "2025-12-01"))
    with pytest.raises(StoreError, match="was pruned"), bucket_versions.leased(objects(place), old.version):
        pass
    with pytest.raises(StoreError, match="was pruned meanwhile"):
        place.accept(old, {})
    again = publish(OLD, {"x": b"1"})
    assert again.version == f"{old.version}-2"
    known = catalog.read(objects(place))
    assert known.condemned == {old.version: "2026-01-01"}
    assert known.condemn("x", "2026-02-01", "2026-01-02").condemned == {"x": "2026-02-01"}


def test_what_a_killed_build_sent_is_deleted_after_a_day(place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch) -> None:
    current = publish()
    for name in ("x", "y"):
        objects(place).put(f"versions/killed/{name}", b"12")
    assert place.remove_unused() == ()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + bucket_versions.DAY + 1)
    assert bucket_versions.orphans(objects(place)) == {"killed": 4}
    assert place.remove_unused() == ("killed",)
    assert {entry.key.split("/")[1].split(".")[0] for entry in objects(place).entries("versions/")} == {current.version}


def test_two_prefixes_of_one_bucket_are_two_worlds(url: str, publish: Publish) -> None:
    one, other = (Place(local_root(f"{url}{end}"), "sft_packed") for end in ("", "2"))
    first, second = publish(OLD, {"x": b"1"}, where=one), publish(NEW, {"x": b"2"}, where=other)
    publish("c" * 64, {"x": b"3"}, where=one)
    one.remove_unused()
    one.remove()
    assert (one.current(), one.size) == (None, 0)
    found = other.current()
    assert found is not None and found.version == second.version != first.version
    found.verify()


def test_one_who_may_only_read_reads(s3: S3, place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(files={"x": b"1"})
    elsewhere(monkeypatch, tmp_path / "elsewhere")
    s3.plan = lambda method, path, headers: "403" if method in ("PUT", "DELETE", "POST") else ""
    found = place_of(place).current()
    assert found is not None
    assert (found.directory / "x").read_bytes() == b"1"
    with pytest.raises(StoreError, match="403 Forbidden"):
        publish(NEW, where=place_of(place))


def test_secrets_are_in_no_object_no_file_and_no_error(
    s3: S3, place: Place, publish: Publish, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    secrets = ("a-very-secret-key", "AKIAEXAMPLE")
    publish()
    s3.plan = lambda method, path, headers: "500"
    with pytest.raises(StoreError) as raised:
        publish(NEW)
    s3.calm()
    written = [b"".join(objects(place).read(entry.key)) for entry in objects(place).entries("")]
    written += [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    text = b"".join(written).decode("latin-1") + str(raised.value) + "".join(capfd.readouterr()) + caplog.text
    assert not [secret for secret in secrets if secret in text]
    assert error_text(OSError("https://me:pass@host/b a-very-secret-key")) == "https://host/b …"


@pytest.mark.parametrize("address", ["s3://key:secret@bucket/x", "s3://bucket/x?sig=secret"])
def test_an_address_with_credentials_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ConfigError, match="Give credentials by the environment") as raised:
        local_root(address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("address", "said"), [("ftp://me:word@host/x", r"^ftp://…: stores are written to s3://"), ("s3://", "names no bucket and prefix")]
)
def test_addresses_that_are_no_bucket_are_refused(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        local_root(address)


@pytest.mark.parametrize(
    ("address", "variable"),
    [
        ("gs://b/x", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az://b/x", "AZURE_STORAGE_ACCOUNT_NAME"),
        ("abfss://b/x", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_buckets_of_other_clouds_name_their_own_credentials(address: str, variable: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)

    def asked() -> None:
        raise OSError("Error performing GET http://169.254.169.254/computeMetadata/v1: 403 Forbidden")

    with pytest.raises((ConfigError, Unanswered), match=variable):
        Bucket(checked(address))._request(asked if address.startswith("gs") else lambda: Bucket(address)._store, "x")


def test_one_without_credentials_is_told(s3: S3, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> None:
        raise OSError("Error performing PUT http://169.254.169.254/latest/api/token: 403 Forbidden")

    with pytest.raises(Unanswered, match=r"no credentials were found\. Set AWS_ACCESS_KEY_ID"):
        objects(place)._request(asked, "x")


def test_a_bucket_that_does_not_answer_is_not_said_to_need_a_build(s3: S3, place: Place) -> None:
    s3.plan = lambda method, path, headers: "503"
    with pytest.raises(StoreError, match="503 Service Unavailable") as raised:
        open_published(place.root, place.asset, place.partition, remedy="make it")
    assert "make it" not in str(raised.value)


def test_a_bucket_or_a_store_that_is_not_there_is_named(s3: S3, url: str) -> None:
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/x: there is no such bucket"):
        prep_assets.load("s3://no-such-bucket/x")
    with pytest.raises(StoreError, match=r"/nothing: there is no store"):
        prep_assets.load(f"{url}/nothing")
