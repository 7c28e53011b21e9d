# SPDX-License-Identifier: MIT OR Apache-2.0
# Targets for scripts/. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO := scripts/cargo
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help build demo test test-peers check features bench oracle kernels dist test-dist install uninstall clean
.NOTPARALLEL:

help: ## This list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 11

build: ## Build the release binary
	@scripts/setup --build
	$(CARGO) build --release --locked -p longhaul

demo: ## The main experiment on real traffic, with a report; SIZE=4.7GB is the size of the paper
	@scripts/setup --demo
	@scripts/demo $(if $(SIZE),--set size=$(SIZE))

test: ## All tests but those of test-peers; ALLOW_SKIP=1 skips those that cannot run here
	@scripts/setup || [ "$(ALLOW_SKIP)" = 1 ]
	@scripts/test

test-peers: ## Tests with programs of others: Chromium, PostgreSQL, tshark, Squid, dante, WebDAV clients
	@scripts/setup --peers || [ "$(ALLOW_SKIP)" = 1 ]
	@scripts/test --peers

check: ## Format, lints, documentation, plain language, dependency policy
	@scripts/setup --dev
	@scripts/check

features: ## Test without optional features and with each alone; check the size of the smallest relay
	@scripts/setup --dev
	@scripts/features

corpus: ## Some 800 captures of transfers with a known main limit, and the verdicts of tap about them: an hour, needs root
	bench/verdicts/run.py --corpus out/corpus

bench: ## All benchmarks, or ONLY="relay udt": emulator speed, real traffic over emulated links, comparison with other programs
	@scripts/setup --bench
	@scripts/bench $(ONLY)

oracle: ## Record the test vectors of Linux's congestion controls again, in a User Mode Linux
	@scripts/oracle

kernels: build ## Test the features on Debian's kernels in QEMU; ONLY="bookworm trixie" selects some
	@scripts/setup --kernels
	@scripts/kernels $(ONLY)

dist: ## What a release consists of: packages, an image, archives, in target/dist/out
	@scripts/setup --dist
	@scripts/dist

test-dist: ## Test the packages on Debian 12 and 13, and the image
	@scripts/setup --dist
	@scripts/test-dist

install: build ## Install binary, units and manual under $(DESTDIR)$(PREFIX), and the configuration
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' RELEASE='$(RELEASE)' scripts/install

uninstall: ## Remove the installed files; a changed configuration stays
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install --remove

clean: ## Remove all build products and results
	rm -rf target out
