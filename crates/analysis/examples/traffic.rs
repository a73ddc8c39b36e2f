//! The table of predicted and observed traffic in `docs/analysis.md`: `cargo run -p elinvar-analysis --example traffic -- docs/analysis.md`.
//!
//! Predicted are the totals of a launch with the default effort. Observed are the accesses of the reference interpreter: transactions of 32 bytes by
//! simdgroups, each access by itself, and the bytes that a cache of 1 MiB with sectors of 32 bytes, fully associative with LRU replacement, loads and
//! writes back.

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use common::cache::{Accessed, Cache};
use common::observed::{Case, Site, affine, observed_by};
use elinvar_analysis::{Access, Class, Effort, Space};
use elinvar_reference::Object;

const BEGIN: &str = "<!-- traffic: written by cargo run -p elinvar-analysis --example traffic -->\n";
const END: &str = "<!-- traffic: end -->\n";
const SECTOR: u64 = 32;

/// Whether the addresses of neighboring threads along x are related as the class says.
fn is_right(access: &Access, pairs: &[i64]) -> bool {
    let all = |is: &dyn Fn(i64) -> bool| pairs.iter().all(|step| is(*step));
    match access.class {
        Class::Broadcast => all(&|step| step == 0),
        Class::Contiguous => all(&|step| step.unsigned_abs() == access.bytes),
        Class::Strided => all(&|step| Some(step) == pairs.first().copied() && step != 0),
        Class::Computed | Class::Gather => true,
    }
}

struct Row {
    kernel: &'static str,
    accesses: usize,
    right: usize,
    predicted: [f64; 2],
    observed: [f64; 2],
}

fn row(case: &Case) -> Row {
    let mut accesses = Vec::new();
    // By instruction, threadgroup and execution of the thread, the offset of each thread.
    type Place = (Site, [u32; 3], usize);
    let mut times: HashMap<(Site, [u32; 3], usize), usize> = HashMap::new();
    let mut offsets: HashMap<Place, BTreeMap<usize, (String, i64)>> = HashMap::new();
    let (analysis, launch, counted) = observed_by(case, &mut |access| {
        let site = (access.site.0, access.site.1, access.which);
        let time = times.entry((site, access.group, access.thread)).or_default();
        offsets
            .entry((site, access.group, *time))
            .or_default()
            .insert(access.thread, (format!("{:?}", access.object), access.offset));
        *time += 1;
        if !matches!(access.object, Object::Threadgroup(_)) {
            accesses.push(Accessed::of(access));
        }
    });
    let moved = Cache::moved_by(&analysis, &accesses);
    let mut pairs: HashMap<Site, Vec<i64>> = HashMap::new();
    for ((site, ..), threads) in &offsets {
        for ((a, (first, from)), (b, (second, to))) in threads.iter().zip(threads.iter().skip(1)) {
            let is_next = *b == a + 1 && b % case.group[0] as usize != 0 && b % 32 != 0 && first == second;
            if is_next {
                pairs.entry(*site).or_default().push(to - from);
            }
        }
    }
    let totals = analysis.launch(&launch, Effort::default()).expect("totals");
    let executed: Vec<&Access> =
        totals.accesses.iter().map(|total| &analysis.accesses[total.access]).collect();
    let right = executed
        .iter()
        .filter(|access| pairs.get(&access.instruction()).is_none_or(|pairs| is_right(access, pairs)));
    let is_device = |site: &Site| {
        analysis
            .accesses
            .iter()
            .any(|access| access.instruction() == *site && access.space != Space::Threadgroup)
    };
    let sectors: u64 =
        counted.iter().filter(|(site, _)| is_device(site)).map(|(_, counted)| counted.sectors).sum();
    let of_device =
        totals.accesses.iter().filter(|t| analysis.accesses[t.access].space != Space::Threadgroup);
    let transactions: f64 = of_device.map(|total| total.sectors).sum();
    Row {
        kernel: case.kernel,
        accesses: executed.len(),
        right: right.count(),
        predicted: [transactions * SECTOR as f64, totals.footprint_bytes],
        observed: [(sectors * 32) as f64, moved as f64],
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| kernel | accesses, of them with the right class | bytes of transactions: predicted | observed | ratio | bytes of memory: predicted | simulated cache | ratio |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let ratio = |at: usize| row.predicted[at] / row.observed[at].max(1.0);
        let _ = writeln!(
            text,
            "| `{}` | {}, {} | {:.0} | {:.0} | {:.3} | {:.0} | {:.0} | {:.3} |",
            row.kernel,
            row.accesses,
            row.right,
            row.predicted[0],
            row.observed[0],
            ratio(0),
            row.predicted[1],
            row.observed[1],
            ratio(1)
        );
    }
    text
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rows: Vec<Row> = affine().iter().map(row).collect();
    let table = table(&rows);
    print!("{table}");
    if let Some(path) = std::env::args().nth(1) {
        let page = std::fs::read_to_string(&path)?;
        let (before, rest) = page.split_once(BEGIN).ok_or("the page has no place for the table")?;
        let (_, after) = rest.split_once(END).ok_or("the page has no end of the table")?;
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}"))?;
    }
    Ok(())
}
