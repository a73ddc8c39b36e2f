//! `cargo xtask corpus --advice`: the advice of `elinvar analyze` for the kernels of the corpora, to be read for false advice, and their number by remedy and class of access.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use elinvar_analysis::{Advice, Machine, analyze};
use elinvar_code::{Program, user_cache};
use elinvar_msl::InductionVariables;

use super::sources::Corpus;
use super::{constants, in_parallel, run, sample};

/// What was looked at.
#[derive(Default)]
pub(super) struct Looked {
    kernels: usize,
    accesses: usize,
    /// Kernels that the analysis does not describe, with the reason.
    failures: Vec<String>,
    /// File, kernel, advice.
    advice: Vec<(String, String, Machine, Advice)>,
}

/// Adds the kernels of a corpus: of each file a sample.
pub(super) fn look(corpus: &Corpus, folder: &Path, looked: &mut Looked) -> anyhow::Result<()> {
    let (mut names, _) = corpus.files(folder, &mut BTreeSet::new())?;
    names.retain(|name| corpus.refusal(name).is_none());
    for of_file in in_parallel(&names, |name| file(corpus, folder, name)) {
        looked.kernels += of_file.kernels;
        looked.accesses += of_file.accesses;
        looked.failures.extend(of_file.failures);
        looked.advice.extend(of_file.advice);
    }
    Ok(())
}

fn file(corpus: &Corpus, folder: &Path, name: &str) -> Looked {
    let mut looked = Looked::default();
    if let Err(why) = add(corpus, folder, name, &mut looked) {
        looked.failures.push(format!("{name}: {why}"));
    }
    looked
}

fn add(corpus: &Corpus, folder: &Path, name: &str, looked: &mut Looked) -> Result<(), String> {
    let source = run::source(corpus, folder, name)?;
    let program = Program::new(user_cache(), &source, InductionVariables::AsWritten)
        .map_err(|error| error.to_string())?;
    let declared = program.declared();
    for index in sample(declared.kernels.len()) {
        let kernel = &declared.kernels[index].name;
        let analyzed = program.thread(kernel, &constants(&declared.constants)).and_then(|thread| {
            let analysis = analyze(program.module(&thread)?, &thread.origin.signature)?;
            let advice = [Machine::Cpu, Machine::Gpu]
                .map(|machine| Ok::<_, elinvar_driver::Error>((machine, analysis.advice(machine, None)?)));
            Ok((analysis.accesses.len(), advice.into_iter().collect::<Result<Vec<_>, _>>()?))
        });
        match analyzed {
            Ok((accesses, advice)) => {
                looked.kernels += 1;
                looked.accesses += accesses;
                for (machine, advice) in advice {
                    let one = |advice| (format!("{}/{name}", corpus.name), kernel.clone(), machine, advice);
                    looked.advice.extend(advice.into_iter().map(one));
                }
            }
            Err(error) => looked.failures.push(format!("{name}: `{kernel}`: {error}")),
        }
    }
    Ok(())
}

/// The advice, and its number by remedy.
pub(super) fn report(looked: &Looked) -> String {
    let mut text = String::new();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (file, kernel, machine, advice) in &looked.advice {
        *counts.entry((advice.remedy.name(), machine.name())).or_default() += 1;
        let line = advice.location.as_ref().map_or(0, |place| place.line);
        let place = advice.location.as_ref().map_or("", |place| place.file.as_str());
        let _ = writeln!(
            text,
            "{file} `{kernel}` {}: {} ({place}:{line}), gain {:.2}: {}",
            machine.name(),
            advice.remedy.name(),
            advice.gain,
            advice.reason
        );
    }
    for failure in &looked.failures {
        let _ = writeln!(text, "not analyzed: {}", failure.lines().next().unwrap_or_default());
    }
    let _ = writeln!(text, "{} kernels, {} accesses", looked.kernels, looked.accesses);
    for ((remedy, machine), count) in counts {
        let _ = writeln!(text, "{remedy} on a {machine}: {count}");
    }
    text
}
