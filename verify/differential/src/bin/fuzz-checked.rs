//! Launches random checked kernels with arguments between guard pages.
//!
//! `fuzz-checked [--count N] [--seed S] [--launches L] [--out DIR]`: N kernels from seed S on, with L launches of each. Kernels
//! run in a child process, so that a crash is counted and the next kernels still run. Findings are printed with their seed, and
//! the kernel is written to DIR. The exit code is 1 if there are findings.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use elinvar_differential::{Launched, Launches, Wild};

/// Kernels of one source.
const BATCH: u64 = 16;
/// How a child is told that it is one.
const CHILD: &str = "--in-this-process";

struct Options {
    count: u64,
    seed: u64,
    launches: u64,
    folder: Option<PathBuf>,
    child: bool,
}

fn main() -> ExitCode {
    elinvar_spmd::verify_each(true);
    match options().and_then(|options| if options.child { child(&options) } else { parent(&options) }) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let mut options = Options { count: 100, seed: 1, launches: 20, folder: None, child: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == CHILD {
            options.child = true;
            continue;
        }
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{word} takes a number"));
        match word.as_str() {
            "--count" => options.count = number()?,
            "--seed" => options.seed = number()?,
            "--launches" => options.launches = number()?,
            "--out" => options.folder = Some(value.into()),
            _ => bail!("usage: fuzz-checked [--count N] [--seed S] [--launches L] [--out DIR]"),
        }
    }
    Ok(options)
}

/// Every third batch is optimized: that takes clang longest.
fn kernel(seed: u64) -> Wild {
    Wild::random(seed, (seed / BATCH).is_multiple_of(3))
}

/// Launch the kernels of one batch here, and say so line by line: each launch before it begins.
fn child(options: &Options) -> Result<u64> {
    let seeds = options.seed..options.seed + options.count;
    let mut launches = Launches::of(seeds.clone().map(kernel).collect())?;
    let mut out = std::io::stdout();
    for (at, seed) in seeds.enumerate() {
        writeln!(out, "kernel {seed}")?;
        if let Some(why) = launches.refused(at) {
            writeln!(out, "refused {}", why.replace('\n', " "))?;
            continue;
        }
        for number in 0..options.launches {
            writeln!(out, "launch {number}")?;
            match launches.launch(at, number)? {
                Launched::Same => writeln!(out, "same")?,
                Launched::Ended => writeln!(out, "ended")?,
                Launched::Fault => writeln!(out, "fault")?,
                Launched::Broken(why) => writeln!(out, "broken {why}")?,
            }
        }
    }
    Ok(0)
}

#[derive(Default)]
struct Counts {
    kernels: u64,
    refused: u64,
    launches: u64,
    same: u64,
    faults: u64,
    found: u64,
}

fn parent(options: &Options) -> Result<u64> {
    let last = options.seed.checked_add(options.count).context("seeds beyond 64 bits")?;
    let (mut counts, mut next) = (Counts::default(), options.seed);
    while next < last {
        let end = (next - next % BATCH).saturating_add(BATCH).min(last);
        next = batch(next, end, options, &mut counts)?;
        let Counts { kernels, refused, launches, same, faults, found } = counts;
        eprintln!(
            "seeds below {next}: {kernels} kernels, {refused} refused, {launches} launches ({same} compared, {faults} faults), {found} found"
        );
    }
    let Counts { kernels, refused, launches, same, faults, found } = counts;
    println!(
        "{kernels} kernels from seed {}, {refused} refused; {launches} launches, {same} the same as in the interpreter, {faults} with a fault; \
         {found} broken",
        options.seed
    );
    Ok(found)
}

/// Run the kernels of seeds in a child. The seed to go on with: behind one that ended the child.
fn batch(first: u64, end: u64, options: &Options, counts: &mut Counts) -> Result<u64> {
    let mut command = Command::new(std::env::current_exe()?);
    let number = |number: u64| number.to_string();
    command.args([CHILD, "--seed", &number(first), "--count", &number(end - first)]);
    command.args(["--launches", &number(options.launches)]);
    // A crash of compiled code has no core.
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let (mut seed, mut launch) = (None, String::new());
    for line in lines {
        let line = line?;
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "kernel" => {
                seed = Some(rest.parse::<u64>()?);
                counts.kernels += 1;
            }
            "refused" => {
                counts.refused += 1;
                println!("seed {}: {rest}", seed.unwrap_or(first));
            }
            "launch" => {
                launch = rest.to_owned();
                counts.launches += 1;
            }
            "same" => counts.same += 1,
            "fault" => counts.faults += 1,
            "broken" => {
                counts.found += 1;
                report(
                    seed.unwrap_or(first),
                    &format!("launch {launch}: {rest}"),
                    options.folder.as_deref(),
                )?;
            }
            _ => {}
        }
    }
    let status = child.wait()?;
    if status.success() {
        return Ok(end);
    }
    counts.found += 1;
    let Some(seed) = seed else {
        if end - first == 1 {
            report(first, &format!("the compiler ended with {status}"), options.folder.as_deref())?;
            return Ok(end);
        }
        // One of them does not compile: each by itself.
        counts.found -= 1;
        for seed in first..end {
            batch(seed, seed + 1, options, counts)?;
        }
        return Ok(end);
    };
    report(seed, &format!("launch {launch}: the process ended with {status}"), options.folder.as_deref())?;
    Ok(seed + 1)
}

fn report(seed: u64, what: &str, folder: Option<&Path>) -> Result<()> {
    println!("seed {seed}: {what}");
    if let Some(folder) = folder {
        let path = folder.join(format!("checked-{seed}.metal"));
        let text = format!("// {what}\n{}", kernel(seed).source());
        std::fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
