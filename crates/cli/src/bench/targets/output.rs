//! The rows as a table, as JSON, and as the part of a Markdown page between two marks.

use std::path::Path;

use elinvar::DeviceKind;
use serde_json::{Value, json};

use super::{Goal, Row, Unit};
use crate::bench::record::replace;
use crate::bench::{Context, machine_name};
use crate::failure::Result;
use crate::report::{print_json, print_table, say};

const HEAD: [&str; 5] = ["figure", "target", "measured", "range", ""];

pub(super) fn print(context: &Context, rows: &[Row], json: bool) -> Result<()> {
    let device = &context.device;
    if json {
        let results: Vec<Value> = rows.iter().map(as_json).collect();
        return print_json(&json!({
            "device": device.name(), "kind": device.kind().name(), "threads": context.threads, "results": results,
        }));
    }
    say(format_args!("{}: {}\n", device.kind().name(), device.name()))?;
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row).to_vec()).collect();
    print_table(&HEAD, &cells)?;
    say("")?;
    rows.iter().try_for_each(|row| say(format_args!("{}: {}", row.target.name, row.target.how)))?;
    let with = |met| rows.iter().filter(|row| row.is_met() == Some(met)).count();
    let absent: Vec<&Row> = rows.iter().filter(|row| row.values.is_err()).collect();
    say(format_args!("\n{} met, {} missed, {} unsupported", with(true), with(false), absent.len()))
}

fn as_json(row: &Row) -> Value {
    let target = row.target;
    let mut json = json!({ "name": target.name, "unit": target.unit.name(), "how": target.how });
    match target.goal {
        Goal::AtMost(most) => json["at_most"] = most.into(),
        Goal::AtLeast(least) => json["at_least"] = least.into(),
        Goal::None => {}
    }
    match (&row.values, row.figures()) {
        (Err(why), _) => json["unsupported"] = why.as_str().into(),
        (Ok(values), Some([_, median, _])) => {
            json["median"] = median.into();
            json["values"] = values.clone().into();
            json["met"] = row.is_met().into();
        }
        (Ok(_), None) => {}
    }
    json
}

fn cells(row: &Row) -> [String; 5] {
    let unit = row.target.unit;
    let goal = match row.target.goal {
        Goal::AtMost(most) => format!("<= {}", with_unit(most, unit)),
        Goal::AtLeast(least) => format!(">= {}", with_unit(least, unit)),
        Goal::None => String::new(),
    };
    let (measured, range) = match (&row.values, row.figures()) {
        (Ok(_), Some([least, median, most])) => {
            (with_unit(median, unit), format!("{} to {}", number(least), with_unit(most, unit)))
        }
        _ => (String::new(), String::new()),
    };
    let verdict = match (&row.values, row.is_met()) {
        (Err(why), _) => format!("unsupported: {why}"),
        (Ok(_), Some(true)) => "met".into(),
        (Ok(_), Some(false)) => "missed".into(),
        (Ok(_), None) => String::new(),
    };
    [row.target.name.into(), goal, measured, range, verdict]
}

/// Three significant digits.
fn number(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn with_unit(value: f64, unit: Unit) -> String {
    format!("{} {}", number(value), unit.name())
}

/// Replaces the table of this device between its marks.
pub(super) fn write_table(path: &Path, context: &Context, rows: &[Row]) -> Result<()> {
    let device = &context.device;
    let kind = device.kind().name();
    let workers = match device.kind() {
        DeviceKind::Cpu => format!(", {} threads", context.threads),
        _ => String::new(),
    };
    let mut text = format!(
        "{}{workers}.\n\n| figure | target | measured | range | | how |\n|---|---|---|---|---|---|\n",
        machine_name(device)
    );
    for row in rows {
        let [name, goal, measured, range, verdict] = cells(row);
        let cells = [goal, measured, range, verdict]
            .map(|cell| if cell.is_empty() { cell } else { format!(" {cell}") });
        text += &format!("| `{name}` |{} | {} |\n", cells.join(" |"), row.target.how);
    }
    let marks =
        [format!("<!-- elinvar bench targets: {kind} -->"), "<!-- elinvar bench targets: end -->".to_owned()];
    replace(path, [&marks[0], &marks[1]], &text)
}

#[cfg(test)]
mod tests {
    use super::super::TARGETS;
    use super::*;

    fn row(name: &str, values: std::result::Result<Vec<f64>, String>) -> Row {
        let target = TARGETS.iter().find(|target| target.name == name);
        Row { target: target.expect("a target"), values }
    }

    #[test]
    fn a_row_has_target_median_range_and_verdict() {
        let met = row("streams_4", Ok(vec![3.0, 2.25, 3.9876]));
        assert_eq!(cells(&met), ["streams_4", ">= 2 x", "3 x", "2.25 to 3.99 x", "met"]);
        let missed = row("matmul_1024", Ok(vec![12.34]));
        assert_eq!(cells(&missed), ["matmul_1024", "<= 0.5 ms", "12.3 ms", "12.3 to 12.3 ms", "missed"]);
        let absent = row("streams_4", Err("one unit".into()));
        assert_eq!(cells(&absent), ["streams_4", ">= 2 x", "", "", "unsupported: one unit"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [1234.5, 99.95, 20.0, 0.05, 0.0, -3.456].map(number),
            ["1234", "100", "20", "0.05", "0", "-3.46"]
        );
    }

    #[test]
    fn every_target_is_explained_once() {
        for target in &TARGETS {
            assert!(!target.how.is_empty());
            assert_eq!(
                TARGETS.iter().filter(|other| other.name == target.name).count(),
                1,
                "{}",
                target.name
            );
        }
    }
}
