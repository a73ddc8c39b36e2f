//! What is said about the corpora: on the terminal, as JSON, and as a page of the documentation.

use std::fmt::Write as _;

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
}

/// `ran` and `right` are of kernels that were run and compared; this command runs none.
pub(super) fn json(outcomes: &[Outcome]) -> String {
    let corpora: Vec<String> = outcomes
        .iter()
        .map(|o| {
            format!(
                "{{\"name\":\"{}\",\"files\":{},\"compiled\":{},\"kernels\":{},\"ran\":0,\"right\":0}}",
                o.corpus.name,
                o.files.len(),
                o.compiled(),
                o.kernels()
            )
        })
        .collect();
    format!("{{\"corpora\":[{}]}}\n", corpora.join(","))
}

pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for o in outcomes {
        let (compiled, files, kernels) = (o.compiled(), o.files.len(), o.kernels());
        let unsupported = o.unsupported().count();
        let _ = writeln!(
            text,
            "{} {}: {compiled} of {files} files, {kernels} kernels, IR of {} made, {unsupported} unsupported",
            o.corpus.name,
            o.corpus.version,
            o.made()
        );
        for (file, why) in o.failures() {
            let _ = writeln!(text, "  {file}:\n    {}", why.replace('\n', "\n    "));
        }
        for (_, why) in o.unsupported() {
            let _ = writeln!(text, "  unsupported: {why}");
        }
    }
    text
}

pub(super) fn page(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "# Compatibility\n\n\
         Written by `cargo xtask corpus`; change the command, not this page.\n\n\
         Published Metal sources, each file compiled as its host compiles it. *Files* are checked in full: \
         every kernel's signature is known and clang accepts the whole text. *IR* is code made for up to \
         {SAMPLE} kernels of each file, with every function constant set to one. *Ran* and *right* count kernels \
         that were run and whose results were compared.\n\n\
         | corpus | version | files | compiled | kernels | IR made | ran | right |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    for o in outcomes {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} of {} | 0 | 0 |",
            o.corpus.name,
            o.corpus.version,
            o.files.len(),
            o.compiled(),
            o.kernels(),
            o.made(),
            o.made() + o.unsupported().count(),
        );
    }
    section(&mut page, "Files that do not compile", outcomes, |o| Box::new(o.failures()));
    page.push_str("\n## Files that are parts of others\n\nTheir host includes them and does not compile them alone.\n\n");
    for o in outcomes.iter().filter(|o| !o.corpus.fragments.is_empty()) {
        let _ = writeln!(page, "- {} `{}`", o.corpus.name, o.corpus.fragments.join("`, `"));
    }
    section(&mut page, "Kernels of the sample that are not supported", outcomes, |o| {
        Box::new(o.unsupported())
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{FileOutcome, sources::CORPORA};

    #[test]
    fn counts() {
        let file = |name: &str, kernels, failure: Option<&str>| FileOutcome {
            name: name.into(),
            kernels,
            made: kernels.min(2),
            unsupported: Vec::new(),
            failure: failure.map(str::to_owned),
        };
        let files = vec![file("a.metal", 3, None), file("b.metal", 0, Some("b.metal:1:1: error: x\n1 | y"))];
        let outcomes = [Outcome { corpus: &CORPORA[0], files }];
        assert_eq!(
            json(&outcomes),
            "{\"corpora\":[{\"name\":\"candle-metal-kernels\",\"files\":2,\"compiled\":1,\"kernels\":3,\"ran\":0,\"right\":0}]}\n"
        );
        let page = page(&outcomes);
        assert!(page.contains("| 2 | 1 | 3 | 2 of 2 | 0 | 0 |"), "{page}");
        assert!(page.contains("- candle-metal-kernels `b.metal`: b.metal:1:1: error: x\n"), "{page}");
    }
}
