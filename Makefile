# SPDX-License-Identifier: Apache-2.0
#
# A thin front for people: every target is one or two lines that call cmake or a script. Nothing but
# make, a shell and (on a fresh Debian) apt is needed to start; scripts/setup.sh brings the rest.

PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE = cmake -S . -G Ninja
export JOBS

.DEFAULT_GOAL := help
.PHONY: help build test test-long soak fuzz plants campaign peers demo demo-tasks check format install package debug asan tsan clean

help: ## this list
	@echo "Millrace $$(cat VERSION)"; echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

build: ## the release binary: build/millrace
	@scripts/setup.sh build
	@$(CMAKE) -B build -DCMAKE_BUILD_TYPE=Release >/dev/null
	@cmake --build build -j $(JOBS) --target product

demo: build ## builds, then lets several workers speak a text while one of them is killed (20 s)
	@scripts/setup.sh demo
	@MILLRACE="$(CURDIR)/build/millrace" scripts/demo.sh

demo-tasks: build ## builds, then runs a few hundred tasks: a kill, retries, a dead letter (20 s)
	@MILLRACE="$(CURDIR)/build/millrace" scripts/demo_tasks.sh

test: ## sets up, builds and runs a sample of every test (under 10 minutes)
	@scripts/setup.sh test
	@scripts/test.sh sample

test-long: ## the long campaigns (crash images, seeds, model, kills), planted bugs, every promised figure (under 80 minutes)
	@scripts/setup.sh fuzz
	@scripts/test.sh long

soak: ## masters, workers and stores with random faults, and fresh seeds beside it, for SOAK_SECONDS (default 600)
	@scripts/setup.sh test
	@scripts/test.sh soak

fuzz: ## every fuzzer for FUZZ_SECONDS (default 60) with libFuzzer
	@scripts/setup.sh fuzz
	@scripts/fuzz.sh

plants: ## builds with each planted bug and expects a test to catch it
	@scripts/setup.sh test
	@tests/integration/plants.sh

campaign: ## the campaigns of a release, about 7 hours on two cores: PARTS="seeds flips" for some, resumed where they were stopped
	@scripts/setup.sh fuzz
	@scripts/campaign.py $(PARTS)

peers: ## measures what people would use instead beside Millrace, for docs/peers.md (20 minutes; installs beanstalkd, RabbitMQ, ...)
	@scripts/setup.sh peers
	@bench/peers/peers.sh

check: ## sizes, module levels, formatting, banned calls
	@scripts/setup.sh test
	@scripts/tidy.py

format: ## runs clang-format over all C files
	@find include src tests examples bench -name '*.[ch]' -print0 2>/dev/null | xargs -0 -r clang-format -i

install: build ## installs under PREFIX (default /usr/local), below DESTDIR if given
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ldconfig

package: build ## Debian packages of the program, the library and the development files, in build/packages
	@scripts/setup.sh package
	@cd build && cpack --config CPackConfig.cmake && ls packages/*.deb

debug: ## a debug build with its tests in build/debug
	@$(CMAKE) -B build/debug -DCMAKE_BUILD_TYPE=Debug && cmake --build build/debug -j $(JOBS)

asan: ## a build with ASan and UBSan in build/asan
	@$(CMAKE) -B build/asan -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=address && cmake --build build/asan -j $(JOBS)

tsan: ## a build with TSan in build/tsan
	@$(CMAKE) -B build/tsan -DCMAKE_BUILD_TYPE=Debug -DMR_SANITIZE=thread && cmake --build build/tsan -j $(JOBS)

clean: ## removes build/
	@rm -rf build
