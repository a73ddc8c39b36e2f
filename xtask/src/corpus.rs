//! `cargo xtask corpus`: published Metal sources, compiled as their hosts compile them.
//!
//! Each corpus is a crate of a pinned version that carries `.metal` files; `sources` has the list.
//! Every file is checked in full ([`Program::compile`]), and for a sample of its kernels the IR is made
//! ([`Program::specialize`]). The result is printed and written to `docs/compatibility.md`. No kernel runs
//! here: `ran` and `right` count only what has been run, so they are zero.

mod fetch;
mod report;
mod sources;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use elinvar_driver::{Constant, ConstantKey, Source};
use elinvar_msl::{Error, Program, Toolchain};

use sources::Corpus;

/// Kernels of a file whose IR is made.
const SAMPLE: usize = 4;

/// What became of one corpus.
struct Outcome {
    corpus: &'static Corpus,
    files: Vec<FileOutcome>,
}

/// What became of one file.
struct FileOutcome {
    name: String,
    kernels: usize,
    /// Kernels of the sample whose IR was made.
    made: usize,
    /// Kernels of the sample that are valid and beyond this compiler, with the reason.
    unsupported: Vec<String>,
    /// Why the file, or the IR of one of its kernels, does not compile.
    failure: Option<String>,
}

/// Compile the corpora of these names, or all of them. The page is written when all have been compiled.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let json = words.contains(&"--json");
    let names: Vec<&str> = words.iter().copied().filter(|word| !word.starts_with("--")).collect();
    if let Some(unknown) = words.iter().find(|word| word.starts_with("--") && **word != "--json") {
        bail!("unknown option {unknown}");
    }
    for name in &names {
        if !sources::CORPORA.iter().any(|corpus| corpus.name == *name) {
            let known: Vec<&str> = sources::CORPORA.iter().map(|corpus| corpus.name).collect();
            bail!("no corpus `{name}`; there are {}", known.join(", "));
        }
    }
    let toolchain = Toolchain::find()?;
    let mut outcomes = Vec::new();
    for corpus in sources::CORPORA {
        if names.is_empty() || names.contains(&corpus.name) {
            let folder = fetch::fetch(&root.join("corpora"), corpus)?;
            outcomes.push(compile(&toolchain, corpus, &folder)?);
        }
    }
    print!("{}", if json { report::json(&outcomes) } else { report::text(&outcomes) });
    if names.is_empty() {
        let page = root.join("docs/compatibility.md");
        std::fs::create_dir_all(root.join("docs"))?;
        std::fs::write(&page, report::page(&outcomes)).with_context(|| format!("{}", page.display()))?;
    }
    if outcomes.iter().flat_map(|outcome| &outcome.files).any(|file| file.failure.is_some()) {
        bail!("not every file compiles");
    }
    Ok(())
}

/// All files of a corpus, on as many threads as there are processors.
fn compile(toolchain: &Toolchain, corpus: &'static Corpus, folder: &Path) -> Result<Outcome> {
    let names = corpus.files(folder)?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(names.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = compile_file(toolchain, corpus, folder, name);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    let mut files = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Outcome { corpus, files })
}

fn compile_file(toolchain: &Toolchain, corpus: &Corpus, folder: &Path, name: &str) -> FileOutcome {
    let mut outcome =
        FileOutcome { name: name.to_owned(), kernels: 0, made: 0, unsupported: Vec::new(), failure: None };
    if let Err(why) = attempt(toolchain, corpus, folder, &mut outcome) {
        outcome.failure = Some(why);
    }
    outcome
}

fn attempt(
    toolchain: &Toolchain,
    corpus: &Corpus,
    folder: &Path,
    outcome: &mut FileOutcome,
) -> Result<(), String> {
    let path = folder.join(corpus.folder).join(&outcome.name);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut source = Source::named(outcome.name.as_str(), text);
    for dir in corpus.include_dirs {
        source = source.include_dir(folder.join(dir));
    }
    for (macro_name, value) in corpus.defines {
        source = source.define(*macro_name, Some(value));
    }
    let program = Program::compile(toolchain, &source).map_err(|error| error.to_string())?;
    outcome.kernels = program.kernels().len();
    let constants = ones(&program);
    for i in sample(outcome.kernels) {
        let kernel = &program.kernels()[i].name;
        match program.specialize(kernel, &constants) {
            Ok(_) => outcome.made += 1,
            Err(Error::Unsupported(why)) => outcome.unsupported.push(why),
            Err(error) => return Err(format!("kernel `{kernel}`: {error}")),
        }
    }
    Ok(())
}

/// Up to [`SAMPLE`] numbers below `count`, spread evenly from the first to the last.
fn sample(count: usize) -> Vec<usize> {
    let taken = count.min(SAMPLE);
    (0..taken).map(|i| if taken > 1 { i * (count - 1) / (taken - 1) } else { 0 }).collect()
}

/// Every function constant set to one: flags on, sizes at their smallest.
fn ones(program: &Program) -> Vec<Constant> {
    let one = |constant: &elinvar_driver::FunctionConstant| {
        let scalar = constant.ty.scalar()?;
        let lanes =
            if let elinvar_driver::ElementType::Vector { lanes, .. } = constant.ty { lanes } else { 1 };
        let bytes: &[u8] = match scalar {
            elinvar_driver::Scalar::F32 => &1_f32.to_le_bytes(),
            elinvar_driver::Scalar::F16 => &0x3c00_u16.to_le_bytes(),
            elinvar_driver::Scalar::BF16 => &0x3f80_u16.to_le_bytes(),
            _ => &1_u64.to_le_bytes()[..usize::try_from(scalar.size()).ok()?],
        };
        let bytes = bytes.repeat(lanes as usize);
        Some(Constant { key: ConstantKey::Index(constant.index), scalar, bytes })
    };
    program.constants().iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_first_and_the_last() {
        assert_eq!(sample(0), []);
        assert_eq!(sample(1), [0]);
        assert_eq!(sample(3), [0, 1, 2]);
        assert_eq!(sample(100), [0, 33, 66, 99]);
    }
}
