//! The proof of the predictions: kernels are interpreted (`common/observed.rs`), and what was counted is compared.

mod common;

use common::observed::{Case, Counted, Memory, affine, floats, observed};
use elinvar_analysis::Effort;

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
