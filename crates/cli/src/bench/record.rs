//! The ratchet for speed: the best ratio to each baseline, recorded per processor in a JSON file, and the comparison of a run with it.
//!
//! The file maps a processor to rows (`NAME, THREADS threads`), and a row to the least ratio that was measured to each baseline. A row
//! fails if one of its ratios exceeds the recorded one by more than [`NOISE`] in every one of [`TRIES`] measurements.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Measured, Outcome, ratio};
use crate::failure::{Failure, Result};
use crate::report::{print_table, say};

/// Factor by which a ratio may exceed the recorded one: medians of two runs on a shared machine differ by up to a fifth.
pub const NOISE: f64 = 1.25;
/// Number of measurements of a row that is slower than recorded.
pub const TRIES: usize = 3;
/// Lines around the table in a Markdown file.
const TABLE: [&str; 2] = ["<!-- elinvar bench: table -->", "<!-- elinvar bench: end -->"];

/// A baseline with the measured ratio and the recorded one.
pub type Slower = (&'static str, f64, f64);

type Rows = BTreeMap<String, BTreeMap<String, f64>>;

/// Recorded ratios.
pub struct Record {
    path: PathBuf,
    processors: BTreeMap<String, Rows>,
}

impl Record {
    /// Reads a record; a missing file is an empty one.
    pub fn open(path: &Path) -> Result<Self> {
        let processors = match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| {
                Failure::usage(format!("{}: not a record of benchmarks: {e}", path.display()))
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(Failure::usage(format!("{}: {e}", path.display()))),
        };
        Ok(Self { path: path.into(), processors })
    }

    /// Measures a row again while a ratio has exceeded the recorded one in every measurement, at most [`TRIES`] times in total. Returns
    /// the last measurement, and the baselines whose ratios have.
    pub fn retry(
        &self,
        (name, threads): (&str, usize),
        mut measured: Measured,
        measure: impl Fn() -> Result<Measured>,
    ) -> Result<(Measured, Vec<Slower>)> {
        let mut slower = self.slower(name, threads, &measured);
        for _ in 1..TRIES {
            if slower.is_empty() {
                break;
            }
            measured = measure()?;
            let again = self.slower(name, threads, &measured);
            slower = again.into_iter().filter(|s| slower.iter().any(|known| known.0 == s.0)).collect();
        }
        Ok((measured, slower))
    }

    /// The baselines to which a measurement is slower than recorded.
    fn slower(&self, name: &str, threads: usize, measured: &Measured) -> Vec<Slower> {
        let Some(row) = self.row(name, threads) else { return Vec::new() };
        let slower = ratios(measured)
            .filter_map(|(baseline, ratio)| Some((baseline, ratio, *row.get(baseline)?)))
            .filter(|(_, ratio, best)| *ratio > best * NOISE);
        slower.collect()
    }

    /// Prints the rows that are slower than recorded, given with their ratios for each outcome, and the number of rows that are not
    /// recorded.
    ///
    /// # Errors
    /// A row is slower than recorded, or none is recorded.
    pub fn check(&self, outcomes: &[Outcome], slower: &[Vec<Slower>]) -> Result<()> {
        let slower: Vec<Vec<String>> = outcomes
            .iter()
            .zip(slower)
            .flat_map(|(o, slower)| slower.iter().map(move |s| (o, s)))
            .map(|(o, (baseline, ratio, best))| {
                let ratios = [format!("{ratio:.2}"), format!("{best:.2}"), format!("{:.2}", ratio / best)];
                [o.name.clone(), o.threads.to_string(), (*baseline).to_owned()]
                    .into_iter()
                    .chain(ratios)
                    .collect()
            })
            .collect();
        let unknown = outcomes.iter().filter(|o| self.row(&o.name, o.threads).is_none()).count();
        let processor = processor();
        say(format_args!(
            "\n{}: {} of {} rows compared with {}, {unknown} not recorded",
            processor,
            outcomes.len() - unknown,
            outcomes.len(),
            self.path.display()
        ))?;
        if unknown == outcomes.len() {
            return Err(Failure::usage(format!(
                "{} has none of these rows for `{processor}`: add them with --record",
                self.path.display()
            )));
        }
        if slower.is_empty() {
            return Ok(());
        }
        print_table(&["slower", "threads", "baseline", "ratio", "recorded", "factor"], &slower)?;
        say(format_args!(
            "\nslower: more than {NOISE} times the recorded ratio in each of {TRIES} measurements"
        ))?;
        Err(Failure::Reported(1))
    }

    /// Lowers the recorded ratios to those of a run, adds rows and baselines that are missing, and writes the file.
    pub fn update(mut self, outcomes: &[Outcome]) -> Result<()> {
        let rows = self.processors.entry(processor()).or_default();
        for outcome in outcomes {
            let row = rows.entry(key(&outcome.name, outcome.threads)).or_default();
            for (baseline, ratio) in ratios(&outcome.measured) {
                let rounded = (ratio * 1000.0).round() / 1000.0;
                let best = row.entry(baseline.into()).or_insert(rounded);
                *best = best.min(rounded);
            }
        }
        let text = serde_json::to_string_pretty(&self.processors).expect("maps of numbers") + "\n";
        std::fs::write(&self.path, text)
            .map_err(|e| Failure::Machine(format!("{}: {e}", self.path.display())))
    }

    fn row(&self, name: &str, threads: usize) -> Option<&BTreeMap<String, f64>> {
        self.processors.get(&processor())?.get(&key(name, threads))
    }
}

/// Replaces the table between the marks of a Markdown file by the ratios of a run with one thread.
pub fn write_table(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let table = table(outcomes.iter().filter(|o| o.threads == 1).map(|o| (o.name.as_str(), &o.measured)));
    replace(path, TABLE, &table)
}

/// Replaces the lines between two marks of a file.
pub fn replace(path: &Path, [begin, end]: [&str; 2], lines: &str) -> Result<()> {
    let failed = |what: &dyn std::fmt::Display| Failure::usage(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| failed(&e))?;
    let parts = text.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(failed(&format_args!("no lines `{begin}` and `{end}`")));
    };
    std::fs::write(path, format!("{head}{begin}\n{lines}{end}{tail}")).map_err(|e| failed(&e))
}

/// A Markdown table of kernels and their ratios to hand-written Rust, the best library of matrix products, and PoCL.
fn table<'m>(rows: impl Iterator<Item = (&'m str, &'m Measured)>) -> String {
    let mut text =
        "| kernel | hand-written Rust | best of gemm, OpenBLAS and oneDNN | pocl |\n|---|---|---|---|\n"
            .to_owned();
    for (name, measured) in rows {
        let worst = |baselines: &[&str]| {
            let found = ratios(measured).filter(|(name, _)| baselines.contains(name)).map(|(_, ratio)| ratio);
            found.reduce(f64::max).map_or_else(String::new, |ratio| match ratio {
                10.0.. => format!(" {ratio:.0}"),
                1.0.. => format!(" {ratio:.1}"),
                _ => format!(" {ratio:.2}"),
            })
        };
        let columns = [worst(&["native"]), worst(&["gemm", "openblas", "onednn"]), worst(&["pocl"])];
        text += &format!("| `{name}` |{} |{} |{} |\n", columns[0], columns[1], columns[2]);
    }
    text
}

fn ratios(measured: &Measured) -> impl Iterator<Item = (&'static str, f64)> {
    measured.baselines.iter().map(|(name, ns)| (*name, ratio(measured.median_ns, *ns)))
}

fn key(name: &str, threads: usize) -> String {
    format!("{name}, {threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// The processor: its name, and where Linux says them, family and model, since virtual machines shorten names.
pub fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    match (field("model name"), field("cpu family"), field("model")) {
        (Some(name), Some(family), Some(model)) => format!("{name}, family {family}, model {model}"),
        _ => format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ours: u64, native: u64) -> Measured {
        Measured { median_ns: ours, baselines: vec![("native", native)], ..Measured::default() }
    }

    fn record(best: f64) -> Record {
        let row = BTreeMap::from([("native".to_owned(), best)]);
        let rows = BTreeMap::from([("softmax, 1 thread".to_owned(), row)]);
        Record { path: PathBuf::new(), processors: BTreeMap::from([(processor(), rows)]) }
    }

    #[test]
    fn a_ratio_beyond_the_noise_is_slower() {
        assert_eq!(record(2.0).slower("softmax", 1, &measured(24, 10)), []);
        assert_eq!(record(2.0).slower("softmax", 1, &measured(26, 10)), [("native", 2.6, 2.0)]);
        assert_eq!(record(2.0).slower("softmax", 2, &measured(26, 10)), []);
    }

    #[test]
    fn one_good_measurement_is_enough() {
        let slower = |later: [u64; 2]| {
            let next = std::cell::Cell::new(0);
            let measure = || Ok(measured(later[next.replace(next.get() + 1)], 10));
            let (last, slower) = record(2.0).retry(("softmax", 1), measured(30, 10), measure).unwrap();
            (last.median_ns, slower.len(), next.get())
        };
        assert_eq!(slower([20, 40]), (20, 0, 1));
        assert_eq!(slower([40, 20]), (20, 0, 2));
        assert_eq!(slower([40, 30]), (30, 1, 2));
    }

    #[test]
    fn the_table_has_the_worse_of_two_libraries() {
        let baselines = vec![("native", 50), ("gemm", 100), ("openblas", 80), ("pocl", 1000)];
        let one = Measured { median_ns: 100, baselines, ..Measured::default() };
        let text = table(std::iter::once(("matmul", &one)));
        assert_eq!(text.lines().last(), Some("| `matmul` | 2.0 | 1.2 | 0.10 |"));
    }
}
