# SPDX-License-Identifier: MIT OR Apache-2.0
# Thin names for scripts/; `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO := scripts/cargo
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help build demo test check bench install clean
.NOTPARALLEL:

help: ## This list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | expand -t 10

build: ## Build the release binary
	$(CARGO) build --release --locked

demo: ## The main job on real traffic, with a report; SIZE=4.7GB is the paper's own file
	@scripts/setup
	@scripts/demo $(if $(SIZE),--set size=$(SIZE))

test: ## Every test, root ones included; ALLOW_SKIP=1 where the machine lacks something
	@scripts/setup || [ "$(ALLOW_SKIP)" = 1 ]
	@scripts/test

check: ## Format, lints, documentation, dependency policy
	@scripts/setup --dev
	@scripts/check

bench: ## Benchmarks: decisions a second, real traffic over emulated links, other relays beside ours
	@scripts/setup --bench
	@scripts/bench

install: build ## Install the binary under $(DESTDIR)$(PREFIX)
	install -D -m 755 $(RELEASE)/longhaul $(DESTDIR)$(PREFIX)/bin/longhaul

clean: ## Remove what was built and measured here
	rm -rf target out
