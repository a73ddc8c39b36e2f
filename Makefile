# Main targets: `make demo` and `make test`. Prerequisites are Rust and make; scripts/setup.sh installs everything else
# and prints the commands that it runs.

CARGO ?= cargo
VENV := target/numpy
TARGET := $(or $(CARGO_TARGET_DIR),target)
# All test targets except doc tests.
PROGRAMS := --lib --bins --tests --examples

# A gate builds once; without incremental compilation that takes a fifth less time.
export CARGO_INCREMENTAL ?= 0

# Homebrew does not put its clang on the PATH. Appended, so that system tools take precedence.
ifneq ($(shell command -v brew),)
export PATH := $(PATH):$(shell brew --prefix)/opt/llvm/bin:$(shell brew --prefix)/opt/lld/bin
endif

.PHONY: dashboard demo test test-long fresh elinvar test-cuda bench bench-check bench-record setup numpy mpi opencl crates fmt lint unit long tidy apple apple-suite apple-driver apple-tensors installed budget macos bench-apple mutants coverage asan tsan

# Built as the tests are, which build on it: kernels are as fast as in a release build.
demo: setup
	$(CARGO) build --workspace --example demo
	$(TARGET)/debug/examples/demo

# All tests, but of the conformance suite and other large sets of kernels a sample. `make fmt lint` is a separate gate.
test: setup numpy mpi opencl crates
	CARGO_NET_OFFLINE=true ELINVAR_TESTS=quick $(MAKE) unit

# What `make test` leaves out: the rest of those sets, and the Metal driver on the stand-in. Sequential, so that the first failure stops
# it and the output is readable.
test-long: setup numpy mpi opencl crates
	CARGO_NET_OFFLINE=true ELINVAR_TESTS=long $(MAKE) long
	CARGO_NET_OFFLINE=true $(MAKE) apple

# `make demo` and `make test` from a clean clone, as on a machine with only Rust and make.
fresh:
	@scripts/fresh.sh demo test

# Installs the baselines first, on Debian.
bench: setup
	@scripts/setup.sh baselines
	$(CARGO) run --release --package elinvar-cli -- bench cpu

# Fails if a kernel's ratio to a baseline is worse than the one recorded for this processor.
bench-check: setup
	@scripts/setup.sh baselines
	$(CARGO) run --release --package elinvar-cli -- bench cpu --threads 1 --check docs/performance.json

# Records better ratios, and replaces the table of docs/performance.md.
bench-record: setup
	@scripts/setup.sh baselines
	$(CARGO) run --release --package elinvar-cli -- bench cpu --threads 1 --record docs/performance.json --table docs/performance.md

# target/release/elinvar with the benchmark kernels for NVIDIA GPUs embedded, for machines without clang.
elinvar: setup
	scripts/elinvar.sh

# The CUDA driver's tests and benchmarks, in a folder that can be copied to another machine; skipped without a GPU.
test-cuda: setup
	scripts/cuda.sh target/cuda
	target/cuda/cuda-run.sh

setup:
	@scripts/setup.sh compiler

# NumPy, for comparisons with the command line's results, and NVIDIA's ptxas, which assembles the suite's PTX.
numpy:
	@scripts/setup.sh numpy $(VENV)

# Open MPI, on Debian.
mpi:
	@scripts/setup.sh mpi

# PoCL, with which translated OpenCL C is compared.
opencl:
	@scripts/setup.sh opencl

# Downloads all dependencies, including those for other targets: the tests run offline.
crates:
	$(CARGO) fetch --quiet --locked
	$(CARGO) fetch --quiet --locked --manifest-path crates/cli/tests/metal-crate/Cargo.toml

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	for feature in cpu cuda isolated metal; do $(CARGO) check -p elinvar --no-default-features --features $$feature || exit 1; done
	$(CARGO) check -p elinvar --no-default-features
	for feature in otlp prometheus; do $(CARGO) check -p elinvar-telemetry --no-default-features --features $$feature || exit 1; done

# The stand-in for Apple's frameworks is built with the workspace: built alone, it has fewer features and is recompiled.
unit long apple: export ELINVAR_APPLE_LIBRARY = $(abspath $(TARGET))/debug/libelinvar_apple.so
unit long: export ELINVAR_REQUIRE_NUMPY = 1
unit long: export ELINVAR_TEST_PYTHON = $(CURDIR)/$(VENV)/bin/python3
# ptxas is published for Linux only.
ifeq ($(shell uname -s),Linux)
unit long: export ELINVAR_REQUIRE_PTXAS = 1
unit long: export ELINVAR_PTXAS = $(CURDIR)/$(VENV)/bin/ptxas
endif
# Installed by `make numpy` where the system and Python have packages; otherwise the tests that need them are ignored and say so.
ifneq ($(and $(wildcard $(VENV)/bin/promtool),$(wildcard $(VENV)/bin/rotel-agent)),)
unit long: export ELINVAR_REQUIRE_COLLECTORS = 1
unit long: export ELINVAR_COLLECTORS = $(CURDIR)/$(VENV)/bin
endif
ifneq ($(shell command -v mpirun),)
unit long: export ELINVAR_REQUIRE_MPI = 1
endif
# Installed by `make opencl` on Debian.
ifneq ($(wildcard /etc/OpenCL/vendors/pocl.icd),)
unit long: export ELINVAR_REQUIRE_OPENCL = 1
endif
# The programs that `ELINVAR_TESTS` divides.
LONG := drivers opencl ptx regressions seeds
# cargo test, not nextest: the suite's cases share a process and its compiled kernels; a process for each takes twice as long.
unit:
	$(CARGO) build --workspace $(PROGRAMS)
	@scripts/summed.sh $(CARGO) test --workspace $(PROGRAMS)
	@scripts/summed.sh $(CARGO) test --workspace --doc

# Built with the workspace, whose features differ from those of these packages alone.
long:
	$(CARGO) build --workspace $(PROGRAMS)
	@scripts/summed.sh $(CARGO) test --workspace $(LONG:%=--test %)
	for chapter in between collectives sharded; do \
	    ELINVAR_CPU_DEVICES=3 env -u ELINVAR_TESTS $(CARGO) test --workspace --test drivers -- cpu::$$chapter:: || exit 1; done
	for case in reductions movements between_kernels in_ a_ invalid; do \
	    ELINVAR_NETWORK=$(CURDIR)/verify/conformance/eight-by-eight.network ELINVAR_CPU_DEVICES=64 \
	    env -u ELINVAR_TESTS $(CARGO) test --workspace --test drivers -- cpu::collectives::$$case || exit 1; done

# Also run by `make test`.
tidy:
	$(CARGO) xtask tidy

# The Grafana dashboard against Grafana's published types; requires npm.
dashboard:
	scripts/dashboard.sh

# Mutation testing: takes hours for the whole sample, and is resumable.
mutants: setup
	@scripts/setup.sh mutants
	ELINVAR_COMPILE_TIMEOUT=600 $(CARGO) xtask mutants

# Line coverage by crate.
coverage: setup numpy
	@scripts/setup.sh coverage
	ELINVAR_COMPILE_TIMEOUT=600 ELINVAR_TEST_PYTHON=$(CURDIR)/$(VENV)/bin/python3 ELINVAR_PTXAS=$(CURDIR)/$(VENV)/bin/ptxas \
	    $(CARGO) xtask coverage

# The driver contract, the runtime and the CPU drivers under a sanitizer (docs/testing.md).
asan: setup
	scripts/sanitize.sh address

tsan: setup
	scripts/sanitize.sh thread

# The Metal driver without a Mac, against the stand-in for Apple's frameworks. On a Mac, `make unit` has run it already.
# Uses the binary that the tests have built: `cargo run` would rebuild it with fewer features. The driver and the suite are
# built together for the same reason.
ELINVAR := $(TARGET)/debug/elinvar
STANDIN := scripts/summed.sh $(ELINVAR) test --cfg elinvar_apple --cargo-arg=--package=elinvar-driver-metal \
    --cargo-arg=--package=elinvar-conformance
# Drivers that do not use Metal; `make unit` runs their cases.
OTHERS := cpu isolated toy
DRIVER_TESTS := $(basename $(notdir $(wildcard crates/driver-metal/tests/*.rs)))

ifeq ($(shell uname -sm),Linux x86_64)
# The suite's cases run sequentially, because each checks for leaked objects in its process. Two processes share them, and the driver's
# own tests run beside them: two of the three at a time.
apple:
	$(CARGO) build --workspace $(PROGRAMS) --quiet
	$(STANDIN) --cargo-arg=--no-run --cargo-arg=--lib $(DRIVER_TESTS:%=--cargo-arg=--test=%) \
	    --cargo-arg=--test=drivers --cargo-arg=--test=runtime_primitives \
	    --cargo-arg=--test=runtime_faults --cargo-arg=--test=runtime_metal_faults
	$(MAKE) --jobs=2 --output-sync=target apple-suite apple-driver apple-tensors

apple-suite:
	METAL_CAPTURE_ENABLED=1 $(STANDIN) --cargo-arg=--test=drivers -- metal:: --skip metal::tensor::
	$(STANDIN) --cargo-arg=--test=drivers -- suite::unsupported

apple-tensors:
	METAL_CAPTURE_ENABLED=1 $(STANDIN) --cargo-arg=--test=drivers -- metal::tensor::
	for system in 11.0 13.6 14.6; do ELINVAR_APPLE_OS=$$system \
	    $(STANDIN) --cargo-arg=--test=drivers -- by_the_library $(OTHERS:%=--skip %::) || exit 1; done

apple-driver:
	ELINVAR_APPLE_PROFILE=apple9,apple3,discrete \
	    $(STANDIN) --cargo-arg=--lib $(DRIVER_TESTS:%=--cargo-arg=--test=%)
	$(STANDIN) --cargo-arg=--config=profile.dev.package.objc2.debug-assertions=false \
	    --cargo-arg=--test=allocations -- --ignored
	for cases in check fault a_failure_goes_on; do \
	    MTL_SHADER_VALIDATION=1 MTL_SHADER_VALIDATION_DEFAULT_STATE=none \
	        $(STANDIN) --cargo-arg=--test=drivers -- $$cases $(OTHERS:%=--skip %::) || exit 1; done
	MTL_SHADER_VALIDATION=1 $(STANDIN) --cargo-arg=--test=runtime_faults -- metal::
	$(STANDIN) --cargo-arg=--test=runtime_metal_faults
	ELINVAR_APPLE_PROFILE=discrete,discrete,apple9 $(STANDIN) --cargo-arg=--test=drivers -- ::between::
	ELINVAR_APPLE_PROFILE=apple9,apple7,apple1 \
	    $(STANDIN) --cargo-arg=--test=drivers --cargo-arg=--test=runtime_primitives -- primitives
else
apple:
endif

# An installed program, without a checkout: it builds the stand-in from its embedded sources.
installed:
	@scripts/summed.sh $(CARGO) test --package elinvar-cli --test apple -- --ignored

# Host cost of a launch through the Metal driver, by phase.
bench-apple: setup
	$(CARGO) run --quiet --package elinvar-cli --bin elinvar -- test --cfg elinvar_apple \
	    --cargo-arg=--package=elinvar-driver-metal --cargo-arg=--release --cargo-arg=--test=cost -- --ignored --nocapture

# Compiles a sample of published kernels, and fails if their code exceeds the budget.
budget: setup
	$(CARGO) xtask corpus --cost candle-metal-kernels

# The Metal driver's tests built for macOS, and run where possible. Needs a Rust toolchain for macOS, which Debian packages.
macos:
	@scripts/setup.sh apple
	$(CARGO) xtask apple run
