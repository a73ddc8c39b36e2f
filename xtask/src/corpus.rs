//! `cargo xtask corpus`: compiles published Metal sources as their hosts do, and runs some of their kernels.
//!
//! Each corpus is a package of a pinned version with Metal sources; `sources` lists them, `fetch` downloads them. Every file is checked
//! completely ([`Program::compile`]), and IR is generated for a sample of its kernels ([`Program::specialize`]). The kernels of the
//! reference table (`kernels`) run on the CPU device through the public API, and every output element is compared. `report` prints the
//! results and writes `docs/compatibility.md`. A file that does not compile, or a kernel with a wrong result, makes the command
//! fail.
//!
//! On an NVIDIA GPU, a machine without a compiler runs a sample: `corpus --pack=FILE --sample=200` packs the kernels where there is one, and
//! there `ELINVAR_BUNDLE=FILE corpus --device=cuda --sample=200` runs them, in a folder with `corpora/`. So does `--tune`, which measures
//! threadgroup sizes: it is given to both.

mod advice;
mod cost;
mod fetch;
mod kernels;
mod report;
mod run;
mod scaled;
mod sources;
mod tune;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use elinvar::{Device, DeviceKind};
use elinvar_conformance::packing::{Packed, Packing};
use elinvar_driver::{Constant, ConstantKey, Driver as _};
use elinvar_msl::{Error, Program, Toolchain};
use elinvar_ptx::Target;

use kernels::Case;
use run::{Fate, Runner};
use sources::{Corpus, Refusal};

/// Number of kernels per file for which IR is generated.
const SAMPLE: usize = 4;

/// Result of one corpus.
struct Outcome {
    corpus: &'static Corpus,
    files: Vec<FileOutcome>,
    /// Number of its files that are copies of files before them.
    copies: usize,
    /// Results of the kernels of the reference table.
    runs: Vec<(Case, Fate)>,
}

/// Result of one file.
struct FileOutcome {
    name: String,
    kernels: usize,
    /// Kernels of the sample with IR.
    made: usize,
    /// Kernels of the sample that are valid but unsupported, with the reason.
    unsupported: Vec<String>,
    /// Why it does not compile, if that is known; then it has no kernels.
    refusal: Option<Refusal>,
    /// Compilation error of the file or of a kernel of the sample.
    failure: Option<String>,
}

/// Command line options.
#[derive(Default)]
struct Request<'a> {
    json: bool,
    /// Only run the kernels of the table.
    run_only: bool,
    /// Run them with bounds checks.
    checked: bool,
    /// Only measure code size and compilation time.
    cost: bool,
    /// Only list the advice of the analysis.
    advice: bool,
    /// Of all kernels instead of a sample.
    all: bool,
    /// Of the kernels with this in their name, as with `tune`.
    kernels: Option<&'a str>,
    /// Measure threadgroup sizes.
    tune: bool,
    /// Run only so many of them, evenly spread over the corpora.
    sample: Option<usize>,
    /// Run them on an NVIDIA GPU.
    cuda: bool,
    /// Also compile them to PTX, for a bundle in this file.
    pack: Option<&'a str>,
    /// The corpora; all if empty.
    names: Vec<&'a str>,
}

fn request<'a>(words: &[&'a str]) -> Result<Request<'a>> {
    let mut request = Request::default();
    for word in words {
        match *word {
            "--json" => request.json = true,
            "--run" => request.run_only = true,
            "--cost" => request.cost = true,
            "--advice" => request.advice = true,
            "--tune" => request.tune = true,
            "--all" => request.all = true,
            option if option.starts_with("--kernels=") => request.kernels = option.strip_prefix("--kernels="),
            "--checked" => (request.run_only, request.checked) = (true, true),
            "--device=cpu" => {}
            "--device=cuda" => (request.run_only, request.cuda) = (true, true),
            option if option.starts_with("--pack=") => {
                (request.run_only, request.pack) = (true, option.strip_prefix("--pack="));
            }
            option if option.starts_with("--sample=") => {
                let count = option["--sample=".len()..].parse().context("--sample=N")?;
                (request.run_only, request.sample) = (true, Some(count));
            }
            name if sources::CORPORA.iter().any(|corpus| corpus.name == name) => request.names.push(name),
            option if option.starts_with("--") => bail!("unknown option {option}"),
            name => {
                let known: Vec<&str> = sources::CORPORA.iter().map(|corpus| corpus.name).collect();
                bail!("no corpus `{name}`; there are {}", known.join(", "));
            }
        }
    }
    Ok(request)
}

/// Compiles and runs the selected corpora. The page is written only if all are selected.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let request = request(words)?;
    if request.cost {
        return cost(root, &request);
    }
    if request.advice {
        return list_advice(root, &request);
    }
    if request.tune {
        return tune(root, &request);
    }
    let (device, packed) = device(&request)?;
    let runner = Runner { device, checked: request.checked };
    // Running needs no compiler if the kernels are in a bundle.
    let toolchain = if request.run_only { None } else { Some(Toolchain::find()?) };
    let mut table = table(&request);
    let (mut outcomes, mut seen) = (Vec::new(), BTreeSet::new());
    for corpus in sources::CORPORA {
        if request.names.is_empty() || request.names.contains(&corpus.name) {
            let folder = fetch::fetch(&root.join("corpora"), corpus)?;
            let (names, copies) = corpus.files(&folder, &mut seen)?;
            let files = toolchain.as_ref().map_or_else(Vec::new, |toolchain| {
                in_parallel(&names, |name| compile_file(toolchain, corpus, &folder, name))
            });
            let cases = table.extract_if(.., |case| case.corpus == corpus.name).collect();
            let runs = launch(&runner, corpus, &folder, cases);
            outcomes.push(Outcome { corpus, files, copies, runs });
        }
    }
    print!("{}", if request.json { report::json(&outcomes) } else { report::text(&outcomes) });
    if request.names.is_empty() && !request.run_only {
        let page = root.join("docs/compatibility.md");
        std::fs::create_dir_all(root.join("docs"))?;
        std::fs::write(&page, report::page(&outcomes)).with_context(|| format!("{}", page.display()))?;
    }
    store(&request, packed)?;
    match outcomes.iter().all(Outcome::is_good) {
        true => Ok(()),
        false => bail!("not every file compiles, or a kernel is wrong"),
    }
}

/// Cases of the selected corpora.
fn table(request: &Request) -> Vec<Case> {
    let mut table = kernels::all();
    table.retain(|case| request.names.is_empty() || request.names.contains(&case.corpus));
    if request.tune {
        tune::keep_first(&mut table);
        table.retain(|case| request.kernels.is_none_or(|part| case.kernel.contains(part)));
    }
    if let Some(count) = request.sample {
        thin(&mut table, count);
    }
    table
}

/// Measures threadgroup sizes, one kernel after another; with `--pack` it only compiles what a measurement elsewhere needs.
fn tune(root: &Path, request: &Request) -> Result<()> {
    let (device, packed) = device(request)?;
    let runner = Runner { device, checked: false };
    let mut results = Vec::new();
    for cases in table(request).chunk_by(|a, b| (a.corpus, a.file) == (b.corpus, b.file)) {
        let corpus = sources::CORPORA.iter().find(|corpus| corpus.name == cases[0].corpus);
        let corpus = corpus.with_context(|| cases[0].corpus)?;
        let folder = fetch::fetch(&root.join("corpora"), corpus)?;
        let source = run::source(corpus, &folder, cases[0].file).map_err(anyhow::Error::msg)?;
        let tuned = tune::file(&runner, &source, cases, request.pack.is_some());
        results
            .extend(cases.iter().zip(tuned).map(|(case, tuned)| (case.corpus, case.kernel.clone(), tuned)));
    }
    let device = &runner.device;
    print!("{}", if request.json { tune::json(device, &results) } else { tune::text(device, &results) });
    store(request, packed)?;
    match tune::is_good(&results) {
        true => Ok(()),
        false => bail!("a kernel is wrong in threadgroups of some size"),
    }
}

/// Writes the bundle that `--pack` asks for.
fn store(request: &Request, packed: Option<Pack>) -> Result<()> {
    if let (Some(file), Some(packed)) = (request.pack, packed) {
        let packed = packed.lock();
        for (kernel, error) in &packed.refused {
            println!("not packed: {kernel}: {error}");
        }
        std::fs::write(file, packed.bundle.to_bytes()).with_context(|| file.to_owned())?;
        println!("{} kernels in {file}", packed.kernels.len());
    }
    Ok(())
}

/// What a device has packed so far.
type Pack = Arc<parking_lot::Mutex<Packed>>;

/// The device that runs the kernels. With `--pack` it is the CPU, and compiles them to PTX as well.
fn device(request: &Request) -> Result<(Device, Option<Pack>)> {
    if request.pack.is_some() {
        let cpu =
            elinvar_driver_cpu::driver().devices()?.into_iter().next().context("there is no CPU device")?;
        let packing = Packing::new(cpu, elinvar_code::user_cache(), Target::default());
        let packed = packing.packed();
        return Ok((Device::new(Arc::new(packing)), Some(packed)));
    }
    let device = match request.cuda {
        false => Device::cpu()?,
        true => {
            let gpu = Device::all()?.into_iter().find(|device| device.kind() == DeviceKind::Cuda);
            gpu.context("no NVIDIA GPU was found")?
        }
    };
    Ok((device, None))
}

/// Keeps `count` cases, evenly spaced from the first to the last.
fn thin(cases: &mut Vec<Case>, count: usize) {
    let kept: BTreeSet<usize> = evenly(cases.len(), count).collect();
    let mut number = 0..;
    cases.retain(|_| number.next().is_some_and(|number| kept.contains(&number)));
}

/// Lists the advice for kernels of the selected corpora.
fn list_advice(root: &Path, request: &Request) -> Result<()> {
    let mut looked = advice::Looked::default();
    for corpus in sources::CORPORA {
        if request.names.is_empty() || request.names.contains(&corpus.name) {
            let folder = fetch::fetch(&root.join("corpora"), corpus)?;
            advice::look(corpus, &folder, &mut looked)?;
        }
    }
    print!("{}", advice::report(&looked));
    Ok(())
}

/// Measures the cost of compiling the selected corpora.
fn cost(root: &Path, request: &Request) -> Result<()> {
    let (mut costs, mut failures) = (Vec::new(), Vec::new());
    for corpus in sources::CORPORA {
        if request.names.is_empty() || request.names.contains(&corpus.name) {
            let folder = fetch::fetch(&root.join("corpora"), corpus)?;
            let (more, failed) = cost::measure(corpus, &folder, request.all, request.kernels)?;
            costs.extend(more);
            failures.extend(failed);
        }
    }
    let (text, is_good) = cost::report(&mut costs, &failures);
    print!("{text}");
    match is_good {
        true => Ok(()),
        false => bail!("the budget for code is exceeded, or a kernel is not compiled"),
    }
}

/// Maps items in parallel, on as many threads as there are processors. Results are in order.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { break };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut results = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// All cases of a corpus; cases of the same file share its compilation.
fn launch(runner: &Runner, corpus: &Corpus, folder: &Path, cases: Vec<Case>) -> Vec<(Case, Fate)> {
    let files: Vec<&[Case]> = cases.chunk_by(|a, b| a.file == b.file).collect();
    let fates = in_parallel(&files, |cases| match run::source(corpus, folder, cases[0].file) {
        Ok(source) => runner.file(&source, cases),
        Err(why) => cases.iter().map(|_| Fate::Wrong(why.clone())).collect(),
    });
    cases.into_iter().zip(fates.into_iter().flatten()).collect()
}

fn compile_file(toolchain: &Toolchain, corpus: &Corpus, folder: &Path, name: &str) -> FileOutcome {
    let mut outcome = FileOutcome {
        name: name.to_owned(),
        kernels: 0,
        made: 0,
        unsupported: Vec::new(),
        refusal: corpus.refusal(name),
        failure: None,
    };
    let result = attempt(toolchain, corpus, folder, &mut outcome);
    outcome.failure = match (result, outcome.refusal) {
        (result, None) => result.err(),
        (Err(_), Some(_)) => None,
        (Ok(()), Some(_)) => Some("it compiles, but is listed as a file that does not".into()),
    };
    outcome
}

fn attempt(
    toolchain: &Toolchain,
    corpus: &Corpus,
    folder: &Path,
    outcome: &mut FileOutcome,
) -> Result<(), String> {
    let source = run::source(corpus, folder, &outcome.name)?;
    let program = Program::compile(toolchain, &source).map_err(|error| error.to_string())?;
    outcome.kernels = program.kernels().len();
    let constants = constants(program.constants());
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

/// Up to [`SAMPLE`] indices below `count`, evenly spaced from the first to the last.
fn sample(count: usize) -> Vec<usize> {
    evenly(count, SAMPLE).collect()
}

/// Up to `taken` indices below `count`, evenly spaced from the first to the last.
fn evenly(count: usize, taken: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(taken);
    (0..taken).map(move |i| if taken > 1 { i * (count - 1) / (taken - 1) } else { 0 })
}

/// Sets every function constant to one: flags on, sizes minimal.
fn constants(declared: &[elinvar_driver::FunctionConstant]) -> Vec<Constant> {
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
    declared.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_first_and_the_last() {
        assert!(sample(0).is_empty());
        assert_eq!(sample(1), [0]);
        assert_eq!(sample(3), [0, 1, 2]);
        assert_eq!(sample(100), [0, 33, 66, 99]);
        let mut cases = kernels::all();
        let (first, last) = (cases[0].kernel.clone(), cases[cases.len() - 1].kernel.clone());
        thin(&mut cases, 200);
        assert_eq!(cases.len(), 200);
        assert_eq!((&cases[0].kernel, &cases[199].kernel), (&first, &last));
    }
}
