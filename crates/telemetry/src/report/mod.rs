//! A report of what devices did: one HTML file that works offline, with a timeline, tables of kernels and failures, memory, and advice.
//!
//! `data` computes what the page shows from the lines of a profile, `advice` what could be better. The page's sources are `report.html`,
//! `report.css` and `report.js`; the data are JSON within the page.

mod advice;
mod data;

use std::fmt;

use elinvar::{Metrics, ProfileLine, Timeline};

/// The report of devices of this process, as an HTML page.
pub fn report(devices: &[(Timeline, Metrics)]) -> String {
    let lines = devices.iter().enumerate();
    let lines: Vec<ProfileLine> =
        lines.flat_map(|(at, (timeline, metrics))| ProfileLine::of(at, timeline, metrics)).collect();
    page(&lines)
}

/// The report of lines of a profile, as an HTML page. With [`ProfileEvent::Roofs`](elinvar::ProfileEvent::Roofs) of a device it has the
/// roofline.
pub fn report_of(lines: &[ProfileLine]) -> String {
    page(lines)
}

/// The report of a file that a program wrote because of `ELINVAR_PROFILE`, as an HTML page. The last line may be incomplete.
///
/// # Errors
/// If another line is not one of a profile.
pub fn report_of_lines(text: &str) -> Result<String, NotAProfile> {
    profile_lines(text).map(|lines| page(&lines))
}

/// The lines of a file that a program wrote because of `ELINVAR_PROFILE`. The last line may be incomplete.
///
/// # Errors
/// If another line is not one of a profile.
pub fn profile_lines(text: &str) -> Result<Vec<ProfileLine>, NotAProfile> {
    let mut lines = Vec::new();
    let count = text.lines().count();
    for (line, at) in text.lines().zip(1..) {
        match serde_json::from_str(line) {
            Ok(read) => lines.push(read),
            Err(_) if at == count && !text.ends_with('\n') => {}
            Err(error) => return Err(NotAProfile { line: at, reason: error.to_string() }),
        }
    }
    Ok(lines)
}

/// A line is not one of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAProfile {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for NotAProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is not one of a profile: {}", self.line, self.reason)
    }
}

impl std::error::Error for NotAProfile {}

fn page(lines: &[ProfileLine]) -> String {
    let data = data::of(lines);
    let [before, rest] = halves(include_str!("report.html"), "/*STYLE*/");
    let [middle, rest] = halves(rest, "/*DATA*/");
    let [between, after] = halves(rest, "/*SCRIPT*/");
    let (style, script) = (include_str!("report.css"), include_str!("report.js"));
    [before, style, middle, &within_script(&data.to_string()), between, script, after].concat()
}

fn halves<'t>(text: &'t str, mark: &str) -> [&'t str; 2] {
    text.split_once(mark).map_or([text, ""], |(before, after)| [before, after])
}

/// JSON that can be the text of a `script` element: no tag or comment begins in it. `<` occurs in strings only.
fn within_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_within_its_script() {
        let hostile = "</script><!--<script>\u{2028}\u{2029}\"\\";
        let text = within_script(&serde_json::Value::from(hostile).to_string());
        assert!(!text.contains(['<', '\u{2028}', '\u{2029}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).expect("JSON"), hostile);
    }

    #[test]
    fn an_incomplete_last_line_is_left_out_and_others_are_errors() {
        let line = r#"{"process":1,"device":0,"memory":{"at_ns":5,"live_bytes":6,"idle_bytes":7}}"#;
        assert!(report_of_lines(&format!("{line}\n{}", &line[..20])).is_ok());
        let wrong = report_of_lines(&format!("{line}\nno\n{line}\n")).expect_err("wrong");
        assert_eq!(wrong.line, 2);
        assert!(report_of_lines("").is_ok());
    }
}
