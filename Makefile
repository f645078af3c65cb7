# make demo   sample data → packed SFT table, with a summary on screen        make test   tests
# make setup  only the environment        make ui   the web UI        make lint   ruff and mypy        make test-readers   trainers' own readers        make test-ui   pages in a browser
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
# code is compiled when it is first imported: pip would compile 19,000 files, in a minute
INSTALL := $(PIP) install --quiet --no-compile --constraint constraints.txt

.PHONY: bench sim killpoints faults fulldisk memory powercut crashstates fuzz demo docs test soak test-extras test-readers test-ui test-cluster mutants planted grid setup lint ui clean release-check pages-of-version
demo: setup
	@$(BIN)/prep-assets demo

setup: $(VENV)/.installed
NEEDED := pyproject.toml constraints.txt tools/venv/sitecustomize.py tools/venv/dagster.yaml
$(VENV)/.installed: EXTRAS := cli,dagster,fast
$(VENV)/.installed-test: EXTRAS := test
$(VENV)/.installed $(VENV)/.installed-test: $(NEEDED)
	@echo "Installing [$(EXTRAS)] into $(VENV), about a minute …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[$(EXTRAS)]'
	@cp tools/venv/sitecustomize.py "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@mkdir -p .dagster && cp tools/venv/dagster.yaml .dagster/
	@touch $(VENV)/.installed $@

$(VENV)/.installed-lint: $(VENV)/.installed
	@$(INSTALL) --editable '.[lint]'
	@touch $@

# code is compiled once, not by each process that a test starts
test: $(VENV)/.installed-test
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2

# all tests, random ones with all of their examples, a sixth of which `make test` tries, those of grids with every cell, engines on all code points, and tests
# that take long
# SOAK_SEED repeats a run; seeds and commits of all runs are in build/soak-seeds.txt
soak: SOAK_SEED := $(or $(SOAK_SEED),$(shell date +%s))
soak: $(VENV)/.installed-test
	@mkdir -p build && echo "seed $(SOAK_SEED) of $$(git rev-parse --short HEAD 2>/dev/null)" | tee -a build/soak-seeds.txt
	@PREP_ASSETS_SOAK=1 $(BIN)/python -m pytest -n 2 --hypothesis-seed=$(SOAK_SEED)

# what trainers' packages depend on is left out for those of readers.txt, so that torch stays the one of constraints.txt
$(VENV)/.installed-readers: $(VENV)/.installed-test prep_assets_tests/readers.txt
	@echo "Installing trainers' own readers (TRL, Megatron-core, OLMo-core and others) …"
	@$(INSTALL) --editable '.[test,readers]'
	@$(INSTALL) --no-deps --requirement prep_assets_tests/readers.txt
	@touch $@

test-readers: $(VENV)/.installed-readers
	@PREP_ASSETS_READERS=1 $(BIN)/python -m pytest -n 2 -m readers

# a wheel in an empty environment, with each extra alone: about a minute of a processor for each of them
test-extras: $(VENV)/.installed-test
	@PREP_ASSETS_EXTRAS=1 $(BIN)/python -m pytest -n0 prep_assets_tests/test_extras.py

# a headless Chromium (Debian: apt-get install chromium), or the one that PREP_ASSETS_CHROMIUM names
$(VENV)/.installed-ui: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[test,ui]'
	@touch $@

test-ui: $(VENV)/.installed-ui
	@PREP_ASSETS_UI=1 $(BIN)/python -m pytest -n0 prep_assets_tests/ui

# a Ray cluster of several nodes on this machine, in an environment of its own: what is built there has the bytes of a build without it
CLUSTER := .venv-cluster
$(CLUSTER)/.installed: pyproject.toml constraints.txt
	@test -x $(CLUSTER)/bin/python || $(PYTHON) -m venv $(CLUSTER)
	@$(CLUSTER)/bin/pip --disable-pip-version-check install --quiet --constraint constraints.txt --editable '.[test,ray,team]'
	@touch $@

test-cluster: $(CLUSTER)/.installed
	@PREP_ASSETS_CLUSTER=1 $(CLUSTER)/bin/python -m pytest -n0 prep_assets_tests/cluster
	@$(CLUSTER)/bin/python -m pytest -n0 prep_assets_tests/stores/test_backends.py -k 'az or gs'

# the pages as a site in build/site, in an environment of its own, with those that tools/site/pages.py makes of the code
.venv-docs/.installed: pyproject.toml
	@$(PYTHON) -m venv .venv-docs && .venv-docs/bin/pip --disable-pip-version-check install --quiet 'mkdocs-material>=9.5,<10'
	@touch $@

docs: .venv-docs/.installed $(VENV)/.installed
	@rm -rf build/pages && $(BIN)/python tools/site/pages.py build/pages $(TEMPLATES)
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	@echo "build/site/index.html"

# the pages of this version beside those of earlier ones, on the branch gh-pages: PUSH=--push uploads it
pages-of-version: .venv-docs/.installed $(VENV)/.installed
	@.venv-docs/bin/pip --disable-pip-version-check install --quiet 'mike>=2.1,<3'
	@rm -rf build/pages && $(BIN)/python tools/site/pages.py build/pages $(TEMPLATES)
	@PATH="$(CURDIR)/.venv-docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy $(PUSH) --update-aliases "$$($(BIN)/python -c 'import prep_assets; print(prep_assets.__version__)')" latest

# what a release uploads, built and tried in an empty environment; TAG=v1.0.0 also demands that all versions agree
release-check:
	@$(PYTHON) tools/release.py $(if $(TAG),--tag $(TAG))

lint: $(VENV)/.installed-lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# changes of the proofs themselves: MODULE="proofs checks/selection", SEED, COUNT (400) of them, SECONDS (20) of a processor for each that lives
$(VENV)/.installed-mutants: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[test,mutants]'
	@touch $@

mutants: $(VENV)/.installed-mutants
	@PYTHONPATH=tools MODULE='$(MODULE)' TESTS='$(TESTS)' SEED='$(SEED)' COUNT='$(COUNT)' SECONDS='$(if $(filter file,$(origin SECONDS)),,$(SECONDS))' $(BIN)/python -m mutants

# bugs planted in the code that builds: MODULE="text schemas/turns", SEED, COUNT (200) of them, JOBS at a time; what was tried before is not tried again
planted: $(VENV)/.installed-test
	@PYTHONPATH=tools MODULE='$(MODULE)' SEED='$(SEED)' COUNT='$(COUNT)' JOBS='$(JOBS)' $(BIN)/python -m planted

# every chat data set × tokenizer × template of PREP_ASSETS_TEST_DATA: ROWS rows each with shipped templates, FEWER with TRL's
ROWS ?= 200
FEWER ?= 24
grid: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m grid --rows $(ROWS) --fewer $(FEWER)

# harnesses that try to break stores, for SECONDS each; see docs/reliability.md
SECONDS ?= 600
SEED ?= 0
killpoints faults: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.strikes $@ --seconds $(SECONDS) --seed $(SEED)
	@PYTHONPATH=tools $(BIN)/python -m harness.strikes $@ --seconds $(SECONDS) --seed $(SEED) --families --points 1000

$(VENV)/.installed-fuzz: $(VENV)/.installed-test
	@$(INSTALL) --editable '.[test,fuzz]'
	@touch $@

fuzz: $(VENV)/.installed-fuzz
	@PYTHONHASHSEED=0 PYTHONPATH=tools $(BIN)/python -m harness.guided --seconds $(SECONDS) --seed $(SEED)

memory: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.large_record
	@PYTHONPATH=tools $(BIN)/python -m harness.tokenizers
	@PYTHONPATH=tools $(BIN)/python -m harness.memory

fulldisk: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.fulldisk --sizes 125

powercut: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.powercut --cuts 300 --seconds $(SECONDS) --seed $(SEED)

crashstates: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.crashstates --states 10000 --syncs --seed $(SEED)

sim: $(VENV)/.installed-test
	@PYTHONPATH=tools $(BIN)/python -m harness.sim --schedules 1000000 --seconds $(SECONDS) --seed $(SEED)

# our builds and those of others on the same text, in turns: ONLY=documents, SIZES="1 4", TOKENIZERS="DIR DIR", TEXT=FILE.jsonl, CHATS=FILE.jsonl, PEERS=PYTHON with datatrove and TRL, MEGATRON=CHECKOUT
SIZES ?= 1 4 16
bench: setup
	@$(BIN)/python benchmarks/run.py --sizes $(SIZES) $(if $(ONLY),--only '$(ONLY)') $(if $(TOKENIZERS),--tokenizers $(TOKENIZERS)) $(if $(TEXT),--text $(TEXT)) $(if $(CHATS),--chats $(CHATS)) $(if $(PEERS),--peers $(PEERS)) $(if $(MEGATRON),--megatron $(MEGATRON))

# Dagster's pages, and beside them those of `prep-assets view`, which its asset pages link
ui: setup
	@$(BIN)/prep-assets view & trap "kill $$! 2>/dev/null" EXIT INT TERM; $(BIN)/dagster dev

clean:
	rm -rf $(VENV) $(CLUSTER) data .dagster .tmp_dagster_home_*
