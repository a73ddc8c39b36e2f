# The two commands of Elinvar: `make demo` and `make test`. A machine needs Rust and make; the rest is
# installed by scripts/setup.sh, which says what it does.

CARGO ?= cargo
VENV := target/numpy
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Everything but the documentation's tests.
PROGRAMS := --lib --bins --tests --examples

# A gate builds once: without the state of incremental compilation that takes a fifth less.
export CARGO_INCREMENTAL ?= 0

# Homebrew keeps its clang off the PATH. At the end of it, so that nothing of the system is replaced.
ifneq ($(shell command -v brew),)
export PATH := $(PATH):$(shell brew --prefix)/opt/llvm/bin:$(shell brew --prefix)/opt/lld/bin
endif

.PHONY: demo test fresh elinvar test-cuda bench setup numpy crates fmt lint unit tidy apple apple-suite apple-driver installed macos bench-apple mutants coverage asan tsan

demo: setup
	$(CARGO) run --release --example demo

# One after the other, so that the first failure ends it and the output stays readable. `make fmt lint` is a gate of its own.
test: setup numpy crates
	CARGO_NET_OFFLINE=true $(MAKE) unit
	CARGO_NET_OFFLINE=true $(MAKE) apple

# Both from a clean clone, as on a machine that has nothing but Rust and make.
fresh:
	@scripts/fresh.sh demo test

# The baselines that the system may have are installed first where that is simple.
bench: setup
	@scripts/setup.sh baselines
	$(CARGO) run --release --package elinvar-cli -- bench cpu

# target/release/elinvar with the kernels of `elinvar bench` for NVIDIA GPUs within, for machines without clang.
elinvar: setup
	scripts/elinvar.sh

# The CUDA driver's tests and figures: a folder that any machine can run, run here. Without a GPU it says so.
test-cuda: setup
	scripts/cuda.sh target/cuda
	target/cuda/cuda-run.sh

setup:
	@scripts/setup.sh compiler

# The command line's results are compared with NumPy's, and PTX is assembled by NVIDIA's ptxas.
numpy:
	@scripts/setup.sh numpy $(VENV)

# All that the tests compile, also for other systems: they reach no registry themselves.
crates:
	$(CARGO) fetch --quiet --locked
	$(CARGO) fetch --quiet --locked --manifest-path crates/cli/tests/metal-crate/Cargo.toml

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets -- -D warnings

# The stand-in for Apple's libraries is built along with everything else. Alone it has fewer features, and would be built again.
unit apple: export ELINVAR_APPLE_LIBRARY = $(abspath $(TARGET))/debug/libelinvar_apple.so
unit: export ELINVAR_REQUIRE_NUMPY = 1
# Clang has its time on a machine that is busy with other things too.
unit: export ELINVAR_COMPILE_TIMEOUT = 600
unit: export ELINVAR_TEST_PYTHON = $(CURDIR)/$(VENV)/bin/python3
# NVIDIA has it for Linux.
ifeq ($(shell uname -s),Linux)
unit: export ELINVAR_REQUIRE_PTXAS = 1
unit: export ELINVAR_PTXAS = $(CURDIR)/$(VENV)/bin/ptxas
endif
# The cases of the suite share a process, and with it what was compiled: a process for each takes twice as long.
unit:
	$(CARGO) build --workspace $(PROGRAMS)
	@scripts/summed.sh $(CARGO) test --workspace $(PROGRAMS)
	@scripts/summed.sh $(CARGO) test --workspace --doc

# One of the tests, too.
tidy:
	$(CARGO) xtask tidy

# Whether the tests notice faults put into the code: hours for the whole sample, and it goes on where it was stopped.
mutants: setup
	@scripts/setup.sh mutants
	ELINVAR_COMPILE_TIMEOUT=600 $(CARGO) xtask mutants

# Lines that the tests run, by crate.
coverage: setup numpy
	@scripts/setup.sh coverage
	ELINVAR_COMPILE_TIMEOUT=600 ELINVAR_TEST_PYTHON=$(CURDIR)/$(VENV)/bin/python3 ELINVAR_PTXAS=$(CURDIR)/$(VENV)/bin/ptxas \
	    $(CARGO) xtask coverage

# The runtime, the contract and the CPU's drivers with a sanitizer compiled in (docs/testing.md).
asan: setup
	scripts/sanitize.sh address

tsan: setup
	scripts/sanitize.sh thread

# The Metal driver without a Mac, against libraries that stand in for Apple's. On a Mac the tests above have run it.
# The program is the one that the tests have built: `cargo run` would build it again, with fewer features. So would
# cargo the driver, if the suite were not built along with it.
ELINVAR := $(TARGET)/debug/elinvar
STANDIN := scripts/summed.sh $(ELINVAR) test --cfg elinvar_apple --cargo-arg=--package=elinvar-driver-metal \
    --cargo-arg=--package=elinvar-conformance
DRIVER_TESTS := $(basename $(notdir $(wildcard crates/driver-metal/tests/*.rs)))

ifeq ($(shell uname -sm),Linux x86_64)
# The suite's cases run one by one there, since what is left alive is counted: the driver's own tests have the other core.
apple:
	$(CARGO) build --workspace $(PROGRAMS) --quiet
	$(STANDIN) --cargo-arg=--no-run --cargo-arg=--lib $(DRIVER_TESTS:%=--cargo-arg=--test=%) \
	    --cargo-arg=--test=drivers --cargo-arg=--test=runtime_primitives
	$(MAKE) --jobs=2 --output-sync=target apple-suite apple-driver

apple-suite:
	METAL_CAPTURE_ENABLED=1 $(STANDIN) --cargo-arg=--test=drivers -- metal::
	$(STANDIN) --cargo-arg=--test=drivers -- suite::unsupported

apple-driver:
	ELINVAR_APPLE_PROFILE=apple9,apple3,discrete \
	    $(STANDIN) --cargo-arg=--lib $(DRIVER_TESTS:%=--cargo-arg=--test=%)
	$(STANDIN) --cargo-arg=--config=profile.dev.package.objc2.debug-assertions=false \
	    --cargo-arg=--test=allocations -- --ignored
	for cases in check fault a_failure_goes_on; do \
	    MTL_SHADER_VALIDATION=1 MTL_SHADER_VALIDATION_DEFAULT_STATE=none \
	        $(STANDIN) --cargo-arg=--test=drivers -- $$cases || exit 1; done
	ELINVAR_APPLE_PROFILE=discrete,discrete,apple9 $(STANDIN) --cargo-arg=--test=drivers -- ::between::
	ELINVAR_APPLE_PROFILE=apple9,apple7,apple1 \
	    $(STANDIN) --cargo-arg=--test=drivers --cargo-arg=--test=runtime_primitives -- primitives
else
apple:
endif

# What users do who have installed the program: it builds the stand-in from the sources that it carries.
installed:
	@scripts/summed.sh $(CARGO) test --package elinvar-cli --test apple -- --ignored

# What a launch costs the host through the Metal driver, by phase.
bench-apple: setup
	$(CARGO) run --quiet --package elinvar-cli --bin elinvar -- test --cfg elinvar_apple \
	    --cargo-arg=--package=elinvar-driver-metal --cargo-arg=--release --cargo-arg=--test=cost -- --ignored --nocapture

# The same built for macOS, and where that is possible run. It takes a compiler for macOS, which Debian has.
macos:
	@scripts/setup.sh apple
	$(CARGO) xtask apple run
