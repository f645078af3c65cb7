"""Recalls: what a rule means, what cannot be told, what is lost, changed or hidden, and what several processes and kills do."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import prep_assets
from prep_assets.checks.of_stores import INTEGRITY
from prep_assets.cli.main import app
from prep_assets.engine.status import places_in
from prep_assets.errors import ConfigError, SourceUnavailable, StoreError
from prep_assets.extensions.keep.versions import facts_of
from prep_assets.extensions.recall import record
from prep_assets.extensions.recall.command import lift, make, planned, search
from prep_assets.extensions.recall.record import FILE, change, recalls, settled
from prep_assets.extensions.recall.rules import holds, meant, parse
from prep_assets.extensions.training.opening import NoData
from prep_assets.stores.manifest import MANIFEST, Manifest, build_key
from prep_assets.stores.manifest import Result as CheckResult
from prep_assets.stores.published import Draft, Place
from prep_assets.stores.remote import local_root
from prep_assets.stores.version_folders import RECORD

RULE = "tokenizers<0.22 and engine=auto"


def put(root: Path, asset: str, partition: str, recipe: Mapping[str, Any], text: str) -> str:
    """Publish a store of one small file; its content hash."""
    place, full = Place(root, asset, partition), {"stage": asset, "version": "1", **recipe}

    def write(payload: Path, _: Path) -> Draft:
        (payload / "data").write_text(text)
        return Draft({}, {})

    published = place.propose(key := build_key(full), write, config_key=key, recipe=full)
    place.accept(published, {})
    return published.manifest.content_hash


def tokens(root: Path, name: str, version: str | None, text: str = "", engine: str = "auto") -> str:
    """A domain of pretraining and its tokens; the content hash of the tokens. Without a version the recipe does not say which."""
    raw = put(root, "pretrain_raw", name, {}, name)
    said = {} if version is None else {"tokenizers": version}
    return put(
        root,
        "pretrain_tokens",
        name,
        {"raw": raw, "tokenizer": {"sha256": "0" * 64, "engine": engine, **said}},
        text or f"{name} {version}",
    )


def export(root: Path, name: str, content: str, **more: Any) -> str:
    return put(root, "pretrain_export_bin", name, {"from": "pretrain_tokens", "source": content, **more}, f"export of {content}")


def found(root: Path, rule: str = RULE, **elsewhere: Any) -> dict[str, str]:
    """Store → recalled or unclear."""
    return {each.store: each.state for each in search(root, planned(root, rule), **elsewhere)[0].found}


def recall(root: Path, rule: str = RULE, reason: str = "") -> dict[str, str]:
    """Recall and let pointers follow; store → what was done."""
    make(root, rule, reason)
    return settle(root)


def settle(root: Path) -> dict[str, str]:
    done = list(settled(root, places_in(root), write=True))
    assert not any(wrong for _, _, wrong in done), done
    return {label: what for label, what, _ in done}


def wrong(root: Path) -> dict[str, str]:
    """Store → what does not agree with the record."""
    return {label: what for label, what, is_wrong in settled(root, places_in(root), write=False) if is_wrong}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two domains with exports, one of them tokenized by what will be recalled."""
    stores = tmp_path / "stores"
    for name, version in (("a", "0.21.4"), ("b", "0.22.0")):
        export(stores, name, tokens(stores, name, version))
    return stores


# Rules.

RECIPE = {
    "version": "16",
    "tokenizer": {"tokenizers": "0.22.0rc1", "engine": "auto", "sha256": "460ea9f0" + "0" * 56},
    "packing": {"row_len": 512, "seed": None, "shuffle": True, "off": False, "fraction": 0.05},
    "schema": ["text", {"field": "body"}, None],
    "files": [{"name": "a.jsonl", "sha256": "a" * 64}, {"name": "b.jsonl", "sha256": "b" * 64}],
    "built": "0.21.4+cu128",
}
HOLD = {
    "tokenizers<0.22": True,  # a candidate comes before the release, which the fix is in
    "tokenizers<0.22.0rc1": False,
    "tokenizers<=0.22.0rc1": True,
    "tokenizers>=0.22": False,
    "tokenizers>0.9": True,  # as versions, not as text
    "tokenizers==0.22rc1": True,
    "tokenizers!=0.22.0": True,
    "built=0.21.4": True,
    "built<=0.21.4": True,
    "built>=0.21.4+cu128": True,
    "built<0.21.4+cu128": False,
    "built=0.21.4+cu118": False,
    "version<9": False,
    "row_len>=512": True,
    "row_len<512": False,
    "packing.row_len = 512.0": True,
    "fraction<0.1": True,  # as numbers, not as versions
    "fraction<0.05": False,
    "seed=none": True,
    "seed<5": False,
    "shuffle=true": True,
    "shuffle!=true": False,
    "shuffle=none": False,
    "seed=null": True,
    "seed=false": False,
    "off=FALSE": True,
    "off!=false": False,
    "sha256=460ea9f0": True,
    "sha256=460EA9F0": True,
    "sha256=460": False,
    "tokenizer.sha256=aaaaaaaa": False,
    "files.sha256=bbbbbbbb": True,
    "schema=text": True,
    "schema=body": False,
    "schema.field='body'": True,
    'name="b.jsonl"': True,
    "name!=b.jsonl": False,
    "engine=auto and row_len<100 or version=16": True,
    "engine=auto and (row_len<100 or version=17)": False,
    "(engine=fast or engine=auto) and ((version=16))": True,
    "engine<1": None,
    "absent=1": None,
    "absent=1 or version=16": True,
    "absent=1 and version=17": False,
    "absent=1 and version=16": None,
}


@pytest.mark.parametrize("rule", HOLD)
def test_rules_compare_versions_numbers_and_lists(rule: str) -> None:
    facts = facts_of(RECIPE)
    assert (
        holds(
            parse(rule), lambda name: tuple(value for path in meant(name, facts) for value in facts[path]) if meant(name, facts) else None
        )
        is HOLD[rule]
    )


@pytest.mark.parametrize(
    "rule", ["", "a", "a=", "=1", "a=1 b=2", "(a=1", "a=1)", "not a=1", "a=1 and", "a=1 & b=2", "a~1", "1", "a=1 or 0", "__import__('os')"]
)
def test_what_is_no_rule_is_an_error(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"the rule .* cannot be read.*: it needs NAME OP VALUE"):
        parse(rule)


def test_a_name_that_no_recipe_has_is_an_error_with_the_nearest(root: Path) -> None:
    with pytest.raises(ConfigError, match="no recipe has a name 'engin'; did you mean 'engine'"):
        found(root, "engin=auto")
    never = search(root, planned(root, "engine=fast and tokenizers<1"))[0].never
    assert never == {"engine=fast": ["auto"]}


@pytest.mark.parametrize("rule", ["tokenizers<abc", "engine>=auto", "row_len<'1 2'"])
def test_what_has_no_order_is_an_error(rule: str) -> None:
    with pytest.raises(ConfigError, match="is neither a number nor a version"):
        parse(rule)


# What a rule means.


def test_what_was_made_from_it_is_recalled_and_its_sources_are_not(root: Path) -> None:
    assert found(root) == {"pretrain_tokens[a]": "recalled", "pretrain_export_bin[a]": "recalled"}
    assert found(root, "asset=pretrain_raw and partition=b") == dict.fromkeys(
        ("pretrain_raw[b]", "pretrain_tokens[b]", "pretrain_export_bin[b]"), "recalled"
    )


def test_old_versions_are_found_too(root: Path) -> None:
    export(root, "a", tokens(root, "a", "0.23.0"))
    every = search(root, planned(root, RULE))[0].found
    assert [(each.store, each.where.split()[1]) for each in every] == [("pretrain_tokens[a]", "old"), ("pretrain_export_bin[a]", "old")]
    assert recall(root) == {}  # nothing current is concerned
    with pytest.raises(StoreError, match="what this makes is recalled"):
        tokens(root, "a", "0.21.4")
    assert wrong(root) == {}


def test_a_recipe_that_does_not_say_is_listed_and_so_is_what_was_made_from_it(root: Path) -> None:
    export(root, "c", tokens(root, "c", None))
    assert found(root) == {
        "pretrain_tokens[a]": "recalled",
        "pretrain_export_bin[a]": "recalled",
        "pretrain_tokens[c]": "unclear",
        "pretrain_export_bin[c]": "unclear",
    }
    whys = {each.store: each.why for each in search(root, planned(root, RULE))[0].found}
    assert whys["pretrain_tokens[c]"] == "its recipe does not say tokenizers"
    assert "pretrain_tokens[c]" in whys["pretrain_export_bin[c]"]
    assert "pretrain_tokens[c]" not in recall(root)  # what cannot be told stays, and stays listed
    assert found(root)["pretrain_tokens[c]"] == "unclear"


def test_what_names_a_store_by_its_hash_alone_stands_on_it(root: Path) -> None:
    """As the passages of held-out sets do, whose recipe lists them."""
    said, silent = put(root, "eval_raw", "bench", {"shard_bytes": 1}, "bench"), put(root, "eval_raw", "other", {}, "other")
    for name, content in (("bench", said), ("other", silent)):
        put(root, "eval_passages", name, {"sets": [["eval", name, content]]}, name)
    assert found(root, "shard_bytes<5 and asset=eval_raw") == {
        "eval_raw[bench]": "recalled",
        "eval_passages[bench]": "recalled",
        "eval_raw[other]": "unclear",
        "eval_passages[other]": "unclear",
    }


def test_a_store_that_cannot_be_concerned_is_clear_though_it_does_not_say(root: Path) -> None:
    """Raw stores have no tokenizer; one that leaves an option out at its default says so thereby."""
    assert "pretrain_raw[a]" not in found(root)
    assert set(found(root, "append_eod=true").values()) == {"recalled"}
    assert found(root, "append_eod=false") == {}
    assert found(root, "pad_vocab_to=64") == {}


def test_a_parent_that_was_pruned_leaves_open_what_it_was(root: Path) -> None:
    content = tokens(root, "c", "0.20.0")
    export(root, "c", content)
    tokens(root, "c", "0.23.0")
    Place(root, "pretrain_tokens", "c").remove_unused()
    [open_one] = [each for each in search(root, planned(root, RULE))[0].found if each.state == "unclear"]
    assert (open_one.store, open_one.why) == ("pretrain_export_bin[c]", f"made from pretrain_tokens[c] {content[:12]}, which is gone")
    assert found(root, "asset=sft_raw and version=7") == {}  # which could not have made it either


def test_a_parent_that_was_pruned_may_have_said_what_recipes_leave_out(root: Path) -> None:
    content = tokens(root, "c", "0.23.0")
    export(root, "c", content)
    tokens(root, "c", "0.24.0")
    Place(root, "pretrain_tokens", "c").remove_unused()
    assert found(root, "pad_vocab_to=64") == {"pretrain_export_bin[c]": "unclear"}


@pytest.mark.parametrize("rule", ["asset=pretrain_raw and tokenizers<1", "partition=a and (engine=auto and asset=pretrain_raw)"])
def test_names_that_no_recipe_has_together_are_an_error(root: Path, rule: str) -> None:
    """Each holds of some recipe, so that "0 recalled" would say that nothing was made so."""
    with pytest.raises(ConfigError, match=r"no recipe can say all of .*asset=pretrain_raw: pretrain_raw"):
        found(root, rule)
    with pytest.raises(ConfigError, match="engine=auto: pretrain_tokens"):
        found(root, f"partition=b or {rule} and engine=auto")
    assert found(root, "asset=pretrain_tokens and engine=auto and partition=b and version=1")


def test_what_was_spared_for_equal_bytes_is_reached_through_all_stages_when_they_are_gone(root: Path) -> None:
    for size in (1, 2):
        raw = put(root, "pretrain_raw", "c", {"shard_bytes": size}, "same")
    made = put(root, "pretrain_tokens", "c", {"raw": raw, "tokenizer": {"tokenizers": "0.23", "engine": "auto"}}, "tokens of c")
    export(root, "c", made)
    assert [*recall(root, "shard_bytes=2")] == ["pretrain_raw[c]"]
    place = Place(root, "pretrain_raw", "c")
    [(proof, why)] = place.proofs().items()
    assert (proof in place.unused(), why) == (True, "recall 1, shard_bytes=2")
    assert place.remove_unused(place.proofs()) == ()
    assert place.remove_unused() == (proof,)  # as `forget` does, which has to
    assert {*wrong(root)} == {"pretrain_tokens[c]", "pretrain_export_bin[c]"}
    done = settle(root)
    assert {*done} == {"pretrain_tokens[c]", "pretrain_export_bin[c]"}
    assert done["pretrain_export_bin[c]"] == f"set aside: recall 1, shard_bytes=2 (made from pretrain_tokens[c] {made[:12]})"
    assert (wrong(root), settle(root), place.proofs()) == ({}, {}, {})
    assert len(recalls(root)[0].found) == 3


def test_what_was_recalled_before_it_was_pruned_still_counts(root: Path) -> None:
    content = (
        Place(root, "pretrain_tokens", "a").backend.published(Place(root, "pretrain_tokens", "a").pointers.current).manifest.content_hash
    )
    recall(root)
    tokens(root, "a", "0.23.0")
    Place(root, "pretrain_tokens", "a").remove_unused()
    with pytest.raises(StoreError, match=rf"made from pretrain_tokens\[a\] {content[:12]}"):
        export(root, "a", content, options={"other": 1})


def test_what_a_rule_means_by_what_is_left_out_or_by_its_name_says_so(root: Path) -> None:
    whys = {
        "asset=pretrain_tokens and partition=a": "asset=pretrain_tokens, partition=a",
        "asset=pretrain_tokens and pad_vocab_to!=64": "asset=pretrain_tokens",
        "pad_vocab_to!=64": "by what its recipe leaves out",
    }
    for rule, why in whys.items():
        result = search(root, planned(root, rule))[0].found
        assert [each.why for each in result if each.store == "pretrain_tokens[a]"] == [why]


def test_equal_bytes_of_another_store_say_nothing(root: Path) -> None:
    """Both domains have the same tokens; only one of them was made wrongly, so what was made from the other is sound."""
    first, second = tokens(root, "c", "0.21.0", "same"), tokens(root, "d", "0.23.0", "same")
    assert first == second
    export(root, "c", first)
    export(root, "d", second)
    assert {name for name in found(root) if "[c]" in name or "[d]" in name} == {"pretrain_tokens[c]", "pretrain_export_bin[c]"}


# Reading, publishing, lifting.


def test_nothing_reads_what_is_recalled_until_it_is_lifted(root: Path) -> None:
    place, before = Place(root, "pretrain_tokens", "a"), Place(root, "pretrain_tokens", "a").pointers
    done = recall(root, reason="BOS twice")
    assert done["pretrain_tokens[a]"].startswith(f"set aside: recall 1, {RULE}: BOS twice (tokenizer.engine=auto, ")
    assert place.pointers.damaged == before.current
    said = r"is recalled, so nothing reads it: recall 1, tokenizers<0.22 and engine=auto: BOS twice \(.*\); change what that names, or lift the recall\. Build"
    for read in (place.current, lambda: prep_assets.load(place.directory), lambda: prep_assets.load(place.directory / "current")):
        with pytest.raises(StoreError, match=said):
            read()
    with pytest.raises(ConfigError, match="already"):
        make(root, RULE)
    lift(root, 1)
    assert settle(root) == {"pretrain_tokens[a]": "current again", "pretrain_export_bin[a]": "current again"}
    assert place.pointers == before
    assert place.current() is not None
    assert [(each.number, bool(each.lifted)) for each in recalls(root)] == [(1, True)]
    with pytest.raises(ConfigError, match="recall 1 does not hold"):
        lift(root, 1)


def version(place: Place, pointer: str = "current") -> Path:
    name: str = getattr(place.pointers, pointer)
    return place.backend.versions / name


def test_nothing_reads_a_recalled_version_by_its_path_whatever_points_to_it(root: Path) -> None:
    """Old, replaced by a good build, a draft; and current, where the record is written and no pointer has moved yet."""
    place = Place(root, "pretrain_tokens", "a")
    replaced = version(place)
    tokens(root, "a", "0.23.0")
    recipe = {"stage": "pretrain_tokens", "tokenizer": {"tokenizers": "0.21.9", "engine": "auto"}}
    place.propose(build_key(recipe), write_one, config_key="", recipe=recipe, draft=True)
    export(root, "c", tokens(root, "c", "0.20.0"))
    make(root, RULE)
    other = Place(root, "pretrain_tokens", "c")
    paths = (replaced, version(place, "draft"), place.directory / "draft", other.directory, other.directory / "current", version(other))
    for path in paths:
        with pytest.raises(StoreError, match=r"is recalled, so nothing reads it: recall 1, tokenizers<0\.22"):
            prep_assets.load(path)
    with pytest.raises(NoData):  # which asks for data of a trainer, and there is none
        prep_assets.load(place.directory)
    lift(root, 1)
    with pytest.raises(NoData):
        prep_assets.load(replaced)


def test_what_two_recalls_concern_stays_until_both_are_lifted(root: Path) -> None:
    recall(root)
    recall(root, "partition=a")
    lift(root, 1)
    assert "recall 2" in settle(root)["pretrain_tokens[a]"]
    lift(root, 2)
    assert settle(root)["pretrain_tokens[a]"] == "current again"


def test_what_is_damaged_as_well_is_not_put_back(root: Path) -> None:
    recall(root)
    place = Place(root, "pretrain_tokens", "a")
    version = place.backend.published(place.pointers.damaged)
    place.record(version, {INTEGRITY.name: CheckResult(False, "scrub: rotten")})
    lift(root, 1)
    assert settle(root)["pretrain_tokens[a]"] == "not recalled any more, but fails file_hashes"
    with pytest.raises(StoreError, match="is damaged, so nothing reads it: scrub: rotten"):
        place.current()


def test_what_was_proposed_before_is_not_accepted_after(root: Path) -> None:
    place = Place(root, "pretrain_tokens", "c")
    recipe = {"stage": "pretrain_tokens", "tokenizer": {"tokenizers": "0.21.9", "engine": "auto"}}
    candidate = place.propose(build_key(recipe), write_one, config_key="", recipe=recipe)
    make(root, RULE)
    with pytest.raises(StoreError, match="what this makes is recalled, so it is neither built nor published: recall 1, "):
        place.accept(candidate, {})
    with pytest.raises(StoreError, match="is recalled"):
        place.candidate()
    assert not place.pointers.current


def write_one(payload: Path, _: Path) -> Draft:
    (payload / "data").write_text("one")
    return Draft({}, {})


# Three corruptions.


def test_a_lost_record_is_found_by_the_marks_of_what_was_set_aside(root: Path) -> None:
    recall(root)
    (root / RECORD / "current").unlink()
    assert {label: what.partition(",")[0] for label, what in wrong(root).items()} == {
        "pretrain_tokens[a]": "recall 1",
        "pretrain_export_bin[a]": "recall 1",
    }
    with pytest.raises(StoreError, match=r"is not in .*\.recalls: the record was lost or replaced"):
        tokens(root, "a", "0.21.4")  # which nothing else would stop
    recall_again = make(root, RULE)  # as the message says
    assert (recall_again.number, wrong(root)) == (1, {})


def test_a_lost_record_is_found_after_a_good_build_too(root: Path) -> None:
    """By the marks of the versions that are not current any more, and of those that never were."""
    tokens(root, "b", "0.21.7")
    tokens(root, "b", "0.23.7")
    recall(root, "partition=z or partition=a and version=1")
    recall(root, reason="BOS twice")
    export(root, "b", tokens(root, "b", "0.23.0"))
    lift(root, 1)
    settle(root)
    tokens(root, "a", "0.23.0")
    assert wrong(root) == {}
    shutil.rmtree(root / RECORD)
    assert {label: what.partition(" (")[0] for label, what in wrong(root).items()} == dict.fromkeys(
        ("pretrain_tokens[a]", "pretrain_tokens[b]", "pretrain_export_bin[a]"), f"recall 2, {RULE}: BOS twice"
    )
    for name in ("a", "b"):
        with pytest.raises(StoreError, match=r"is not in .*\.recalls: the record was lost or replaced"):
            tokens(root, name, "0.21.4")
    assert recall(root, reason="as the message says") != {}
    assert (wrong(root), [each.number for each in recalls(root)]) == ({}, [1])
    with pytest.raises(StoreError, match="what this makes is recalled"):
        tokens(root, "b", "0.21.7")


def test_a_record_of_before_is_found_too(root: Path) -> None:
    recall(root, "partition=b")
    old = (root / RECORD / "current").readlink()
    recall(root)
    (root / RECORD / "current").unlink()
    (root / RECORD / "current").symlink_to(old)
    assert {*wrong(root)} == {"pretrain_tokens[a]", "pretrain_export_bin[a]"}


def test_an_edited_record_stops_everything_below_it(root: Path) -> None:
    recall(root)
    file = (root / RECORD / "current" / FILE).resolve()
    file.write_text(file.read_text().replace("0.22", "0.12"))
    record._READ.clear()  # as a process that has not read it yet
    with pytest.raises(StoreError, match="the record of recalls cannot be read"):
        Place(root, "pretrain_tokens", "b").current()


def forged(place: Place, **recipe: Any) -> None:
    """Edit the recipe of a current store, and seal it again."""
    folder = place.backend.versions / (place.pointers.current or place.pointers.damaged)
    manifest = Manifest.read(folder)
    fields = {name: getattr(manifest, name) for name in manifest.__slots__}
    edited = {name: value for name, value in {**manifest.recipe, **recipe}.items() if value is not None}
    (folder / MANIFEST).unlink()
    Manifest(**{**fields, "recipe": edited}).write(folder)


def test_a_recalled_store_whose_manifest_was_changed_is_found(root: Path) -> None:
    recall(root)
    forged(Place(root, "pretrain_tokens", "a"), tokenizer={"tokenizers": "0.23.0", "engine": "auto"})
    assert "is not what recall 1 found: its manifest was edited or replaced" in wrong(root)["pretrain_tokens[a]"]
    assert found(root)["pretrain_tokens[a]"] == "unclear"  # and not sound


def test_a_store_that_hides_what_it_was_made_from_is_not_taken_for_sound(root: Path) -> None:
    export_place = Place(root, "pretrain_export_bin", "a")
    forged(export_place, source="f" * 64)
    [hidden] = [each for each in search(root, planned(root, RULE))[0].found if each.store == "pretrain_export_bin[a]"]
    assert (hidden.state, hidden.why.partition(":")[0]) == ("unclear", "its recipe is not the one of its build key")
    # with a key and a version of its own, it still has to say what it was made from
    put(root, "pretrain_export_bin", "c", {"from": "pretrain_tokens"}, "whatever")
    put(root, "pretrain_tokens", "d", {"tokenizer": {"tokenizers": "0.23", "engine": "auto"}}, "no raw")
    whys = {each.store: each.why for each in search(root, planned(root, f"{RULE} or asset=pretrain_raw and version=9"))[0].found}
    assert whys["pretrain_export_bin[c]"] == "made from pretrain_tokens[c] of which it names no version"
    assert whys["pretrain_tokens[d]"] == "made from pretrain_raw[d] of which it names no version"


def test_a_manifest_that_cannot_be_read_is_listed(root: Path) -> None:
    place = Place(root, "pretrain_tokens", "b")
    (place.backend.versions / place.pointers.current / MANIFEST).write_text("{}")
    assert found(root)["pretrain_tokens[b]"] == "unclear"


# Kills, other processes, buckets.


def test_a_recall_that_is_killed_before_its_record_is_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    before = {place.label: place.pointers for place in places_in(root)}
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr("prep_assets.stores.version_folders.LocalBackend.change", die)
        make(root, RULE)
    assert recalls(root) == ()
    assert {place.label: place.pointers for place in places_in(root)} == before
    assert Place(root, "pretrain_tokens", "a").current() is not None
    assert make(root, RULE).number == 1


def test_a_kill_between_two_pointers_leaves_nothing_half_recalled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(root, RULE)
    done = settled(root, places_in(root), write=True)
    next(done)  # and no further
    for name in ("pretrain_tokens", "pretrain_export_bin"):
        with pytest.raises(StoreError, match="is recalled"):
            Place(root, name, "a").current()
    assert len(wrong(root)) == 1
    assert len(settle(root)) == 1
    assert wrong(root) == {}


def test_recalls_of_two_processes_are_both_made(root: Path) -> None:
    rules, errors = [RULE, "partition=b", "asset=pretrain_export_bin"], list[BaseException]()

    def one(rule: str) -> None:
        try:
            make(root, rule)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rule,)) for rule in rules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {each.rule for each in recalls(root)} == {*rules}
    assert [each.number for each in recalls(root)] == [1, 2, 3]


def test_a_change_that_another_one_overtakes_is_made_again(root: Path) -> None:
    seen = list[int]()

    def edit(before: tuple[Any, ...]) -> tuple[Any, ...]:
        seen.append(len(before))
        if len(seen) == 1:
            make(root, "partition=b")
        return (*before, planned(root, RULE))

    assert [each.rule for each in change(root, edit)] == ["partition=b", RULE]
    assert seen == [0, 1]


def test_stores_in_a_bucket_are_recalled_as_those_of_a_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREP_ASSETS_CACHE", str(tmp_path / "cache"))
    remote = local_root(f"memory://bucket/{sha256(str(tmp_path).encode()).hexdigest()}")
    for name, version in (("a", "0.21.4"), ("b", "0.22.0")):
        export(remote, name, tokens(remote, name, version))
    assert found(remote) == found(root)
    assert recall(remote) == recall(root)
    place = Place(remote, "pretrain_tokens", "a")
    with pytest.raises(StoreError, match="is recalled, so nothing reads it"):
        place.current()
    with pytest.raises(StoreError, match="what this makes is recalled"):
        tokens(remote, "c", "0.21.0")
    lift(remote, 1)
    lift(root, 1)
    assert settle(remote) == settle(root)
    assert place.current() is not None


# Elsewhere.


def test_releases_and_records_of_runs_are_found_by_manifest_and_by_hash(root: Path, tmp_path: Path) -> None:
    def content(name: str) -> str:
        published = Place(root, "pretrain_tokens", name).current()
        assert published is not None
        return published.manifest.content_hash

    runs = tmp_path / "mlruns" / "0" / "inputs"
    runs.mkdir(parents=True)
    (runs / "meta.yaml").write_text(f"digest: {content('a')[:32]}\nname: pretrain_tokens[a]\n")  # as MLflow's file store has it
    (runs / "sound.yaml").write_text(f"digest: {content('b')[:32]}\nother: {content('a')[:12]}0 0{content('a')[:12]} {content('a')[:11]}\n")
    (runs / "notes.md").write_text(f"trained on {version(Place(root, 'pretrain_tokens', 'a')).name}, not on {content('b')[:12]}")
    (runs / "message.txt").write_text(f"made from pretrain_tokens[a] {content('a')[:12]}")
    long = b"x" * ((1 << 20) - 20) + content("a").encode() + b"x" * 99  # across two blocks
    (tmp_path / "mlruns" / "run.wandb").write_bytes(long)
    for name in ("a", "b"):
        manifest = (
            Place(root, "pretrain_export_bin", name).backend.published(Place(root, "pretrain_export_bin", name).pointers.current).manifest
        )
        (tmp_path / "releases" / name).mkdir(parents=True)
        manifest.write(tmp_path / "releases" / name)
    (tmp_path / "releases" / "other").mkdir()
    (tmp_path / "releases" / "other" / MANIFEST).write_text('{"of": "another program"}')
    Place(root, "pretrain_export_bin", "a").remove()  # what was released, and is here no more
    result = search(root, planned(root, RULE), among=[tmp_path / "mlruns", tmp_path / "releases"])[0].found
    assert {(Path(each.where).name, each.store, each.state) for each in result if "/" in each.where} == {
        ("meta.yaml", "pretrain_tokens[a]", "recalled"),
        ("run.wandb", "pretrain_tokens[a]", "recalled"),
        ("notes.md", "pretrain_tokens[a]", "recalled"),
        ("message.txt", "pretrain_tokens[a]", "recalled"),
        (MANIFEST, "pretrain_export_bin[a]", "recalled"),
    }
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        found(root, among=[tmp_path / "nowhere"])


def test_a_file_that_cannot_be_read_is_an_error(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name what is recalled; to pass over it would say that it does not."""
    (tmp_path / "run.log").write_text("x")

    opened = Path.open

    def refuse(self: Path, *how: Any, **more: Any) -> Any:
        if self.name == "run.log":
            raise PermissionError(13, "Permission denied")
        return opened(self, *how, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError, match=r"run\.log cannot be read \(Permission denied\), so it may name any of them"):
        found(root, among=[tmp_path / "run.log"])


class Hub:
    """As much of `HfApi` as looking at commits takes."""

    def __init__(self, folder: Path, manifests: Mapping[str, Manifest | None]) -> None:
        self.folder, self.manifests = folder, manifests

    def list_repo_commits(self, repository: str, *, repo_type: str) -> list[Any]:
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

        if repository != "us/data":
            raise HTTPError("401 for hf_secrettoken") if repository == "us/away" else OSError("401 for hf_secrettoken")
        return [SimpleNamespace(commit_id=commit) for commit in self.manifests]

    def hf_hub_download(self, repository: str, name: str, *, repo_type: str, revision: str) -> str:
        from huggingface_hub.errors import LocalEntryNotFoundError

        if (manifest := self.manifests[revision]) is None:
            raise LocalEntryNotFoundError("no manifest yet")
        (self.folder / revision).mkdir(parents=True)
        manifest.write(self.folder / revision)
        return str(self.folder / revision / name)


def test_commits_on_the_hub_are_judged_by_their_manifests(root: Path, tmp_path: Path) -> None:
    versions = [Place(root, "pretrain_export_bin", name) for name in ("a", "b")]
    first, second = (place.backend.published(place.pointers.current).manifest for place in versions)
    hub = Hub(tmp_path, {"0000": None, "1111": first, "2222": second})
    pushed = [each.where for each in search(root, planned(root, RULE), hub=["us/data"], api=hub)[0].found if "@" in each.where]
    assert pushed == ["us/data@1111"]
    for name in ("us/other", "us/away"):
        with pytest.raises(SourceUnavailable, match=rf"{name}: .*401 for hf_…\. Look at the name"):
            found(root, hub=[name], api=hub)


# The command.


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["recall", *words], env={"PREP_ASSETS_STORE_DIR": str(root), "COLUMNS": "200"})


def test_the_command_lists_recalls_compares_and_lifts(root: Path) -> None:
    assert (run(root).exit_code, run(root).stdout) == (0, "nothing was recalled\n")
    listed = run(root, RULE)
    assert listed.exit_code == 1
    assert listed.stdout.endswith("2 recalled, 0 cannot be told, of 6 versions. Nothing is changed: --yes recalls them\n")
    assert recalls(root) == ()
    none = run(root, "engine=fast")
    assert (none.exit_code, none.stdout.splitlines()[0]) == (0, "engine=fast holds of no recipe; they say: auto")
    made = run(root, RULE, "--yes", "--reason", "BOS twice", "--json")
    facts = json.loads(made.stdout)
    assert made.exit_code == 0
    assert [each["store"] for each in facts["found"]] == ["pretrain_tokens[a]", "pretrain_export_bin[a]"]
    assert [(each["number"], each["reason"], len(each["found"])) for each in facts["recalls"]] == [(1, "BOS twice", 2)]
    assert run(root).exit_code == 0
    (root / RECORD / "current").rename(root / RECORD / "away")
    lost = run(root)
    assert (lost.exit_code, lost.stdout.count("✗ pretrain_"), "✗ pretrain_tokens[a]: recall 1, " in lost.stdout) == (1, 2, True)
    assert run(root, "--settle").exit_code == 1
    (root / RECORD / "away").rename(root / RECORD / "current")
    lifted = run(root, "--lift", "1")
    assert lifted.exit_code == 0
    assert "\npretrain_tokens[a]: current again" in lifted.stdout


def test_the_command_leaves_open_what_cannot_be_told_with_exit_code_1(root: Path) -> None:
    tokens(root, "c", None)
    made = run(root, RULE, "--yes")
    assert made.exit_code == 1
    assert "2 recalled, 1 cannot be told, of 8 versions" in made.stdout


@pytest.mark.parametrize(
    "words", [["--yes"], ["--lift", "1", "--settle"], [RULE, "--lift", "1"], ["--reason", "x"], ["engine=fast", "--yes"], ["--lift", "9"]]
)
def test_the_command_refuses_what_means_nothing(root: Path, words: list[str]) -> None:
    refused = run(root, *words)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: ")
    assert recalls(root) == ()


# Against a slow and obvious computation.

GRAPHS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["0.20", "0.21.0", "0.21.9", "0.22rc1", "0.22", "0.23"]), st.integers(0, 2)),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=15)
@given(GRAPHS)
def test_recalled_is_what_taint_reaches(graph: list[tuple[int, str, int]]) -> None:
    """Domains are tokenized again and again by versions, some with equal bytes; an export of each. A version is tainted if it says so; bytes are, unless a
    version without taint has them; an export is if its bytes are."""
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        root = Path(folder)
        made = [(f"d{name}", version, tokens(root, f"d{name}", version, f"text {text}")) for name, version, text in graph]
        for name, _, content in made:
            export(root, name, content)
        bad = {(name, version) for name, version, _ in made if version in ("0.20", "0.21.0", "0.21.9", "0.22rc1")}
        good_bytes = {(name, content) for name, version, content in made if (name, version) not in bad}
        bad_bytes = {(name, content) for name, _, content in made} - good_bytes
        result = search(root, planned(root, RULE))[0].found
        assert {each.state for each in result} <= {"recalled"}
        assert len([each for each in result if each.store.startswith("pretrain_tokens")]) == len(
            {(*each, content) for *each, content in made if tuple(each) in bad}
        )
        exports = {(each.store[20:22], each.content) for each in result if each.store.startswith("pretrain_export")}
        assert len(exports) == len(bad_bytes)
        if not bad:
            return
        recall(root)
        for place in places_in(root):
            pointers = place.pointers
            version = place.backend.published(pointers.current or pointers.damaged)
            key = (place.partition, version.manifest.recipe.get("source", ""))
            says = version.manifest.recipe.get("tokenizer", {}).get("tokenizers")
            tainted = (place.partition, says) in bad or key in bad_bytes
            assert (pointers.damaged != "") == tainted, place.label
