# Everything works from a fresh clone with Python 3.11 or newer, git and make.
PROFILE ?= embedded
ON ?= local
PORT ?= 8000
HOST ?= 127.0.0.1
SOLUTIONS ?= yes
SEED ?= 0
PY := .venv/bin/python
unexport PYTHONDONTWRITEBYTECODE  # each process would compile what it imports anew

.DEFAULT_GOAL := help
.PHONY: help book pdf report publish release archive stick study check test doctor vllm bench serve lab class notebook gallery named lock sums clean
.DELETE_ON_ERROR:

help:  ## show this list
	@echo 'RetMask, reproduced. The first call installs into .venv (some minutes).'
	@echo
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | column -t -s '|'

book: export RMUTILS_SOLUTIONS := $(filter no,$(SOLUTIONS))
book: .venv/.complete  ## build the book: book/_build/html/index.html (SOLUTIONS=no)
	@$(PY) -m rmutils.book.site.build --profile '$(PROFILE)'

pdf: book  ## print the book: book/_build/pdf/retmask-reproduced.pdf (needs chromium)
	@$(PY) -m rmutils.book.site.pdf

report: .venv/.complete  ## the results as a short paper: book/_build/report/report.pdf (needs chromium)
	@$(PY) -m rmutils.book.site.short_report

publish: book  ## put the built book beside its other versions (SITE=folder)
	@$(PY) -m rmutils.book.site.pages.versions $(SITE)

release: publish  # its earlier name; a release that `rmutils artifacts fetch` reads is what `make archive` packs

archive: book  ## one file for good: sources, book, PDF, hashes, RO-Crate, Croissant
stick: book  ## a folder for machines without a network: packages, model, book, PDF; MODELS="..." adds more
archive stick:
	@$(PY) -m rmutils.book.site.pdf || echo 'So there is no PDF in it.'
	@$(PY) -m rmutils.book.tools.$@ $(if $(filter stick,$@),$(MODELS))

check: .venv/.complete  ## lint, types, spelling and the order of imports
	@$(PY) -m ruff check rmutils tests benchmarks .ci
	@$(PY) -m mypy
	@.venv/bin/lint-imports --cache-dir .venv/.import-linter
	@.venv/bin/codespell rmutils tests benchmarks book/*.md notebooks *.md

test: .venv/.complete  ## run the tests
	@$(PY) .ci/vllm.py || echo 'The tests that need it are left out.'
	@$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

vllm: .venv/.complete  ## install vLLM for the CPU into .venv-vllm
	@$(PY) .ci/vllm.py

bench: .venv/.complete  ## install what `python -m benchmarks` compares with into .venv-bench
	@$(PY) .ci/bench.py

study: .venv/.complete  ## run the whole study and build the book (PROFILE=smoke ON=slurm)
	@$(PY) -m rmutils study --profile '$(PROFILE)' --on '$(ON)'

serve: book  ## build the book and show it on http://127.0.0.1:8000 (PORT=...)
	@echo 'The book is on http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)'
	@$(PY) -m http.server --bind $(HOST) --directory book/_build/html $(PORT) 2>/dev/null \
	    || { echo 'Port $(PORT) is taken; try make serve PORT=8001'; exit 1; }

lab: .venv/.lab class/release  ## open notebooks and worksheets in JupyterLab
	@JUPYTER_PREFER_ENV_PATH=1 $(PY) -m jupyterlab --config .ci/jupyter_config.py $(ARGS)

class: .venv/.complete  ## make worksheets: class/release, class/source (STUDENTS=file SEED=0)
	@$(PY) -m rmutils.book.site.classroom $(if $(STUDENTS),--students '$(STUDENTS)') --seed $(SEED)

class/release:  # those that somebody works on are kept
	@$(MAKE) class

notebook: named .venv/.complete  ## run one notebook: make notebook NB=01_preliminaries P="tau=0.05 seed=1"
	@$(PY) -m rmutils run '$(NB)' $(foreach p,$(P),-p $(subst =, ,$(p))) $(if $(NAME),--name '$(NAME)')

RUNS := data/runs
gallery: .venv/.complete  ## run again what the run gallery ships with
	@$(PY) -m rmutils run audit -p source ja --output $(RUNS)/audit/japanese-paper.ipynb
	@$(PY) -m rmutils run your_own_model -p copied tiny-qwen3 \
	    --output $(RUNS)/your_own_model/another-family.ipynb
	@$(PY) -m rmutils run 16_scale -p accelerator h200 -p larger llama-3.1-405b \
	    --output $(RUNS)/16_scale/larger-model.ipynb
	@rm -rf $(RUNS)/*/*.html $(RUNS)/*/.partial

named:
	@test -n '$(NB)' || { echo 'Say which: make notebook NB=01_preliminaries P="tau=0.05"'; exit 2; }

doctor:  ## say what is wrong on this machine, and the command that fixes it
	@"$${PYTHON:-python3}" -m rmutils.book.tools.doctor

lock: .venv/.complete  ## pin the newest versions that pyproject.toml allows
	@$(PY) .ci/lock.py && $(PY) .ci/vllm.py lock && $(PY) .ci/bench.py lock

sums:  ## take note of changed files in data/ (SHA256SUMS)
	@cd data && find abilities corpus models paper -type f | LC_ALL=C sort | xargs sha256sum >.sums
	@mv data/.sums data/SHA256SUMS

clean:  ## remove what was built; models and results in the cache stay
	rm -rf book/_build book/chapters book/runs .snakemake .pytest_cache .ruff_cache
	rm -rf .venv .venv-vllm .venv-bench .venv-grading .venv-otter *.egg-info build

.venv/.lab: requirements-lab.lock .venv/.complete
	@echo 'Installing JupyterLab into .venv (.venv/pip.log) ...'
	@$(PY) -m pip install --no-deps --require-hashes -r $< >>.venv/pip.log 2>&1 \
	    || { tail -n 5 .venv/pip.log; exit 1; }
	@touch $@

.venv/.complete: requirements.lock pyproject.toml
	@python=$$(sh .ci/python) && "$$python" .ci/install.py
