# SPDX-License-Identifier: MIT OR Apache-2.0
# Thin names for scripts/; `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO := scripts/cargo
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help build demo test check bench oracle kernels install uninstall clean
.NOTPARALLEL:

help: ## This list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | expand -t 11

build: ## Build the release binary
	@scripts/setup --build
	$(CARGO) build --release --locked -p longhaul

demo: ## The main job on real traffic, with a report; SIZE=4.7GB is the paper's own file
	@scripts/setup
	@scripts/demo $(if $(SIZE),--set size=$(SIZE))

test: ## Every test, root ones included; ALLOW_SKIP=1 where the machine lacks something
	@scripts/setup || [ "$(ALLOW_SKIP)" = 1 ]
	@scripts/test

check: ## Format, lints, documentation, dependency policy
	@scripts/setup --dev
	@scripts/check

bench: ## Benchmarks, all or ONLY="relay udt": decisions a second, real traffic over emulated links, others beside ours
	@scripts/setup --bench
	@scripts/bench $(ONLY)

oracle: ## Record the test vectors of Linux's congestion controls afresh, in a kernel of our own
	@scripts/oracle

kernels: build ## Which features work on Debian's kernels, booted in QEMU; ONLY="bookworm trixie" some of them
	@scripts/setup --kernels
	@scripts/kernels $(ONLY)

install: build ## Install binary, unit and manual under $(DESTDIR)$(PREFIX), and the configuration
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' RELEASE='$(RELEASE)' scripts/install

uninstall: ## Remove what install put there; a configuration that was changed stays
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install --remove

clean: ## Remove what was built and measured here
	rm -rf target out
