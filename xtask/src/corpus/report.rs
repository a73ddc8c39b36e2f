//! What is said about the corpora: on the terminal, as JSON, and as a page of the documentation.
//!
//! The page depends on the corpora and on this project alone: no times, no paths of a machine.

use std::fmt::Write as _;

use super::kernels::Case;
use super::run::Fate;
use super::{Outcome, SAMPLE};

impl Outcome {
    fn compiled(&self) -> usize {
        self.files.iter().filter(|file| file.failure.is_none()).count()
    }

    fn kernels(&self) -> usize {
        self.files.iter().map(|file| file.kernels).sum()
    }

    fn made(&self) -> usize {
        self.files.iter().map(|file| file.made).sum()
    }

    fn unsupported(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .flat_map(|file| file.unsupported.iter().map(|why| (file.name.as_str(), why.as_str())))
    }

    fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|file| Some((file.name.as_str(), file.failure.as_deref()?)))
    }

    /// Kernels that ran, right or wrong.
    fn ran(&self) -> usize {
        self.runs.iter().filter(|(_, fate)| !matches!(fate, Fate::Unsupported(_))).count()
    }

    fn right(&self) -> usize {
        self.runs.iter().filter(|(_, fate)| matches!(fate, Fate::Right)).count()
    }

    /// Whether every file compiles and every kernel that ran is right.
    pub(super) fn is_good(&self) -> bool {
        self.failures().next().is_none() && self.ran() == self.right()
    }
}

pub(super) fn json(outcomes: &[Outcome]) -> String {
    let corpora: Vec<String> = outcomes
        .iter()
        .map(|o| {
            format!(
                "{{\"name\":\"{}\",\"files\":{},\"compiled\":{},\"kernels\":{},\"ran\":{},\"right\":{}}}",
                o.corpus.name,
                o.files.len(),
                o.compiled(),
                o.kernels(),
                o.ran(),
                o.right()
            )
        })
        .collect();
    format!("{{\"corpora\":[{}]}}\n", corpora.join(","))
}

pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for o in outcomes {
        let _ = writeln!(
            text,
            "{} {}: {} of {} files compile, {} kernels, IR of {} made; {} of {} kernels that ran are right, \
             {} unsupported",
            o.corpus.name,
            o.corpus.version,
            o.compiled(),
            o.files.len(),
            o.kernels(),
            o.made(),
            o.right(),
            o.ran(),
            o.runs.len() - o.ran(),
        );
        for (file, why) in o.failures() {
            let _ = writeln!(text, "  {file}:\n    {}", why.replace('\n', "\n    "));
        }
        for (_, why) in o.unsupported() {
            let _ = writeln!(text, "  unsupported: {why}");
        }
        for (case, fate) in &o.runs {
            match fate {
                Fate::Right => {}
                Fate::Wrong(why) => {
                    let _ = writeln!(text, "  {} `{}` is wrong: {why}", case.file, case.kernel);
                }
                Fate::Unsupported(why) => {
                    let _ = writeln!(text, "  {} `{}` is unsupported: {why}", case.file, case.kernel);
                }
            }
        }
    }
    text
}

pub(super) fn page(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "# Compatibility\n\n\
         Written by `cargo xtask corpus`; change the command, not this page.\n\n\
         Published Metal sources, each file compiled as its host compiles it.\n\n\
         - *compiled*: files that are accepted in full, out of *files*: every kernel's signature is known and \
         clang accepts the whole text.\n\
         - *kernels*: the kernels that the files define, instantiations of templates included.\n\
         - *IR made*: kernels that code was made for, out of a sample of up to {SAMPLE} of each file, with every \
         function constant set to one.\n\
         - *ran*: kernels that ran on the CPU, with the arguments below. *right*: those of them that left \
         exactly what a reference says that they leave, every element compared.\n\
         - *unsupported*: kernels that the CPU driver does not run yet, with the same check passed in the \
         reference interpreter.\n\n\
         | corpus | version | files | compiled | kernels | IR made | ran | right | unsupported |\n\
         |---|---|---|---|---|---|---|---|---|\n"
    );
    for o in outcomes {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} of {} | {} | {} | {} |",
            o.corpus.name,
            o.corpus.version,
            o.files.len(),
            o.compiled(),
            o.kernels(),
            o.made(),
            o.made() + o.unsupported().count(),
            o.ran(),
            o.right(),
            o.runs.len() - o.ran(),
        );
    }
    let total = |count: fn(&Outcome) -> usize| outcomes.iter().map(count).sum::<usize>();
    let _ = writeln!(
        page,
        "| all | | {} | {} | {} | {} of {} | {} | {} | {} |",
        total(|o| o.files.len()),
        total(Outcome::compiled),
        total(Outcome::kernels),
        total(Outcome::made),
        total(|o| o.made() + o.unsupported().count()),
        total(Outcome::ran),
        total(Outcome::right),
        total(|o| o.runs.len() - o.ran()),
    );
    section(&mut page, "Files that do not compile", outcomes, |o| Box::new(o.failures()));
    page.push_str("\n## Files that are parts of others\n\nTheir host includes them and does not compile them alone.\n\n");
    for o in outcomes.iter().filter(|o| !o.corpus.fragments.is_empty()) {
        let _ = writeln!(page, "- {} `{}`", o.corpus.name, o.corpus.fragments.join("`, `"));
    }
    section(&mut page, "Kernels of the sample that are not supported", outcomes, |o| {
        Box::new(o.unsupported())
    });
    runs(&mut page, outcomes);
    page
}

type Findings<'a> = Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

fn section(page: &mut String, title: &str, outcomes: &[Outcome], of: fn(&Outcome) -> Findings<'_>) {
    let _ = write!(page, "\n## {title}\n\n");
    let mut any = false;
    for o in outcomes {
        for (file, why) in of(o) {
            any = true;
            let _ =
                writeln!(page, "- {} `{file}`: {}", o.corpus.name, why.lines().next().unwrap_or_default());
        }
    }
    if !any {
        page.push_str("None.\n");
    }
}

/// The kernels of the reference table, one line each.
fn runs(page: &mut String, outcomes: &[Outcome]) {
    page.push_str(
        "\n## Kernels that were run\n\n\
         *compared* counts the elements of all outputs; the elements behind each output, and those that the \
         kernel must leave alone, are compared too. *tolerance* is what a result may be off from the reference, \
         which is computed in f64 or in integers from the kernel's definition. u is half a unit in the last \
         place of the output's type.\n",
    );
    for o in outcomes.iter().filter(|o| !o.runs.is_empty()) {
        let _ = write!(
            page,
            "\n### {}\n\n| file | kernel | compared | tolerance | result |\n|---|---|---|---|---|\n",
            o.corpus.name
        );
        for (case, fate) in &o.runs {
            let _ = writeln!(page, "{}", row(case, fate));
        }
    }
}

fn row(case: &Case, fate: &Fate) -> String {
    let result = match fate {
        Fate::Right => "right".into(),
        Fate::Wrong(why) => format!("**wrong**: {}", why.lines().next().unwrap_or_default()),
        Fate::Unsupported(why) => format!("unsupported: {}", why.lines().next().unwrap_or_default()),
    };
    let tolerance = case.tolerance.replace('|', "\\|");
    format!("| `{}` | `{}` | {} | {tolerance} | {result} |", case.file, case.kernel, case.elements())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{FileOutcome, sources::CORPORA};

    fn outcome() -> Outcome {
        let file = |name: &str, kernels, failure: Option<&str>| FileOutcome {
            name: name.into(),
            kernels,
            made: kernels.min(2),
            unsupported: Vec::new(),
            failure: failure.map(str::to_owned),
        };
        let case = |kernel: &str| {
            let mut case = Case::new(CORPORA[0].name, "a.metal", kernel).full_output([1_u8, 2, 3]);
            case.tolerance = "|x| ulp";
            case
        };
        Outcome {
            corpus: &CORPORA[0],
            files: vec![file("a.metal", 3, None), file("b.metal", 0, Some("b.metal:1:1: error: x\n1 | y"))],
            runs: vec![
                (case("k1"), Fate::Right),
                (case("k2"), Fate::Wrong("element 1 is 7\nmore".into())),
                (case("k3"), Fate::Unsupported("a.metal:3: simd_sum".into())),
            ],
        }
    }

    #[test]
    fn counts() {
        let outcomes = [outcome()];
        assert_eq!(
            json(&outcomes),
            "{\"corpora\":[{\"name\":\"candle-metal-kernels\",\"files\":2,\"compiled\":1,\"kernels\":3,\"ran\":2,\"right\":1}]}\n"
        );
        let page = page(&outcomes);
        assert!(page.contains("| 2 | 1 | 3 | 2 of 2 | 2 | 1 | 1 |"), "{page}");
        assert!(page.contains("- candle-metal-kernels `b.metal`: b.metal:1:1: error: x\n"), "{page}");
        assert!(page.contains("| `a.metal` | `k1` | 3 | \\|x\\| ulp | right |\n"), "{page}");
        assert!(page.contains("| **wrong**: element 1 is 7 |\n"), "{page}");
        assert!(page.contains("| unsupported: a.metal:3: simd_sum |\n"), "{page}");
        let text = text(&outcomes);
        assert!(text.contains("1 of 2 kernels that ran are right, 1 unsupported"), "{text}");
        assert!(text.contains("a.metal `k2` is wrong: element 1 is 7"), "{text}");
    }

    #[test]
    fn failures_and_wrong_results_are_bad() {
        let good = || {
            let mut good = outcome();
            good.files.truncate(1);
            good.runs.remove(1);
            good
        };
        assert!(good().is_good());
        let mut wrong = good();
        wrong.runs[0].1 = Fate::Wrong("x".into());
        assert!(!wrong.is_good());
        let mut uncompiled = good();
        uncompiled.files[0].failure = Some("x".into());
        assert!(!uncompiled.is_good());
    }
}
