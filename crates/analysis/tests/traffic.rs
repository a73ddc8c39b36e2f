//! The proof of the predictions: kernels are interpreted (`common/observed.rs`), and what was counted is compared.

mod common;

use common::cache::{Accessed, Cache};
use common::observed::{Case, Counted, Memory, Number, affine, floats, observed, observed_by};
use elinvar_analysis::{Effort, Space};
use elinvar_reference::Object;

#[test]
fn affine_kernels_are_predicted_exactly() {
    for case in affine() {
        let (analysis, launch, counted) = observed(&case);
        let totals = analysis.launch(&launch, Effort::ALL).unwrap();
        let kernel = case.kernel;
        assert!(totals.is_complete && !totals.is_estimate, "{kernel}: {totals:?}");
        let mut seen = 0;
        for total in &totals.accesses {
            let access = &analysis.accesses[total.access];
            let predicted = Counted {
                executions: total.executions as u64,
                bytes: total.bytes as u64,
                simdgroups: total.simdgroup_executions as u64,
                sectors: total.sectors as u64,
                lines: total.lines as u64,
            };
            let site = access.instruction();
            assert_eq!(counted.get(&site), Some(&predicted), "{kernel}: {access:?}");
            seen += 1;
        }
        assert_eq!(seen, counted.len(), "{kernel}: each access that was executed was predicted");
        assert!(seen > 0);
    }
}

/// With little effort, bytes and transactions of large launches are within 10 %.
#[test]
fn samples_are_within_a_tenth() {
    for case in affine() {
        let (analysis, launch, counted) = observed(&case);
        let effort = Effort { threads: 2048, ..Effort::default() };
        let totals = analysis.launch(&launch, effort).unwrap();
        let sum = |of: fn(&Counted) -> u64| counted.values().map(of).sum::<u64>() as f64;
        let predicted =
            |of: fn(&elinvar_analysis::SiteTotals) -> f64| totals.accesses.iter().map(of).sum::<f64>();
        for (what, counted, predicted) in [
            ("bytes", sum(|c| c.bytes), predicted(|t| t.bytes)),
            ("sectors", sum(|c| c.sectors), predicted(|t| t.sectors)),
        ] {
            let ratio = predicted / counted;
            assert!((0.9..1.1).contains(&ratio), "{}: {what}: {predicted} of {counted}", case.kernel);
        }
    }
}

/// The bytes that memory moves are those that a cache moves which holds everything: of small launches, and of one of which most iterations are skipped.
#[test]
fn memory_is_predicted_within_a_fiftieth() {
    let bench = include_str!("../../cli/src/bench/kernels/matmul.metal");
    let (side, arguments) = (200, vec![floats(40_000), floats(40_000), floats(40_000), Number(200)]);
    let large =
        Case { source: bench, kernel: "matmul_naive", grid: [side, 8, 1], group: [32, 8, 1], arguments };
    for case in affine().into_iter().chain([large]) {
        let mut accesses = Vec::new();
        let (analysis, launch, _) = observed_by(&case, &mut |access| {
            if !matches!(access.object, Object::Threadgroup(_)) {
                accesses.push(Accessed::of(access));
            }
        });
        let moved = Cache::moved_by(&analysis, &accesses);
        let predicted = analysis.launch(&launch, Effort::default()).unwrap().footprint_bytes;
        let ratio = predicted / moved as f64;
        assert!((0.98..1.02).contains(&ratio), "{}: {predicted} of {moved}", case.kernel);
    }
}

/// The components of an aligned vector are one access of a GPU: those of `float4`, and of three of them, which are read as two and one.
#[test]
fn components_of_a_vector_move_together() {
    let nbody = affine().into_iter().find(|case| case.kernel == "nbody").unwrap();
    let (analysis, launch, _) = observed(&nbody);
    let totals = analysis.launch(&launch, Effort::ALL).unwrap();
    let of_arguments = totals.accesses.iter().filter(|t| analysis.accesses[t.access].space == Space::Device);
    let (simdgroups, bodies) = (2.0, 64.0);
    // Each component by itself: three and four vectors of 512 bytes of the thread's own, and 4 sectors for each other body.
    let alone: f64 = of_arguments.map(|total| total.sectors).sum();
    assert_eq!(alone, simdgroups * (7.0 * 16.0 + 4.0 * bodies));
    let numbers = simdgroups * 2.0;
    assert_eq!(totals.moved_bytes / 32.0 - numbers, simdgroups * (3.0 * 16.0 + bodies));
}

/// Addresses from memory: the executions are exact, transactions are at most one for each lane, and it says that it is an estimate.
#[test]
fn addresses_from_memory_are_bounded() {
    let words = |count: usize, below: u32| Memory { bytes: 4 * count, below };
    let cases = [
        Case {
            source: include_str!("../../cli/src/bench/kernels/gather.metal"),
            kernel: "gather",
            grid: [500, 1, 1],
            group: [64, 1, 1],
            arguments: vec![words(500, 900), floats(900), floats(500)],
        },
        Case {
            source: include_str!("../../cli/src/bench/kernels/histogram.metal"),
            kernel: "histogram_device",
            grid: [512, 1, 1],
            group: [256, 1, 1],
            arguments: vec![words(128, u32::MAX), words(256, 1)],
        },
    ];
    for case in cases {
        let (analysis, launch, counted) = observed(&case);
        let totals = analysis.launch(&launch, Effort::ALL).unwrap();
        assert!(totals.is_estimate, "{}", case.kernel);
        for total in &totals.accesses {
            let counted = &counted[&analysis.accesses[total.access].instruction()];
            assert_eq!((total.executions as u64, total.bytes as u64), (counted.executions, counted.bytes));
            let sectors = total.sectors as u64;
            match total.unknown > 0.0 {
                true => assert!(sectors >= counted.sectors && sectors <= counted.executions),
                false => assert_eq!(sectors, counted.sectors),
            }
        }
    }
}
