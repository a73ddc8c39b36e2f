//! `corpus --tune`: the sizes that `Kernel::tune` finds for kernels of the corpora, against all sizes and against 256 threads.
//!
//! Of kernels that differ in the names of types only, the first is taken ([`base`]). Measured are those that run in threadgroups of any size: by their
//! signature and code they do not see their threadgroup ([`fixed`]). Each has to be right in threadgroups of 256 threads, and what it writes the same in all
//! sizes. Cases are small: where it is shown to be possible, the launch is a larger one (`scaled`).

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use elinvar::{Device, DeviceKind, Error, KernelOptions, Signature, Source, Tier, driver::ArgKind};
use elinvar_sizes::{Launch, Means, Row, usual_of};
use serde_json::{Value, json};

use super::kernels::Case;
use super::run::Runner;
use super::scaled::{self, Parts};

/// What became of a kernel.
pub(super) enum Tuned {
    /// Measured, with the factor by which the case's launch is enlarged.
    Measured(Row, usize),
    /// Ready to be measured elsewhere: only packed.
    Packed,
    /// Its size is not free, for this reason.
    Fixed(&'static str),
    /// The device does not support it.
    Unsupported(String),
    /// It fails, or results differ.
    Wrong(String),
}

impl fmt::Display for Tuned {
    /// A line of progress.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(row, factor) => {
                write!(f, "{} (enlarged {factor})", row.cells(time_text)[1..].join(" | "))
            }
            Self::Packed => write!(f, "packed"),
            Self::Fixed(why) => write!(f, "fixed: {why}"),
            Self::Unsupported(why) => write!(f, "unsupported: {why}"),
            Self::Wrong(why) => write!(f, "wrong: {why}"),
        }
    }
}

/// What became of a case's kernel, with the corpus and the kernel's name.
pub(super) type Result = (&'static str, String, Tuned);

/// Attributes that do not depend on the threadgroup.
const FREE: [&str; 4] = ["thread_position_in_grid", "threads_per_grid", "grid_size", "grid_origin"];
/// Names of types, as parts of a kernel's name between underscores.
const TYPES: [&str; 37] = [
    "f32", "f16", "bf16", "f64", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "float", "half",
    "bfloat", "bfloat16", "float32", "float16", "double", "uint8", "uint16", "uint32", "uint64", "int8",
    "int16", "int32", "int64", "char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "bool",
    "fp16",
];

/// A shorter launch is not representative: it consists of the launch more than of the kernel.
const LONG_NS: u64 = 10_000;
/// Threads of a simdgroup.
const SIMDGROUP: usize = 32;

/// A kernel's name without the names of types.
fn base(name: &str) -> String {
    let parts: Vec<&str> = name.split('_').filter(|part| !TYPES.contains(part)).collect();
    parts.join("_")
}

/// Keeps the first case of each kernel, of those whose names differ in types only.
pub(super) fn keep_first(cases: &mut Vec<Case>) {
    let mut seen = BTreeSet::new();
    cases.retain(|case| seen.insert((case.corpus, case.file, base(&case.kernel))));
}

/// Why a kernel cannot run in threadgroups of any size, by what it sees of them.
fn fixed(signature: &Signature) -> Option<&'static str> {
    let sees = signature.builtins.iter().any(|builtin| !FREE.contains(&builtin.attribute.as_str()));
    let Some(code) = signature.code else { return Some("its code is not known") };
    if code.barriers + code.grid_barriers > 0 {
        Some("barriers")
    } else if code.threadgroup_memory > 0 || signature.args.iter().any(|arg| arg.kind == ArgKind::Threadgroup)
    {
        Some("threadgroup memory")
    } else if code.simdgroup {
        Some("simdgroup functions")
    } else if sees {
        Some("it reads a position in the threadgroup, or the threadgroup's position or size")
    } else {
        None
    }
}

/// The cases of one file.
pub(super) fn file(runner: &Runner, source: &Source, cases: &[Case], is_packing: bool) -> Vec<Tuned> {
    match runner.device.compile(source.clone()) {
        Ok(library) => {
            let one = |case| {
                let tuned = match tuned(runner, &library, case, is_packing) {
                    Ok(tuned) => tuned,
                    Err(Error::Unsupported(why)) => Tuned::Unsupported(why),
                    Err(error) => Tuned::Wrong(error.to_string()),
                };
                eprintln!("{}: {tuned}", name(case));
                tuned
            };
            cases.iter().map(one).collect()
        }
        Err(error) => cases.iter().map(|_| Tuned::Wrong(error.to_string())).collect(),
    }
}

#[allow(unsafe_code)] // launches
fn tuned(
    runner: &Runner,
    library: &elinvar::Library,
    case: &Case,
    is_packing: bool,
) -> elinvar::Result<Tuned> {
    let options = || KernelOptions::new().constants(&case.constants).tier(Tier::Optimized);
    let kernel = library.kernel_with(&case.kernel, options())?;
    if let Some(why) = fixed(kernel.signature()) {
        return Ok(Tuned::Fixed(why));
    }
    let has_atomics = kernel.signature().code.is_some_and(|code| code.atomics > 0);
    let device = &runner.device;
    let whole = Parts::of(case);
    let usual = usual_of(whole.threads);
    if let Err(wrong) = runner.in_groups(library, case, usual.map(|side| side as u32))? {
        return Ok(Tuned::Wrong(format!("in threadgroups of 256 threads: {wrong}")));
    }
    let parts = scaled::scaled(device, library, &kernel, options, case, usual)?;
    if is_packing {
        return Ok(Tuned::Packed);
    }
    let (parts, factor) = parts.unwrap_or((whole, 1));
    if parts.threads.iter().product::<usize>() <= SIMDGROUP {
        return Ok(Tuned::Fixed("its launch is one simdgroup, which no size divides"));
    }
    // SAFETY: the arguments are those of the case, or have been shown to have the sizes that the enlarged launch needs.
    let mut launch = unsafe { Launch::new(device, kernel, parts.threads, parts.given) }?;
    Ok(match Row::measure(name(case), &mut launch, usual)? {
        Ok(row) => Tuned::Measured(row, factor),
        Err(_) if has_atomics => {
            Tuned::Fixed("the results of its atomic operations depend on the order of threads")
        }
        Err(wrong) => Tuned::Wrong(wrong),
    })
}

/// Name for tables.
pub(super) fn name(case: &Case) -> String {
    format!("{} {}", case.corpus, case.kernel)
}

fn time_text(ns: u64) -> String {
    if ns < 10_000 { format!("{ns} ns") } else { format!("{:.1} µs", ns as f64 / 1e3) }
}

/// What each of these says of the sum of all.
struct Sum {
    rows: Vec<Row>,
    /// Reasons why sizes are fixed, with counts.
    fixed: Vec<(&'static str, usize)>,
    enlarged: usize,
    packed: usize,
}

impl Sum {
    fn of<'a>(results: impl Iterator<Item = &'a Result>) -> Self {
        let mut sum = Self { rows: Vec::new(), fixed: Vec::new(), enlarged: 0, packed: 0 };
        for (_, _, tuned) in results {
            match tuned {
                Tuned::Measured(row, factor) => {
                    sum.rows.push(row.clone());
                    sum.enlarged += usize::from(*factor > 1);
                }
                Tuned::Packed => sum.packed += 1,
                Tuned::Fixed(why) => match sum.fixed.iter_mut().find(|(known, _)| known == why) {
                    Some((_, count)) => *count += 1,
                    None => sum.fixed.push((why, 1)),
                },
                Tuned::Unsupported(_) | Tuned::Wrong(_) => {}
            }
        }
        sum
    }

    fn worst(&self, of: fn(&Row) -> f64) -> Option<(f64, &str)> {
        let all = self.rows.iter().map(|row| (of(row), row.name.as_str()));
        all.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The line of a summary.
    fn text(&self) -> String {
        let fixed: usize = self.fixed.iter().map(|(_, count)| count).sum();
        let mut text = format!(
            "{} kernels measured, {} of them enlarged, {fixed} fixed",
            self.rows.len(),
            self.enlarged
        );
        if self.packed > 0 {
            let _ = write!(text, ", {} packed", self.packed);
        }
        let Means { of_suggestion, gain, of_best } = Means::of(&self.rows);
        if let (Some(best), Some(usual)) = (self.worst(Row::of_best), self.worst(|row| 1.0 / row.gain())) {
            let _ = write!(
                text,
                "; geometric means: 256/suggested {of_suggestion:.3}, 256/tuned {gain:.3}, tuned/best {of_best:.3}; \
                 worst tuned/best {:.3} ({}), worst tuned/256 {:.3} ({})",
                best.0, best.1, usual.0, usual.1
            );
        }
        text
    }
}

/// Rows of a table of Markdown, summaries, and whether nothing is wrong.
pub(super) fn text(device: &Device, results: &[Result]) -> String {
    let mut text = format!("{}\n\n", device.name());
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = Row::HEAD.iter().chain(&["enlarged"]).map(|title| (*title).to_owned()).collect();
    text += &row(&head);
    text += &format!("|{}\n", "---|".repeat(head.len()));
    for (_, _, tuned) in results {
        if let Tuned::Measured(measured, factor) = tuned {
            let mut cells = measured.cells(time_text);
            cells.push(factor.to_string());
            text += &row(&cells);
        }
    }
    text.push('\n');
    let corpora: BTreeSet<&str> = results.iter().map(|(corpus, ..)| *corpus).collect();
    for corpus in corpora {
        let sum = Sum::of(results.iter().filter(|(of, ..)| *of == corpus));
        let _ = writeln!(text, "{corpus}: {}", sum.text());
    }
    let all = Sum::of(results.iter());
    let _ = writeln!(text, "all: {}", all.text());
    for (is_long, title) in
        [(true, "launches of 10 µs and more"), (false, "shorter ones, mostly the launch itself")]
    {
        let is_wanted = |(.., tuned): &&Result| match tuned {
            Tuned::Measured(row, _) => (row.usual.1 >= LONG_NS) == is_long,
            _ => false,
        };
        let _ = writeln!(text, "{title}: {}", Sum::of(results.iter().filter(is_wanted)).text());
    }
    for (why, count) in &all.fixed {
        let _ = writeln!(text, "size is fixed by the kernel: {count} kernels: {why}");
    }
    for (corpus, kernel, tuned) in results {
        match tuned {
            Tuned::Unsupported(why) => {
                let _ = writeln!(text, "unsupported: {corpus} `{kernel}`: {why}");
            }
            Tuned::Wrong(why) => {
                let _ = writeln!(text, "wrong: {corpus} `{kernel}`: {why}");
            }
            _ => {}
        }
    }
    text
}

/// As JSON.
pub(super) fn json(device: &Device, results: &[Result]) -> String {
    let one = |(corpus, kernel, tuned): &Result| {
        let mut value = json!({ "corpus": corpus, "kernel": kernel });
        match tuned {
            Tuned::Measured(row, factor) => (value["row"], value["enlarged"]) = (row.json(), json!(factor)),
            Tuned::Packed => value["packed"] = json!(true),
            Tuned::Fixed(why) => value["fixed"] = json!(why),
            Tuned::Unsupported(why) => value["unsupported"] = json!(why),
            Tuned::Wrong(why) => value["wrong"] = json!(why),
        }
        value
    };
    let all = Sum::of(results.iter());
    let Means { of_suggestion, gain, of_best } = Means::of(&all.rows);
    let kernels: Vec<Value> = results.iter().map(one).collect();
    let is_cpu = device.kind() == DeviceKind::Cpu;
    let value = json!({
        "device": device.name(), "is_cpu": is_cpu, "gain": gain, "of_best": of_best, "of_suggestion": of_suggestion, "kernels": kernels,
    });
    format!("{value}\n")
}

/// Whether no kernel is wrong.
pub(super) fn is_good(results: &[Result]) -> bool {
    results.iter().all(|(.., tuned)| !matches!(tuned, Tuned::Wrong(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_types_are_left_out() {
        assert_eq!(base("affine_f32_strided"), "affine_strided");
        assert_eq!(base("cast_u8_f32"), base("cast_f32_f16"));
        assert_ne!(base("exp_f32"), base("exp2_f32"));
    }

    #[test]
    fn a_kernel_that_sees_its_threadgroup_has_a_fixed_size() {
        let text = "kernel void free(device float* a, uint i [[thread_position_in_grid]]) { a[i] = 1.0f; }
            kernel void position(device uint* a, uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) { a[i] = t; }
            kernel void size(device uint* a, uint i [[thread_position_in_grid]], uint t [[threads_per_threadgroup]]) { a[i] = t; }
            kernel void lanes(device float* a, uint i [[thread_position_in_grid]]) { a[i] = simd_sum(a[i]); }
            kernel void memory(device float* a, threadgroup float* t, uint i [[thread_position_in_grid]]) { t[0] = 1.0f; a[i] = t[0]; }
            kernel void waits(device float* a, uint i [[thread_position_in_grid]]) { threadgroup_barrier(mem_flags::mem_device); a[i] = 1.0f; }";
        let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{text}");
        let library = Device::cpu().unwrap().compile(Source::msl(text)).unwrap();
        let fixed = |name: &str| fixed(library.kernel(name).unwrap().signature());
        assert_eq!(fixed("free"), None);
        assert!(fixed("position").unwrap().contains("position") && fixed("size").unwrap().contains("size"));
        assert_eq!(fixed("lanes"), Some("simdgroup functions"));
        assert_eq!(fixed("memory"), Some("threadgroup memory"));
        assert_eq!(fixed("waits"), Some("barriers"));
    }
}
