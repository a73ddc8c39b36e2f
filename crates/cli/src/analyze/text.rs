//! The analysis of a kernel as text.

use elinvar_analysis::{
    Access, Advice, Analysis, Branch, LaunchTotals, Location, LoopFacts, Machine, Operations, Roofline, Trips,
};

use serde::Serialize;

use crate::failure::Result;
use crate::report::{print_table, say, time_text};

pub fn print(analysis: &Analysis, totals: Option<&LaunchTotals>, roofline: Option<&Roofline>) -> Result<()> {
    let Analysis { kernel, file, line, dimensions, .. } = analysis;
    say(format_args!("kernel {kernel}  ({file}:{line}, {dimensions}-D)"))?;
    say(format_args!(
        "  {}; threadgroup memory {} bytes; barriers {}; live registers about {}",
        operations(&analysis.operations),
        analysis.threadgroup_bytes,
        analysis.barriers.len(),
        analysis.live_registers
    ))?;
    if !analysis.accesses.is_empty() {
        let header =
            ["  access", "", "class", "lane stride", "bytes", "align", "sectors", "used", "banks", "offset"];
        print_table(&header, &rows(analysis))?;
    }
    for (index, LoopFacts { location, trips, operations: inside, .. }) in analysis.loops.iter().enumerate() {
        let trips = match trips {
            Trips::Constant(count) => format!("{count} iterations"),
            Trips::Uniform(formula) => format!("{formula} iterations"),
            Trips::Varying(formula) => format!("{formula} iterations, by thread"),
            Trips::Unknown => "iterations unknown".to_owned(),
        };
        say(format_args!("  loop {index} at {}: {trips}; {}", place(location.as_ref()), operations(inside)))?;
    }
    for Branch { location, by_data, operations: inside } in &analysis.divergent_branches {
        let by = if *by_data { "loaded data" } else { "position" };
        say(format_args!(
            "  branch at {}: lanes differ by {by}; {}",
            place(location.as_ref()),
            operations(inside)
        ))?;
    }
    for name in &analysis.calls {
        say(format_args!("  not analyzed: the call of {name}"))?;
    }
    for finding in analysis.findings() {
        let rule = finding.rule.name();
        say(format_args!("  {rule} at {}: {}", place(finding.location.as_ref()), finding.message))?;
    }
    totals.map_or(Ok(()), print_totals)?;
    roofline.map_or(Ok(()), print_roofline)
}

/// Advice, with the gain that the model of the machine expects.
pub fn print_advice(machine: Machine, advice: &[Advice]) -> Result<()> {
    advice.iter().try_for_each(|Advice { remedy, location, reason, gain, .. }| {
        let at = location.as_ref().map_or_else(|| "the launch".to_owned(), ToString::to_string);
        say(format_args!(
            "  advice for a {}: {} at {at}: {reason}; expected gain {gain:.2}",
            machine.name(),
            remedy.name()
        ))
    })
}

fn place(location: Option<&Location>) -> String {
    location.map_or_else(|| "an unknown place".to_owned(), ToString::to_string)
}

/// The rows of accesses. Those that differ only in their offsets, as in an unrolled loop, are one row with the first one's offset.
fn rows(analysis: &Analysis) -> Vec<Vec<String>> {
    let mut rows: Vec<(usize, Vec<String>, String)> = Vec::new();
    for access in &analysis.accesses {
        let (cells, offset) = row(access, analysis);
        match rows.iter_mut().find(|(_, known, _)| *known == cells) {
            Some((count, ..)) => *count += 1,
            None => rows.push((1, cells, offset)),
        }
    }
    let finish = |(count, mut cells, offset): (usize, Vec<String>, String)| {
        cells.push(if count > 1 { format!("{offset} and {} more", count - 1) } else { offset });
        cells
    };
    rows.into_iter().map(finish).collect()
}

/// The cells of an access but its offset, and the offset.
fn row(access: &Access, analysis: &Analysis) -> (Vec<String>, String) {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let place = match &access.location {
        Some(location) if location.file == analysis.file => format!("  line {}", location.line),
        other => format!("  {}", place(other.as_ref())),
    };
    let cells = vec![
        place,
        format!("{} {}", word(&access.kind), or_none(access.object.clone())),
        word(&access.class),
        or_none(access.lane_stride.clone()),
        access.bytes.to_string(),
        access.align.to_string(),
        or_none(access.sectors.map(|sectors| sectors.to_string())),
        or_none(access.efficiency.map(|share| format!("{:.0} %", share * 100.0))),
        or_none(access.bank_conflicts.map(|factor| format!("{factor:.1}"))),
    ];
    (cells, or_none(access.offset.clone()))
}

/// The word of an enumeration's value, as in JSON.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

fn operations(operations: &Operations) -> String {
    let parts = [
        (operations.f32, "f32"),
        (operations.f16, "f16"),
        (operations.bf16, "bf16"),
        (operations.functions, "functions"),
        (operations.integer, "integer"),
        (operations.simdgroup, "simdgroup"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0.0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    match parts.is_empty() {
        true => "no operations".to_owned(),
        false => format!("operations {}", parts.join(", ")),
    }
}

/// A number of bytes or operations.
fn amount(value: f64) -> String {
    match value {
        _ if value < 1e4 => format!("{value:.0} "),
        _ if value < 1e6 => format!("{:.1} k", value / 1e3),
        _ if value < 1e9 => format!("{:.1} M", value / 1e6),
        _ => format!("{:.2} G", value / 1e9),
    }
}

fn print_totals(totals: &LaunchTotals) -> Result<()> {
    let size = |[x, y, z]: [u32; 3]| format!("{x}×{y}×{z}");
    let certainty = match (totals.is_complete, totals.is_estimate) {
        (_, true) => "an estimate: it depends on the contents of memory",
        (true, false) => "exact",
        (false, false) => "from a sample of threads and iterations",
    };
    say(format_args!(
        "  launch of {} threads in threadgroups of {}: {certainty}",
        size(totals.grid),
        size(totals.group)
    ))?;
    say(format_args!(
        "    {}B used, {}B moved in sectors, {}B of memory; {}FLOP, {}integer operations",
        amount(totals.used_bytes),
        amount(totals.moved_bytes),
        amount(totals.footprint_bytes),
        amount(totals.operations.flops()),
        amount(totals.operations.integer)
    ))?;
    say(format_args!("    idle lanes {:.1} %", totals.idle_lanes * 100.0))
}

fn print_roofline(roofline: &Roofline) -> Result<()> {
    let Roofline { intensity, ridge, attainable, seconds, bound } = roofline;
    say(format_args!(
        "    intensity {intensity:.3} FLOP/B, ridge {ridge:.3}; at most {:.1} GFLOP/s; at least {}, bound by {}",
        attainable / 1e9,
        time_text((seconds * 1e9).round() as u64),
        word(bound)
    ))
}
