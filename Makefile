# Two commands: `make book` to read it, `make test` to check it.

.DEFAULT_GOAL := help
.PHONY: help setup book hub offline engine quick test gpu-check notebooks clean

# Node of the set-up, where the machine has none, and the tools of the book are in .venv/bin.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

help:       ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup:      ## Install what is missing into .venv and node_modules
	@bash tools/setup.sh

book: setup ## Build the book and serve it with JupyterLab beside it
	@bash tools/build.sh
	@exec python tools/serve.py

hub: setup  ## Run a JupyterHub with the book on this machine (deploy/local/README.md)
	@bash tools/hub.sh
	@PATH="$(CURDIR)/node_modules/.bin:$$PATH" python deploy/local/start.py

offline: setup ## Build the book, and from its pages one PDF and one zip archive
	@bash tools/browser.sh
	@bash tools/build.sh
	@python tools/offline.py

engine: setup ## Install vLLM beside the book, 3 GB, for benchmarks/engine.py
	@bash tools/engine.sh

quick:      ## Run the checks that take a minute, and the notebooks that changed
	@bash .ci/run quick

test:       ## Run the checks whose inputs changed, as continuous integration does
	@bash .ci/run

gpu-check: setup ## Check the book on this machine's GPUs; without one, run the same dry on the CPU
	@python tools/gpu_check.py

notebooks: setup ## Execute every notebook and store its outputs
	@python tools/nb.py run

clean:      ## Remove what was built, but not what was installed
	rm -rf _build book/_static/vendor .pytest_cache .ruff_cache
	find allranks book notebooks tests tools -name __pycache__ -prune -exec rm -rf {} +
