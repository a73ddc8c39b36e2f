//! Advice: each remedy is found in the kernel of its pair of `elinvar bench advice`, and not in the mended twin.

mod common;

use elinvar_analysis::{Advice, Launch, Machine, Remedy};

const ADVICE: &str = include_str!("../../cli/src/bench/kernels/advice.metal");
const REDUCE: &str = include_str!("../../cli/src/bench/kernels/reduce.metal");
const HISTOGRAM: &str = include_str!("../../cli/src/bench/kernels/histogram.metal");

fn advice(source: &str, kernel: &str, machine: Machine, launch: Option<&Launch>) -> Vec<Advice> {
    let (module, signature) = common::module(source, kernel);
    common::analyzed(&module, &signature).advice(machine, launch).expect("advice")
}

fn line_of(source: &str, text: &str) -> u32 {
    let at = source.lines().position(|line| line.contains(text)).expect(text);
    at as u32 + 1
}

#[test]
fn remedies_are_found_in_the_kernel_and_not_in_its_twin() {
    for (remedy, source, kernel, twin, at) in [
        (Remedy::SwapAxes, ADVICE, "columns", "rows", Some("out[i] = a[i] * 2.0f")),
        (Remedy::Vectorize, ADVICE, "bytes", "bytes_by_four", Some("out[i] = 255 - a[i]")),
        (Remedy::PadTile, ADVICE, "tile", "tile_padded", Some("= t[local.x][local.y + row]")),
        (Remedy::MoveToConstant, ADVICE, "weights", "weights_constant", Some("sum = sum * v + w[j]")),
        (Remedy::Hoist, ADVICE, "powers", "powers_hoisted", Some("out[i] += a[i]")),
        (Remedy::SplitBranch, ADVICE, "alternating", "by_simdgroup", Some("if (i % 2 == 0)")),
        (Remedy::SimdgroupReduction, REDUCE, "reduce_tree", "reduce_simd", Some("for (uint step = size / 2")),
        (
            Remedy::PrivatizeHistogram,
            HISTOGRAM,
            "histogram_device",
            "histogram_threadgroup",
            Some("&bins[data[id]]"),
        ),
    ] {
        for machine in [Machine::Cpu, Machine::Gpu] {
            let found = advice(source, kernel, machine, None);
            let own: Vec<&Advice> = found.iter().filter(|advice| advice.remedy == remedy).collect();
            let expected = usize::from(remedy.machines().contains(&machine));
            assert_eq!(own.len(), expected, "{} on {machine:?}: {found:#?}", remedy.name());
            let line = at.map(|text| line_of(source, text));
            for advice in own {
                assert_eq!(advice.location.as_ref().map(|place| place.line), line, "{advice:?}");
                assert!(advice.gain > 1.1 && advice.gain < 100.0, "{advice:?}");
                println!("{} {} {:.2} {}", machine.name(), remedy.name(), advice.gain, advice.reason);
            }
            assert_eq!(found.len(), expected, "only what is wrong with it: {found:#?}");
            let twins = advice(source, twin, machine, None);
            assert!(twins.is_empty(), "{twin} on {machine:?}: {twins:#?}");
        }
    }
}

/// A stride that the kernel loads has the name of its place, also in memory that is not `constant`.
#[test]
fn a_reason_names_what_a_stride_depends_on() {
    for (space, name) in [("device const", "sizes[4]"), ("constant", "sizes[4]")] {
        let source = format!(
            "#include <metal_stdlib>\nusing namespace metal;\n\
             kernel void outer(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* out [[buffer(2)]], \
             {space} uint* sizes [[buffer(3)]], uint2 t [[thread_position_in_grid]]) {{\n\
             if (t.x >= sizes[0] || t.y >= sizes[1]) return;\nout[t.x * sizes[1] + t.y] = a[t.x] * b[t.y];\n}}"
        );
        let found = advice(&source, "outer", Machine::Gpu, None);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].remedy, Remedy::SwapAxes);
        let reason = format!("lanes along x are 4*{name} bytes apart, lanes along y 4 bytes");
        assert!(found[0].reason.starts_with(&reason), "{found:#?}");
    }
}

#[test]
fn small_threadgroups_are_advised_against() {
    for machine in [Machine::Cpu, Machine::Gpu] {
        for (threads, is_small) in [(8, true), (40, true), (256, false), (512, false), (128, false)] {
            let launch = Launch { grid: [1 << 20, 1, 1], group: [threads, 1, 1], ..Launch::default() };
            let found = advice(ADVICE, "scale", machine, Some(&launch));
            let expected = is_small && machine == Machine::Gpu;
            assert_eq!(
                found.iter().any(|a| a.remedy == Remedy::ResizeGroup),
                expected,
                "{threads} {machine:?} {found:?}"
            );
        }
        // Its threads have places in a tile.
        let launch = Launch { grid: [512, 512, 1], group: [8, 1, 1], ..Launch::default() };
        assert!(
            !advice(ADVICE, "tile", machine, Some(&launch)).iter().any(|a| a.remedy == Remedy::ResizeGroup)
        );
    }
}

/// Trees that end before the last element, whose rest something else sums; loads that other threads or a later iteration change.
#[test]
fn what_only_looks_alike_is_not_advised_on() {
    for (name, first, second) in [
        ("tree to 2", "step > 0", "step > 1"),
        ("tree to 32", "step > 0", "step > 32"),
        ("a scan", "partial[local] += partial[local + step]", "partial[local + step] += partial[local]"),
    ] {
        let source = REDUCE.replacen(first, second, 1);
        assert_ne!(source, REDUCE);
        let found = advice(&source, "reduce_tree", Machine::Gpu, None);
        // A scan combines two elements as a tree does, and stores the sum elsewhere.
        let expected = usize::from(name == "a scan");
        assert!(found.len() <= expected, "{name}: {found:#?}");
    }
    for (name, body) in [
        ("another place is written", "for (uint k = 0; k < n; ++k) { a[k] = a[0] + 1.0f; }"),
        (
            "a barrier",
            "for (uint k = 0; k < n; ++k) { out[i + k] = a[i]; threadgroup_barrier(mem_flags::mem_device); }",
        ),
        ("another address each time", "for (uint k = 0; k < n; ++k) { out[i + k] = a[i + k]; }"),
        ("not each time", "for (uint k = 0; k < n; ++k) { if (k % 3 == i) { out[k] = a[i] * 2.0f; } }"),
    ] {
        let source = format!(
            "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {{ {body} }}"
        );
        for machine in [Machine::Cpu, Machine::Gpu] {
            let found = advice(&source, "k", machine, None);
            let is_load = |one: &&Advice| matches!(one.remedy, Remedy::Hoist | Remedy::MoveToConstant);
            assert_eq!(found.iter().filter(is_load).count(), 0, "{name}: {found:#?}");
        }
    }
}
