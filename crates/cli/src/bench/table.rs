//! Results as text: a table with a column of ratios for each baseline, and one of stages.

use super::{Measured, Outcome, absences, ratio};
use crate::failure::Result;
use crate::report::{print_table, say, time_text};

pub(super) fn print(outcomes: &[Outcome]) -> Result<()> {
    for name in in_order(outcomes.iter().map(|outcome| outcome.device.name())) {
        let device = outcomes.iter().map(|outcome| &outcome.device).find(|device| device.name() == name);
        say(format_args!("{}: {name}", device.map_or("", |device| device.kind().name())))?;
    }
    say("")?;
    let baselines =
        in_order(outcomes.iter().flat_map(|o| o.measured.baselines.iter().map(|(name, _)| *name)));
    let head = ["name", "threads", "median", "rate"].into_iter().map(str::to_owned);
    let header: Vec<String> =
        head.chain(baselines.iter().map(|name| format!("/ {name}"))).chain(["size".to_owned()]).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = outcomes.iter().map(|outcome| row(outcome, &baselines)).collect();
    print_table(&header, &rows)?;
    if !baselines.is_empty() {
        say("\n/ baseline: our time / its time, with its time; below 1 is faster than it")?;
    }
    for (name, why) in absences(outcomes) {
        say(format_args!("{name} is not measured: {why}"))?;
    }
    for Outcome { name, threads, measured, .. } in outcomes {
        for (baseline, why) in &measured.missing {
            say(format_args!("{name}, {threads} threads: no {baseline}: {why}"))?;
        }
    }
    print_stages(outcomes)
}

fn row(Outcome { name, threads, measured, .. }: &Outcome, baselines: &[&str]) -> Vec<String> {
    let against = |baseline: &&str| {
        let found = measured.baselines.iter().find(|(name, _)| name == baseline);
        found.map_or_else(String::new, |(_, ns)| {
            format!("{:.2} ({})", ratio(measured.median_ns, *ns), time_text(*ns))
        })
    };
    let first = [name.clone(), threads.to_string(), time_text(measured.median_ns), rate(measured)];
    let ratios = baselines.iter().map(against);
    first.into_iter().chain(ratios).chain([measured.size.clone()]).collect()
}

/// The relevant unit: operations if there are more of them than bytes, otherwise bytes.
fn rate(measured: &Measured) -> String {
    let ns = measured.median_ns.max(1) as f64;
    match (measured.flops, measured.bytes) {
        (Some(flops), bytes) if flops > bytes.unwrap_or(0) => format!("{:.2} GFLOP/s", flops as f64 / ns),
        (_, Some(bytes)) => format!("{:.2} GB/s", bytes as f64 / ns),
        _ => String::new(),
    }
}

/// Unique names, in order of first appearance.
fn in_order<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut once = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

/// One table of stages per suite.
fn print_stages(outcomes: &[Outcome]) -> Result<()> {
    for suite in in_order(outcomes.iter().map(|o| o.suite)) {
        let with = outcomes.iter().filter(|o| o.suite == suite && !o.measured.stages.is_empty());
        let with: Vec<&Outcome> = with.collect();
        let stages =
            in_order(with.iter().flat_map(|o| o.measured.stages.iter().map(|(name, _)| name.as_str())));
        if stages.is_empty() {
            continue;
        }
        let time = |outcome: &Outcome, name: &str| {
            let stage = outcome.measured.stages.iter().find(|(known, _)| known == name);
            stage.map_or_else(String::new, |(_, ns)| time_text(*ns))
        };
        let row = |outcome: &&Outcome| {
            let times = stages.iter().map(|name| time(outcome, name));
            std::iter::once(outcome.name.clone()).chain(times).collect()
        };
        let rows: Vec<Vec<String>> = with.iter().map(row).collect();
        let columns: Vec<&str> = std::iter::once("stages").chain(stages).collect();
        say("")?;
        print_table(&columns, &rows)?;
    }
    Ok(())
}
