//! Kernels in the interpreter, from their source to the memory they leave, and the faults of wrong ones.

use elinvar::Source;
use elinvar_code::user_cache;
use elinvar_ir::Module;
use elinvar_msl::{Program, Toolchain};
use elinvar_reference::{Argument, Fault, Launch, Options, Problem, Uninitialized, run, run_with};

fn module(body: &str) -> Module {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    let toolchain = Toolchain::find_with(user_cache()).expect("clang");
    let program = Program::compile(&toolchain, &Source::named("k.metal", text)).expect("compiles");
    Module::parse(&program.ir_unoptimized("k").expect("IR")).expect("parses")
}

fn launch(threads: u32, group: u32, arguments: Vec<Argument>) -> Launch {
    Launch { threads: [threads, 1, 1], group: [group, 1, 1], arguments }
}

fn words(values: impl IntoIterator<Item = u32>) -> Argument {
    Argument::Bytes(values.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn read(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes"))).collect()
}

/// The fault of a kernel, in one group of `threads`.
fn fault(body: &str, threads: u32) -> Fault {
    let options = Options { uninitialized: Uninitialized::Tracked, ..Options::default() };
    let launch = launch(threads, threads, vec![words([1, 2, 3, 4])]);
    run_with(&module(body), &launch, &options).expect_err("a fault")
}

#[test]
fn threadgroup_memory_and_edge_groups() {
    let module = module(
        "kernel void k(device uint* out [[buffer(0)]], threadgroup uint* tg [[threadgroup(0)]],
                       uint id [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
                       uint size [[threads_per_threadgroup]]) {
             threadgroup uint sh[8];
             sh[lid] = id;
             tg[lid] = id * 10u;
             threadgroup_barrier(mem_flags::mem_threadgroup);
             uint other = size - 1u - lid;
             out[id] = sh[other] + tg[other];
         }",
    );
    let memory =
        run(&module, &launch(11, 4, vec![words([0; 11]), Argument::Threadgroup(16)])).expect("no fault");
    assert_eq!(read(&memory[0]), [33, 22, 11, 0, 77, 66, 55, 44, 110, 99, 88]);
    assert!(memory[1].is_empty());
}

/// Threadgroup memory and values are kept while other threadgroups run.
#[test]
fn grid_barriers() {
    let module = module(
        "#include <elinvar/grid>
         kernel void k(device uint* out [[buffer(0)]], device uint* x [[buffer(1)]], threadgroup uint* tg [[threadgroup(0)]],
                       uint id [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
                       uint n [[threads_per_grid]]) {
             threadgroup uint sh[4];
             sh[lid] = id * 100u;
             tg[lid] = id;
             for (uint round = 0; round < 3u; ++round) {
                 x[id] = id + round;
                 elinvar::grid_barrier();
                 tg[lid] += x[(id + 5u) % n];
                 elinvar::grid_barrier();
             }
             out[id] = sh[lid ^ 1u] + tg[lid];
         }",
    );
    let arguments = vec![words([0; 12]), words([0; 12]), Argument::Threadgroup(16)];
    let memory = run(&module, &launch(12, 4, arguments)).expect("no fault");
    let expected: Vec<u32> = (0..12).map(|id| (id ^ 1) * 100 + id + (id + 5) % 12 * 3 + 3).collect();
    assert_eq!(read(&memory[0]), expected);
}

#[test]
fn threadgroups_that_miss_a_grid_barrier_are_faults() {
    let module = module(
        "#include <elinvar/grid>
         kernel void k(device uint* out [[buffer(0)]], uint id [[thread_position_in_grid]]) {
             if (id / 4u == out[0]) return;
             elinvar::grid_barrier();
         }",
    );
    run(&module, &launch(12, 4, vec![words([3; 1])])).expect("all arrive");
    let missed = run(&module, &launch(12, 4, vec![words([1; 1])])).expect_err("a fault");
    assert!(matches!(&*missed.problem, Problem::MissedGridBarrier), "{missed}");
}

#[test]
fn overloads_on_address_spaces() {
    let module = module(
        "uint f(device const uint* p) { return p[0] + 1000u; }
         uint f(threadgroup const uint* p) { return p[0] + 2000u; }
         uint f(constant uint* p) { return p[0] + 3000u; }
         uint f(thread const uint* p) { return p[0] + 4000u; }
         struct S { uint v; uint get() const device { return v + 10u; } uint get() const constant { return v + 20u; }
                    uint get() const { return v + 30u; } uint get() const threadgroup { return v + 40u; } };
         template <typename T> uint g(T p) { return 5u; }
         uint g(threadgroup uint* p) { return 6u; }
         constant uint TABLE[2] = {7, 8};
         kernel void k(device uint* out [[buffer(0)]], device S* d [[buffer(1)]], constant S& c [[buffer(2)]],
                       threadgroup uint* tg [[threadgroup(0)]], constant uint* n [[buffer(3)]]) {
             threadgroup uint sh[2]; threadgroup S s;
             sh[0] = 1; tg[0] = 2; s.v = 3; out[0] = 9;
             uint own = 4; S mine = {5};
             out[1] = f(out); out[2] = f(sh); out[3] = f(tg); out[4] = f(n); out[5] = f(&own); out[6] = f(TABLE + 1);
             out[7] = d->get(); out[8] = c.get(); out[9] = mine.get(); out[10] = s.get(); out[11] = g(sh) * 10u + g(own);
         }",
    );
    let arguments = vec![words([0; 12]), words([11]), words([12]), Argument::Threadgroup(16), words([13])];
    let memory = run(&module, &launch(1, 1, arguments)).expect("no fault");
    assert_eq!(read(&memory[0]), [9, 1009, 2001, 2002, 3013, 4004, 3008, 21, 32, 35, 43, 65]);
}

#[test]
fn simdgroups_meet_where_their_ways_join() {
    // Lanes leave the loop after different rounds; each round sums those that are still in it.
    let module = module(
        "kernel void k(device uint* out [[buffer(0)]], uint lid [[thread_index_in_threadgroup]]) {
             uint total = 0;
             for (uint i = 0; i < lid % 3u; ++i) {
                 if (lid == 4u && i == 0u) continue;
                 total += simd_sum(1u);
             }
             uint all = simd_sum(1u);
             uint part = lid < 2u ? simd_max(lid) : simd_min(lid);
             out[lid] = total * 10000u + all * 100u + part;
         }",
    );
    let memory = run(&module, &launch(6, 6, vec![words([0; 6])])).expect("no fault");
    // Round 0: lanes 1, 2 and 5 (4 skips it). Round 1: lanes 2 and 5.
    assert_eq!(read(&memory[0]), [601, 30601, 50602, 602, 602, 50602]);
}

#[test]
fn what_is_outside_is_named() {
    let out_of_bounds = fault(
        "kernel void k(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n    out[i] = 1;\n}",
        6,
    );
    assert_eq!(out_of_bounds.thread, Some([4, 0, 0]));
    assert_eq!(out_of_bounds.location.as_ref().map(|l| l.line), Some(4));
    let text = out_of_bounds.to_string();
    assert!(text.contains("4 bytes at offset 16 of argument 0, which has 16 bytes"), "{text}");
    let private =
        fault("kernel void k(device int* out [[buffer(0)]]) { int a[4] = {}; out[0] = a[out[3]]; }", 1);
    assert!(private.to_string().contains("offset 16 of a private variable, which has 16 bytes"), "{private}");
}

/// A simdgroup arrives for all its lanes; those that have taken another path wait where the paths join.
#[test]
fn a_barrier_that_some_lanes_miss_does_not_wait_for_them() {
    let kernel = module(
        "kernel void k(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
             threadgroup uint tile[64];
             tile[i] = 1;
             uint r = 0;
             for (uint k = 0; k < i % 4; ++k) {
                 threadgroup_barrier(mem_flags::mem_none);
                 r += k + 1;
                 tile[i] = r;
             }
             out[i] = tile[i ^ 3] * 1000 + simd_sum(r);
         }",
    );
    let memory = run(&kernel, &launch(64, 64, vec![words([0; 64])])).expect("every simdgroup arrives");
    let r = |i: u32| [0, 1, 3, 6][i as usize % 4];
    let expected: Vec<u32> = (0..64).map(|i| if i % 4 == 3 { 1000 } else { r(i ^ 3) * 1000 } + 80).collect();
    assert_eq!(read(&memory[0]), expected);
}

#[test]
fn different_barriers_of_two_simdgroups_are_faults() {
    let missed = fault(
        "kernel void k(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
             if (i < 32) threadgroup_barrier(mem_flags::mem_none);
             else threadgroup_barrier(mem_flags::mem_none);
             out[i] = i;
         }",
        64,
    );
    assert!(matches!(&*missed.problem, Problem::DivergentBarrier { other: Some(_) }), "{missed}");
    let returned = module(
        "kernel void k(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
             if (i == 1) return;
             threadgroup_barrier(mem_flags::mem_none);
             out[i] = 5;
         }",
    );
    let memory = run(&returned, &launch(3, 3, vec![words([0; 3])])).expect("who returned has arrived");
    assert_eq!(read(&memory[0]), [5, 0, 5]);
}

#[test]
fn decisions_on_memory_never_written_are_faults() {
    let branch =
        fault("kernel void k(device uint* out [[buffer(0)]]) { uint a[2]; if (a[1] > 3u) out[0] = 1; }", 1);
    assert!(matches!(*branch.problem, Problem::Uninitialized { .. }), "{branch}");
    let zero = module("kernel void k(device uint* out [[buffer(0)]]) { uint a[2]; out[0] = a[1]; }");
    let memory = run(&zero, &launch(1, 1, vec![words([9])])).expect("no fault");
    assert_eq!(read(&memory[0]), [0]);
}

#[test]
fn endless_kernels_end_at_the_limit() {
    let module = module(
        "kernel void k(device uint* out [[buffer(0)]]) { volatile uint i = 0; while (i == 0u) { out[0] = 1; } }",
    );
    let options = Options { steps: 10_000, ..Options::default() };
    let fault = run_with(&module, &launch(1, 1, vec![words([0])]), &options).expect_err("a fault");
    assert_eq!(*fault.problem, Problem::Steps(10_000));
}

#[test]
fn malformed_launches_are_named() {
    let module = module("kernel void k(device uint* out [[buffer(0)]]) { out[0] = 1; }");
    let missing = run(&module, &launch(1, 1, Vec::new())).expect_err("no argument");
    assert!(missing.to_string().contains("takes 1 arguments but is passed 0"), "{missing}");
    let empty = run(&module, &launch(1, 0, vec![words([0])])).expect_err("no threads");
    assert!(matches!(*empty.problem, Problem::Malformed(_)), "{empty}");
    let nothing = run(&module, &launch(0, 1, vec![words([7])])).expect("nothing to run");
    assert_eq!(read(&nothing[0]), [7]);
}
