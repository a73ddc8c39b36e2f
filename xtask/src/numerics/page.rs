//! docs/numerics.md and the JSON form of the measurements.

use std::fmt::Write as _;

use elinvar::MathMode;

use super::measure::Row;

/// Text of the page besides the tables.
const TEXT: &str = include_str!("page.md");

/// The whole page.
pub fn whole(rows: &[Row], samples: usize) -> String {
    TEXT.replace("{{SAMPLES}}", &samples.to_string()).replace("{{TABLES}}\n", &tables(rows))
}

/// One table per format and mode.
pub fn tables(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        if last != Some((row.format, row.math)) {
            last = Some((row.format, row.math));
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(
                text,
                "{gap}### {}, {}\n\n| function | largest error, ulp | at | bound | within | samples |\n\
                 |---|---|---|---|---|---|",
                row.format,
                mode(row.math)
            );
        }
        let _ = writeln!(
            text,
            "| `{}` | {:.3} | {} | {} | {} | {} |",
            row.function,
            row.error,
            place(row),
            row.bound.text,
            if row.within() { "yes" } else { "**no**" },
            row.samples
        );
    }
    text
}

fn mode(math: MathMode) -> &'static str {
    match math {
        MathMode::Safe => "safe math",
        MathMode::Relaxed => "relaxed math",
        MathMode::Fast => "fast and relaxed math",
    }
}

/// The arguments, with as many digits as identify them.
fn place(row: &Row) -> String {
    let shown = row.at.iter().map(|v| format!("{:e}", *v as f32));
    shown.collect::<Vec<_>>().join(", ")
}

/// `{"rows":[…]}`. Numbers that JSON does not support are strings.
pub fn json(rows: &[Row]) -> String {
    let number = |v: f64| if v.is_finite() { format!("{v:e}") } else { format!("\"{v}\"") };
    let entries = rows.iter().map(|row| {
        let at: Vec<String> = row.at.iter().map(|v| number(*v)).collect();
        format!(
            "{{\"function\":\"{}\",\"type\":\"{}\",\"math\":\"{}\",\"samples\":{},\"max_ulp\":{},\"at\":[{}],\
             \"bound\":\"{}\",\"bound_ulp\":{},\"pass\":{}}}",
            row.function,
            row.format,
            format!("{:?}", row.math).to_lowercase(),
            row.samples,
            number(row.error),
            at.join(","),
            row.bound.text,
            number(row.bound.units),
            row.within()
        )
    });
    format!("{{\"rows\":[{}]}}", entries.collect::<Vec<_>>().join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::super::functions::Bound;
    use super::*;

    fn row(error: f64) -> Row {
        let bound = Bound { text: "4 ulp", units: 4.0 };
        Row {
            function: "sin",
            format: "float",
            math: MathMode::Safe,
            samples: 9,
            error,
            at: vec![0.5],
            bound,
        }
    }

    #[test]
    fn a_breach_is_seen() {
        assert!(tables(&[row(1.25)]).contains("| `sin` | 1.250 | 5e-1 | 4 ulp | yes | 9 |"));
        assert!(tables(&[row(5.0)]).contains("**no**"));
    }

    #[test]
    fn json_has_no_infinities() {
        let text = json(&[row(f64::INFINITY)]);
        assert!(text.contains("\"max_ulp\":\"inf\"") && text.contains("\"pass\":false"), "{text}");
    }

    #[test]
    fn the_page_takes_the_numbers() {
        let page = whole(&[row(1.0)], 123);
        assert!(page.contains("123") && page.contains("### float, safe math") && !page.contains("{{"));
    }
}
