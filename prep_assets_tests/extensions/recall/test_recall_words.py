"""What recalls say word by word, and what decides in corners: an empty folder, names of recipes that nobody has, marks, old versions that cannot be read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prep_assets.errors import ConfigError
from prep_assets.extensions.recall.command import lift, make, planned, search
from prep_assets.extensions.recall.record import recalls
from prep_assets.extensions.recall.rules import parse
from prep_assets.stores.manifest import MANIFEST, digest
from prep_assets.stores.manifest import Result as CheckResult
from prep_assets.stores.published import Place
from prep_assets.stores.version_folders import RECALLED, RECORD, LocalBackend, Pointers
from prep_assets_tests.extensions.recall.test_recall import RULE, export, found, put, recall, root, settle, tokens, wrong

__all__ = ["root"]


@pytest.mark.parametrize("name", ["asset", "partition", "template", "engine", "tokenizers", "sha256", "packing", "pad_vocab_to", "align"])
def test_what_recipes_may_say_is_no_error_where_there_are_none(tmp_path: Path, name: str) -> None:
    result = search(tmp_path, planned(tmp_path, f"{name}=00000000"))[0]
    assert (result.versions, result.found, result.never) == (0, (), {f"{name}=00000000": []})


def test_an_error_of_names_that_no_recipe_has_together_says_who_has_them(root: Path) -> None:
    rule = "version=1 and asset=pretrain_raw and engine=auto"
    for asset in ("eval_raw", "sft_raw", "rl_raw"):
        put(root, asset, "x", {}, asset)
    said = (
        "no recipe can say all of version=1 and asset=pretrain_raw and engine=auto. Stores whose recipes can: version=1: {}; asset=pretrain_raw: "
        "pretrain_raw; engine=auto: pretrain_tokens. Leave some out: what is made from it is found, too"
    )
    with pytest.raises(ConfigError) as raised:
        found(root, rule)
    assert str(raised.value) == said.format("eval_raw pretrain_export_bin pretrain_raw pretrain_tokens rl_raw sft_raw")
    put(root, "contrastive_raw", "x", {}, "7")
    with pytest.raises(ConfigError) as raised:
        found(root, rule)
    assert str(raised.value) == said.format("contrastive_raw eval_raw pretrain_export_bin pretrain_raw pretrain_tokens rl_raw …")
    with pytest.raises(ConfigError, match="asset=rl_prompts: none"):
        found(root, "asset=rl_prompts and template=none")


@pytest.mark.parametrize("rule", ["partition=a and asset=sft_packed", "partition=a and asset=rl_tokens and engine=auto"])
def test_stores_without_a_partition_have_none(root: Path, rule: str) -> None:
    with pytest.raises(ConfigError, match="no recipe can say all of partition=a"):
        found(root, rule)


@pytest.mark.parametrize(
    "rule",
    [
        "stage=pack and asset=sft_packed",
        "version=1 and asset=sft_packed",
        "partition=a and asset=sft_tokens",
        "asset=sft_tokens and calls=x",
    ],
)
def test_what_every_recipe_may_say_is_no_error_of_a_store_that_nobody_has(root: Path, rule: str) -> None:
    assert found(root, rule) == {}


def test_the_nearest_name_is_that_behind_the_last_dot(root: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"no recipe has a name 'spm_rat'; did you mean 'spm_rate'\? Names are those of recipes, or end them"
    ):
        found(root, "spm_rat=1")
    with pytest.raises(
        ConfigError, match=r"no recipe has a name 'qqq'\. Names are those of recipes, or end them behind a dot: engine is tok"
    ):
        found(root, "qqq=1")


def test_an_option_below_one_that_is_not_set_does_not_apply(root: Path) -> None:
    raw = put(root, "pretrain_raw", "c", {}, "c")
    for name, noise in (("c", {"rate": 0.5}), ("d", None)):
        put(
            root,
            "pretrain_tokens",
            name,
            {"raw": raw, "tokenizer": {"tokenizers": "0.23", "engine": "auto"}, "add": {"noise": noise}},
            name,
        )
    listed = found(root, "noise.rate>0.1")  # other recipes say nothing of noise
    assert (listed["pretrain_tokens[c]"], "pretrain_tokens[d]" in listed, listed["pretrain_tokens[a]"]) == ("recalled", False, "unclear")


@pytest.mark.parametrize(("rule", "said"), [("a=1 & b", ", from '&' on"), ("a=1 b=2", ""), ("(a=1 x", ", from 'x' on")])
def test_what_is_no_rule_is_told_from_where_on(rule: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(rule)
    assert str(raised.value) == (
        f"the rule {rule!r} cannot be read{said}: it needs NAME OP VALUE, with = != < <= > >=, joined by and, or and parentheses. For example: "
        "tokenizers<0.22 and engine=auto"
    )


def test_a_recall_that_does_not_hold_names_those_that_do(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"^recall 3 does not hold, so it cannot be lifted\. There are: none$"):
        lift(root, 3)
    make(root, RULE)
    make(root, "partition=b")
    with pytest.raises(ConfigError, match=r"^recall 3 does not hold, so it cannot be lifted\. There are: 1, 2$"):
        lift(root, 3)


def test_a_mark_is_a_failed_result_and_goes_with_the_recall(root: Path) -> None:
    recall(root, reason="BOS twice")
    place = Place(root, "pretrain_tokens", "a")
    version = place.backend.published(place.pointers.damaged)
    assert version.results is not None
    mark = version.results[RECALLED]
    assert (mark.passed, mark.summary.partition(" (")[0]) == (False, f"recall 1, {RULE}: BOS twice")
    lift(root, 1)
    settle(root)
    assert place.backend.published(place.pointers.current).results == {}


def test_what_was_damaged_before_a_recall_is_not_set_aside_again(root: Path) -> None:
    place = Place(root, "pretrain_tokens", "a")
    published = place.current()
    assert published is not None
    place.set_aside(published, {"file_hashes": CheckResult(False, "rotten")})
    make(root, RULE)
    assert [*wrong(root)] == ["pretrain_export_bin[a]"] and [*settle(root)] == ["pretrain_export_bin[a]"]


def test_an_old_version_that_cannot_be_read_is_no_obstacle(root: Path) -> None:
    place = Place(root, "pretrain_tokens", "b")
    old = place.pointers.current
    export(root, "b", tokens(root, "b", "0.23.0"))
    (place.backend.versions / old / MANIFEST).write_text("{}")
    assert {*recall(root)} == {"pretrain_tokens[a]", "pretrain_export_bin[a]"} and wrong(root) == {}
    make(root, "partition=b and tokenizers=0.23")
    assert {*settle(root)} >= {"pretrain_tokens[b]", "pretrain_export_bin[b]"}


def test_a_recalled_version_that_cannot_be_read_any_more_is_found(root: Path) -> None:
    recall(root)
    tokens(root, "a", "0.23.0")
    [entry] = [each for each in recalls(root)[0].found if each.asset == "pretrain_tokens"]
    (Place(root, "pretrain_tokens", "a").backend.versions / entry.version / MANIFEST).write_text("{}")
    assert wrong(root)["pretrain_tokens[a]"].startswith(
        f"{entry.version} is not what recall 1 found: its manifest was edited or replaced. Build"
    )


def test_what_has_no_equal_names_none(root: Path) -> None:
    assert {each.equal for each in search(root, planned(root, RULE))[0].found} == {""}
    export(root, "c", tokens(root, "c", None))
    assert {each.equal for each in search(root, planned(root, RULE))[0].found} == {""}


def test_what_an_earlier_recall_concerns_is_listed_with_its_number(root: Path) -> None:
    recall(root, reason="BOS twice")
    whys = {each.store: each.why for each in search(root, planned(root, "partition=a and version=1"))[0].found}
    assert whys["pretrain_tokens[a]"] == "version=1"
    whys = {each.store: each.why for each in search(root, planned(root, "partition=b"))[0].found}
    assert whys["pretrain_tokens[a]"] == f"recall 1, {RULE}: BOS twice, tokenizer.engine=auto, tokenizer.tokenizers=0.21.4"


def test_stores_of_a_package_that_is_gone_are_judged_by_what_their_recipes_say(root: Path) -> None:
    for name, more in (("x", {"noise": {"rate": 0.5}}), ("y", {"noise": {"rate": 0.0}}), ("z", {})):
        put(root, "glossary_terms", name, more, name)
    assert found(root, "noise.rate>0.1") == {"glossary_terms[x]": "recalled", "glossary_terms[z]": "unclear"}


def test_the_record_says_what_it_was_made_from(root: Path) -> None:
    make(root, RULE, "BOS twice")
    first = Place(root, RECORD).current()
    make(root, "partition=b")
    second = Place(root, RECORD).current()
    assert first is not None and second is not None
    for published, before in ((first, ""), (second, first.version)):
        recipe = published.manifest.recipe
        assert (recipe["stage"], recipe["before"]) == (RECORD, before)
        assert published.manifest.config_key == published.manifest.build_key == digest(recipe)
    assert [(each["number"], each["rule"], each["reason"], each["lifted"]) for each in second.manifest.recipe["recalls"]] == [
        (1, RULE, "BOS twice", ""),
        (2, "partition=b", "", ""),
    ]


@pytest.mark.parametrize("value", ["1e5", ".5", "0.22.dev1", "5"])
def test_numbers_and_versions_have_an_order(value: str) -> None:
    assert parse(f"name<{value}").parts == [("name", "<", value)]


def test_what_has_no_order_with_a_value_cannot_be_told(root: Path) -> None:
    found = {each.store: (each.state, each.why) for each in search(root, planned(root, "engine<1"))[0].found}
    assert found["pretrain_tokens[a]"] == ("unclear", "its recipe does not say what can be compared")
    assert found["pretrain_export_bin[a]"][1].endswith(", of which it cannot be told")


def test_what_another_process_published_meanwhile_stays_current(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recall(root)
    lift(root, 1)
    place, change = Place(root, "pretrain_tokens", "a"), LocalBackend.change
    moved = list[Mapping[str, str]]()

    def overtaken(backend: LocalBackend, move: Callable[[Pointers], Mapping[str, str]]) -> None:
        if backend.directory == place.directory:
            moved.extend(move(pointers) for pointers in (Pointers(current="another"), Pointers(damaged="another"), place.pointers))
        change(backend, move)

    monkeypatch.setattr(LocalBackend, "change", overtaken)
    damaged = place.pointers.damaged
    assert settle(root)["pretrain_tokens[a]"] == "current again"
    assert moved == [{}, {}, {"current": damaged, "damaged": ""}]


def test_a_lost_record_is_told_with_its_place(root: Path) -> None:
    recall(root)
    mark = Place(root, "pretrain_tokens", "a").backend.published(Place(root, "pretrain_tokens", "a").pointers.damaged).results
    assert mark is not None
    shutil.rmtree(root / RECORD)
    assert wrong(root)["pretrain_tokens[a]"] == (
        f"{mark[RECALLED].summary}, which set a version aside, is not in {root / RECORD}: the record was lost or replaced. Put it back, or recall by this "
        "rule again"
    )


@pytest.mark.cli
def test_a_list_of_rules(root: Path, tmp_path: Path) -> None:
    """The example, as a nightly job runs it."""
    script, rules = Path(__file__).parents[3] / "examples" / "recall_list.py", tmp_path / "rules.txt"
    environment = {**os.environ, "PREP_ASSETS_STORE_DIR": str(root), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def asked(text: str) -> tuple[int, list[str]]:
        rules.write_text(text, "utf-8")
        done = subprocess.run([sys.executable, script, rules], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    assert asked("# none\n\nengine=fast  # in no recipe\n") == (0, ["engine=fast: in no recipe", "  nothing was made so"])
    code, (first, one, other, second, error) = asked(f"{RULE}#BOS twice\nengin=auto # misspelt")
    assert (code, first, one.partition(" current")[0], "made from" in other) == (
        1,
        f"{RULE}: BOS twice",
        f"  pretrain_tokens[a] {one.split()[1]}",
        True,
    )
    assert (second, error.partition("; ")[0]) == ("engin=auto: misspelt", "  error: no recipe has a name 'engin'")
    assert recalls(root) == ()


def test_an_order_of_what_has_none_is_told(root: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        parse("engine>=auto")
    assert str(raised.value) == (
        "engine>=auto: 'auto' is neither a number nor a version, so nothing stands before or behind it. Compare with = or !="
    )


def test_why_has_every_value_of_a_list(root: Path) -> None:
    for name, schema in (("c", ["text", "body"]), ("d", ["body", "b" * 40])):
        put(root, "pretrain_raw", name, {"schema": schema}, name)
    whys = [each.why for each in search(root, planned(root, "schema=body"))[0].found if each.state == "recalled"]
    assert whys == ["schema=text body", f"schema=body {'b' * 35}"]  # 40 characters


def test_a_current_manifest_that_cannot_be_read_does_not_agree(root: Path) -> None:
    make(root, "partition=z or tokenizers=0.21.4")
    place = Place(root, "pretrain_tokens", "b")
    (place.backend.versions / place.pointers.current / MANIFEST).write_text("{}")
    assert "manifest.json" in wrong(root)["pretrain_tokens[b]"]


def test_what_fails_several_checks_names_them(root: Path) -> None:
    recall(root)
    place = Place(root, "pretrain_tokens", "a")
    place.record(
        place.backend.published(place.pointers.damaged), {name: CheckResult(False, "no") for name in ("file_hashes", "accounting")}
    )
    lift(root, 1)
    assert settle(root)["pretrain_tokens[a]"] in (
        "not recalled any more, but fails accounting, file_hashes",
        "not recalled any more, but fails file_hashes, accounting",
    )
