//! Output: tables, times, JSON lines.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use elinvar::Consumption;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// Print a line to standard output. A closed pipe, as in `elinvar devices | head -1`, is not an error.
pub fn say(text: impl Display) -> Result<()> {
    put(visible(&text.to_string()))
}

/// The text without control characters; kernel names come from sources.
pub fn visible(text: &str) -> String {
    let show = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            c.escape_unicode().to_string()
        }
        c if c.is_control() => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.chars().map(show).collect()
}

/// Print a text as it is to standard output, as by [`say`] without the last line break.
pub fn say_text(text: &str) -> Result<()> {
    put(text.trim_end_matches('\n').to_owned())
}

fn put(text: String) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Machine(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Print a value as one line of JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    put(serde_json::to_string(value).map_err(|error| Failure::Machine(error.to_string()))?)
}

/// Print rows in aligned columns.
pub fn print_table(header: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let width =
        |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    for line in lines() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        say(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// A time in a suitable unit.
pub fn time_text(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns} ns"),
        _ if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// An energy with its error and the mean power.
pub fn energy_text(used: &Consumption) -> String {
    let unit = |joules: f64| match joules {
        _ if joules < 1e-3 => format!("{:.3} µJ", joules * 1e6),
        _ if joules < 1.0 => format!("{:.3} mJ", joules * 1e3),
        _ => format!("{joules:.3} J"),
    };
    format!("{} ± {:.1} %, {:.1} W", unit(used.joules), used.relative_error() * 100.0, used.watts())
}

/// An energy, or the reason why it is not measured.
pub fn energy_json(used: Result<&Consumption, &str>) -> Value {
    match used {
        Ok(used) => json!({
            "joules": used.joules,
            "error_joules": used.error,
            "watts": used.watts(),
            "duration_ns": used.duration.as_nanos() as u64,
            "update_interval_ns": used.update_interval.as_nanos() as u64,
        }),
        Err(reason) => json!({ "unsupported": reason }),
    }
}

/// The median; 0 if there are no values.
pub fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() {
        0 => 0,
        n if n % 2 == 1 => values[middle],
        _ => values[middle - 1].midpoint(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_control_a_terminal_is_shown() {
        assert_eq!(visible("a\n\tb\u{1b}[0m\u{7f}é\u{202e}"), "a\n\tb\\u{1b}[0m\\u{7f}é\\u{202e}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0);
        assert_eq!(median(vec![9, 1, 5]), 5);
        assert_eq!(median(vec![4, 1, 9, 6]), 5);
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(time_text(999), "999 ns");
        assert_eq!(time_text(1_500), "1.50 µs");
        assert_eq!(time_text(2_000_000), "2.00 ms");
        assert_eq!(time_text(3_250_000_000), "3.25 s");
    }
}
