//! Filetests: what one pass leaves of a kernel, as LLVM's lit tests and Cranelift's filetests.
//!
//! Each file of `tests/filetests` begins with a line `; RUN: PASS [OPTION…]`, followed by IR and by expectations in comments:
//!
//! - `; CHECK: TEXT`: a later line contains the text;
//! - `; CHECK-NEXT: TEXT`: the line behind the last match contains it;
//! - `; CHECK-NOT: TEXT`: no line between the last match and the next one (or the end) contains it.
//!
//! Empty lines, and spaces at both ends of a line, do not count. A pass runs with all that its pipeline runs before it. Options: `target=nvptx`,
//! `lanes=N` (default 8), `group=X` or `group=XxY` (default 64), `invariant=BYTES,…`, `checks=BYTES,…`, `stoppable`, `approximate`, `scalef`,
//! `gib=N` (size of the largest buffer).
//!
//! `ELINVAR_BLESS=1` replaces the expectations of a file that fails by `CHECK` and `CHECK-NEXT` lines for its entry.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use elinvar_ir::Module;
use elinvar_spmd::bounds::Given;
use elinvar_spmd::nvptx::{self, Argument};
use elinvar_spmd::{ENTRY, GroupSize, Options, SizeBound, Target, ir_after, passes};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests");

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Later,
    Next,
    Not,
}

struct Check<'t> {
    line: usize,
    kind: Kind,
    text: &'t str,
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDER).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ext| ext == "ll"));
    files.sort();
    files
}

fn checks(text: &str) -> Vec<Check<'_>> {
    let kinds = [("; CHECK-NEXT:", Kind::Next), ("; CHECK-NOT:", Kind::Not), ("; CHECK:", Kind::Later)];
    let one = |(line, text): (usize, &'_ str)| {
        let (kind, text) =
            kinds.iter().find_map(|(prefix, kind)| Some((*kind, text.strip_prefix(prefix)?)))?;
        Some((line + 1, kind, text.len()))
    };
    let found: Vec<_> = text.lines().enumerate().filter_map(one).collect();
    let lines: Vec<&str> = text.lines().collect();
    let check = |(line, kind, length): (usize, Kind, usize)| {
        let whole = lines[line - 1];
        Check { line, kind, text: whole[whole.len() - length..].trim() }
    };
    found.into_iter().map(check).collect()
}

/// The target, the pass and its result, or why there is none.
fn output(text: &str) -> Result<(Target, String, String), String> {
    let run = text.lines().next().and_then(|line| line.strip_prefix("; RUN: "));
    let run = run.ok_or("line 1: no `; RUN: PASS`")?;
    let mut words = run.split_whitespace();
    let pass = words.next().ok_or("line 1: no pass")?;
    let (mut target, mut lanes, mut group) = (Target::Cpu, 8, GroupSize::Static([64, 1, 1]));
    let (mut invariant, mut checks, mut stoppable, mut approximate) = (Vec::new(), None, false, false);
    let mut tensor_products = false;
    let mut scalef = false;
    let mut objects = SizeBound::DEFAULT;
    let numbers = |text: &str| text.split(',').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u64>>();
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("target", "nvptx") => target = Target::Nvptx,
            ("lanes", n) => lanes = n.parse().map_err(|_| format!("line 1: `{word}`"))?,
            ("group", "dynamic") => group = GroupSize::Dynamic(1024),
            ("group", sizes) => {
                let (x, y) = sizes.split_once('x').unwrap_or((sizes, "1"));
                let size = |text: &str| text.parse().map_err(|_| format!("line 1: `{word}`"));
                group = [size(x)?, size(y)?, 1].into();
            }
            ("invariant", list) => invariant = numbers(list),
            ("checks", list) => {
                let given = |bytes| Given { bytes, align: 16 };
                checks = Some(numbers(list).into_iter().map(given).collect::<Vec<_>>());
            }
            ("stoppable", "") => stoppable = true,
            ("gib", n) => {
                let gib: u64 = n.parse().map_err(|_| format!("line 1: `{word}`"))?;
                objects = SizeBound::of(gib << 30);
            }
            ("approximate", "") => approximate = true,
            ("wgmma", "") => tensor_products = true,
            ("scalef", "") => scalef = true,
            _ => return Err(format!("line 1: unknown option `{word}`")),
        }
    }
    let module = Module::parse(text).map_err(|error| format!("line {error}"))?;
    let params = module.function(ENTRY).map_or(0, |entry| entry.params.len());
    let name = "kernel".to_owned();
    let result = match target {
        Target::Cpu => {
            let options = Options {
                name,
                group,
                lanes,
                registers: 16,
                gathers: true,
                half_arithmetic: false,
                scalef,
                threadgroup_args: vec![false; params],
                invariant_bytes: invariant,
                ascending: false,
                checks,
                stoppable,
                objects,
            };
            ir_after(&module, &options, pass)
        }
        Target::Nvptx => {
            let arguments = vec![Argument::Pointer { constant: false }; params];
            let options =
                nvptx::Options { name, arguments, approximate, max_threads: None, checks, tensor_products };
            nvptx::ir_after(&module, &options, pass)
        }
    };
    // A refusal is an output, too.
    let output = result.unwrap_or_else(|error| format!("error: {error}"));
    Ok((target, pass.to_owned(), output))
}

fn compare(checks: &[Check<'_>], output: &str) -> Result<(), String> {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut at = 0;
    let mut not: Vec<&Check<'_>> = Vec::new();
    let absent = |not: &[&Check<'_>], lines: &[&str]| {
        let breach = not.iter().find(|check| lines.iter().any(|line| line.contains(check.text)));
        breach.map_or(Ok(()), |check| Err(format!("line {}: `{}` is there", check.line, check.text)))
    };
    for check in checks {
        let matches = |line: &&str| line.contains(check.text);
        let found = match check.kind {
            Kind::Not => {
                not.push(check);
                continue;
            }
            Kind::Later => lines[at..].iter().position(matches).map(|n| at + n),
            Kind::Next => lines.get(at).filter(|line| matches(line)).map(|_| at),
        };
        let found = found.ok_or_else(|| format!("line {}: `{}` is not there", check.line, check.text))?;
        absent(&not, &lines[at..found])?;
        not.clear();
        at = found + 1;
    }
    absent(&not, &lines[at..])
}

/// The file with the entry of its output as expectations.
fn blessed(text: &str, output: &str) -> String {
    let body: String =
        text.lines().filter(|line| !line.starts_with("; CHECK")).fold(String::new(), |mut all, line| {
            let _ = writeln!(all, "{line}");
            all
        });
    let entry = output.lines().skip_while(|line| !line.starts_with("define") && !line.starts_with("error"));
    let entry: Vec<&str> = entry.take_while(|line| *line != "}").filter(|line| !line.is_empty()).collect();
    let check = |(n, line): (usize, &&str)| {
        format!("; CHECK{}: {}\n", if n == 0 { "" } else { "-NEXT" }, line.trim())
    };
    format!("{}\n{}", body.trim_end(), entry.iter().enumerate().map(check).collect::<String>())
}

#[test]
fn every_file() {
    let mut failures = Vec::new();
    for path in files() {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let text = std::fs::read_to_string(&path).expect("a text");
        let checks = checks(&text);
        let (result, output) = match output(&text) {
            Err(error) => (Err(error), String::new()),
            Ok(_) if checks.is_empty() && std::env::var_os("ELINVAR_BLESS").is_none() => {
                (Err("line 1: no expectations".to_owned()), String::new())
            }
            Ok((_, _, output)) if checks.is_empty() => (Err("line 1: no expectations".to_owned()), output),
            Ok((_, _, output)) => (compare(&checks, &output), output),
        };
        if let Err(error) = result {
            match std::env::var_os("ELINVAR_BLESS") {
                Some(_) if !output.is_empty() => {
                    std::fs::write(&path, blessed(&text, &output)).expect("is written");
                }
                _ => failures.push(format!("{FOLDER}/{name}: {error}\n{output}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Each pass has a file in which it does something, and one in which it has nothing to do (`…-not…`).
#[test]
fn every_pass_has_files_that_show_it_and_where_it_must_not_fire() {
    let names: Vec<String> =
        files().iter().filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    for target in [Target::Cpu, Target::Nvptx] {
        for pass in passes(target) {
            let prefix = format!("{target}-{}", pass.name);
            let of_pass = |name: &&String| Path::new(name).to_str().is_some_and(|n| n.starts_with(&prefix));
            let (not, does): (Vec<_>, Vec<_>) =
                names.iter().filter(of_pass).partition(|n| n.contains("-not"));
            assert!(!not.is_empty() && !does.is_empty(), "{prefix}: {does:?}, {not:?}");
        }
    }
}
