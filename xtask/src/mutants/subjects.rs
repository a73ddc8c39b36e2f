//! The mutated crates, the number of mutants of each, and the tests of other packages that apply to them.

/// A mutated crate.
pub struct Subject {
    pub package: &'static str,
    /// Number of mutants in the sample.
    pub count: usize,
    /// Its own tests, as Cargo's options: run one after the other until a mutant is caught.
    pub own: &'static [&'static [&'static str]],
    /// Tests of other packages by path prefix of the mutated file, run one after the other until a mutant is caught. The last prefix
    /// matches all files.
    pub others: &'static [(&'static [&'static str], Tests<'static>)],
}

/// Tests to run against a mutant.
#[derive(Clone, Copy)]
pub struct Tests<'a> {
    pub packages: &'a [&'static str],
    /// Test programs to build, as Cargo's options; no others are linked.
    pub programs: &'static [&'static str],
    /// Filter expression of nextest.
    pub filter: &'static str,
}

const SUITE: &[&str] = &["elinvar-conformance"];

/// Path prefix of all files.
const ALL: &[&str] = &[""];

/// Interpretation of code lowered for NVPTX.
const WARPS: Tests<'_> = Tests {
    packages: &["elinvar-reference"],
    programs: &["--test=warps", "--test=warp_functions"],
    filter: "all()",
};

/// Some modules of the program `runtime`.
const fn of_runtime(filter: &'static str) -> Tests<'static> {
    Tests { packages: SUITE, programs: &["--test=runtime"], filter }
}

/// All tests at once, for tests that take seconds.
const OWN: &[&[&str]] = &[&["--tests"]];

/// Crates with fast tests come first.
pub const SUBJECTS: [Subject; 7] = [
    Subject {
        package: "elinvar-driver",
        count: 60,
        own: OWN,
        others: &[(ALL, Tests { packages: SUITE, programs: &["--test=runtime*"], filter: "all()" })],
    },
    Subject {
        package: "elinvar-cache",
        count: 50,
        own: OWN,
        others: &[(
            ALL,
            Tests { packages: &["elinvar-driver-cpu"], programs: &["--test=cache"], filter: "all()" },
        )],
    },
    Subject {
        package: "elinvar-code",
        count: 30,
        own: OWN,
        others: &[(ALL, Tests { packages: &["elinvar-cli"], programs: &["--test=pack"], filter: "all()" })],
    },
    Subject {
        package: "elinvar-ir",
        count: 60,
        own: OWN,
        others: &[(
            ALL,
            Tests {
                packages: &["elinvar-spmd", "elinvar-reference"],
                programs: &["--tests"],
                filter: "all()",
            },
        )],
    },
    Subject {
        package: "elinvar-spmd",
        count: 70,
        own: OWN,
        others: &[
            (&["crates/spmd/src/nvptx/"], WARPS),
            (
                ALL,
                Tests {
                    packages: &["elinvar-conformance", "elinvar-reference"],
                    programs: &["--test=drivers", "--test=warps", "--test=warp_functions"],
                    filter: "package(elinvar-reference) | test(/^cpu::(accesses|atomics|barriers|checks|grids|integers|lanes|order|pipeline|simdgroup|values)/)",
                },
            ),
        ],
    },
    Subject { package: "elinvar", count: 90, own: OWN, others: OF_THE_RUNTIME },
    Subject {
        package: "elinvar-msl",
        count: 60,
        own: &[&["--lib"], &["--test=ir", "--test=signatures"], &["--tests"]],
        others: &[(
            ALL,
            Tests {
                packages: SUITE,
                programs: &["--test=drivers"],
                filter: "test(/^cpu::(argument|attributes|constants|errors|layout|program_scope|sources|templates|types|values)/)",
            },
        )],
    },
];

/// If the relevant test programs of a file are known, only these are linked.
const OF_THE_RUNTIME: &[(&[&str], Tests<'_>)] = &[
    (&["crates/runtime/src/graph/"], of_runtime("test(/^graph/)")),
    (
        &[
            "crates/runtime/src/recovery/",
            "crates/runtime/src/sync/device_state.rs",
            "crates/runtime/src/observe/health.rs",
            "crates/runtime/src/observe/notice.rs",
            "crates/runtime/src/observe/thermal.rs",
            "crates/runtime/src/observe/watch.rs",
        ],
        of_runtime("test(/^(recovery|health|lost)/)"),
    ),
    (
        &[
            "crates/runtime/src/sync/dependencies/",
            "crates/runtime/src/sync/event.rs",
            "crates/runtime/src/sync/coalesce.rs",
            "crates/runtime/src/sync/deadline.rs",
            "crates/runtime/src/sync/in_flight.rs",
            "crates/runtime/src/sync/completion.rs",
            "crates/runtime/src/launch/stream.rs",
            "crates/runtime/src/launch/command_buffer.rs",
        ],
        of_runtime("test(/^(events|gather|pipeline|streams)/)"),
    ),
    (
        &[
            "crates/runtime/src/memory/pool/",
            "crates/runtime/src/memory/buffer.rs",
            "crates/runtime/src/memory/usage.rs",
            "crates/runtime/src/memory/map.rs",
            "crates/runtime/src/device/registry.rs",
            "crates/runtime/src/memory/slice.rs",
            "crates/runtime/src/memory/span.rs",
        ],
        of_runtime("test(/^(memory|buffers|uses)/)"),
    ),
    (
        &[
            "crates/runtime/src/launch/bind.rs",
            "crates/runtime/src/launch/args.rs",
            "crates/runtime/src/launch/grid.rs",
            "crates/runtime/src/launch/kernel.rs",
        ],
        of_runtime("test(/^(bind|grid|indirect)/)"),
    ),
    (
        ALL,
        Tests {
            packages: SUITE,
            programs: &["--test=drivers", "--test=runtime*"],
            filter: "binary(/^runtime/) | test(/^cpu::(arguments|constants|errors|events|graphs|indirect|memory|pipeline|streams)/)",
        },
    ),
];
