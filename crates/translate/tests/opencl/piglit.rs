//! Kernels of piglit, a test suite for OpenCL drivers: each kernel with the arguments in its file, against an OpenCL driver.
//!
//! A file has its tests in a comment, or is a list of tests for another file. Elements must be equal, floats within twice the tolerance that
//! the file states, because both sides may have that error.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use elinvar::Source;
use half::f16;

use crate::published::package;
use crate::support::pocl::Program;
use crate::support::{Argument, Launch, Translated};

/// Sections of a file, with their lines `KEY: VALUE`.
struct Section {
    name: String,
    lines: Vec<(String, String)>,
}

impl Section {
    fn get(&self, key: &str) -> Option<&str> {
        self.lines.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

/// How elements of an argument are compared.
#[derive(Clone, Copy, Default)]
struct Tolerance {
    ulp: u64,
    absolute: f64,
}

/// A test: a launch, and the type and tolerance of each buffer.
struct Test {
    launch: Launch,
    buffers: Vec<(String, Tolerance)>,
}

/// Why a file is left out, from its text; kernels with `double` are refused, and images are not supported.
fn exclusion(name: &str, text: &str) -> Option<&'static str> {
    let is_any = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if is_any(&["cl_khr_fp64", "double"]) || name.contains("double") {
        return Some("it uses `double`");
    }
    if is_any(&["cl_khr_int64"]) {
        return Some("it uses 64-bit atomic functions");
    }
    if is_any(&["need_image_support", "image2d_t", "sampler"]) {
        return Some("it uses images");
    }
    if is_any(&["device_regex", "__builtin_amdgcn", "amdgcn"]) {
        return Some("it is for one driver");
    }
    if !text.contains("[test]") {
        return Some("it has no tests");
    }
    let clang = text.lines().any(|line| line.starts_with("clc_version_min: 2"));
    clang.then_some("it is OpenCL C 2.0")
}

fn sections(text: &str) -> (Vec<Section>, Option<String>) {
    let is_kernel = text.contains("/*!");
    let config = if is_kernel {
        text.split_once("/*!").and_then(|(_, rest)| rest.split_once("!*/")).map_or("", |(config, _)| config)
    } else {
        text
    };
    let mut all: Vec<Section> = Vec::new();
    let mut source = is_kernel.then(|| text.to_owned());
    let mut rest = config;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        let mut line = line.trim().to_owned();
        if line == "[program source]" {
            source = Some(rest.to_owned());
            break;
        }
        while let Some(begin) = line.strip_suffix('\\')
            && let Some((next, after)) = rest.split_once('\n')
        {
            line = format!("{begin} {}", next.trim());
            rest = after;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            all.push(Section { name: name.to_owned(), lines: Vec::new() });
        } else if !line.starts_with('#')
            && let (Some(section), Some((key, value))) = (all.last_mut(), line.split_once(':'))
        {
            section.lines.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    (all, source)
}

/// Scalar type and number of components.
fn element(ty: &str) -> Option<(&str, usize)> {
    let scalar = ty.trim_end_matches(|c: char| c.is_ascii_digit());
    let lanes = ty[scalar.len()..].parse().unwrap_or(1);
    size(scalar).map(|_| (scalar, lanes))
}

fn size(scalar: &str) -> Option<usize> {
    Some(match scalar {
        "char" | "uchar" => 1,
        "short" | "ushort" | "half" => 2,
        "int" | "uint" | "float" => 4,
        "long" | "ulong" => 8,
        _ => return None,
    })
}

/// The bytes of a number.
fn number(scalar: &str, word: &str) -> Option<Vec<u8>> {
    let float = || {
        let word = word.trim_end_matches(['f', 'F']);
        match word.to_ascii_lowercase().trim_start_matches(['+', '-']) {
            "nan" => Some(f64::NAN),
            "in" | "inf" | "infinity" if word.starts_with('-') => Some(f64::NEG_INFINITY),
            "in" | "inf" | "infinity" => Some(f64::INFINITY),
            hex if hex.starts_with("0x") && hex.contains('p') => hex_float(word),
            hex if hex.starts_with("0x") => u64::from_str_radix(&hex[2..], 16).ok().map(|bits| bits as f64),
            _ => word.parse().ok(),
        }
    };
    match scalar {
        "float" => Some((float()? as f32).to_le_bytes().to_vec()),
        "half" => Some(f16::from_f64(float()?).to_le_bytes().to_vec()),
        _ => {
            let (negative, digits) = match word.strip_prefix('-') {
                Some(digits) => (true, digits),
                None => (false, word),
            };
            let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
                Some(hex) => i128::from(u64::from_str_radix(hex, 16).ok()?),
                None => digits.parse::<i128>().ok()?,
            };
            let value = if negative { -value } else { value };
            Some(value.to_le_bytes()[..size(scalar)?].to_vec())
        }
    }
}

/// `0x1.8p+3`.
fn hex_float(word: &str) -> Option<f64> {
    let negative = word.starts_with('-');
    let rest = word.trim_start_matches(['-', '+']).get(2..)?;
    let (digits, exponent) = rest.split_once(['p', 'P'])?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let bits = u64::from_str_radix(&format!("{whole}{part}"), 16).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    let value = bits as f64 * 2_f64.powi(exponent - 4 * i32::try_from(part.len()).ok()?);
    Some(if negative { -value } else { value })
}

/// The elements of a list, padded as in memory.
fn values(ty: &str, count: usize, words: &[&str]) -> Option<Vec<u8>> {
    let (scalar, lanes) = element(ty)?;
    let repeat = words.first() == Some(&"repeat");
    let words = if repeat { &words[1..] } else { words };
    let width = size(scalar)?;
    let mut out = Vec::new();
    for index in 0..count {
        for lane in 0..lanes {
            let at = index * lanes + lane;
            let word = if repeat { words.get(at % words.len().max(1))? } else { words.get(at)? };
            out.extend(number(scalar, word)?);
        }
        out.extend(vec![0; if lanes == 3 { width } else { 0 }]);
    }
    Some(out)
}

fn sizes(text: Option<&str>, dimensions: usize, default: usize) -> Option<[usize; 3]> {
    let mut out = [default; 3];
    for (k, word) in text?.split_whitespace().take(dimensions).enumerate() {
        out[k] = word.parse().ok().filter(|size| *size > 0)?;
    }
    Some(out)
}

/// A test with its arguments. An error if this does not understand it.
fn test(config: &Section, section: &Section) -> Result<Test, String> {
    let get = |key: &str| section.get(key).or_else(|| config.get(key));
    let kernel = get("kernel_name").ok_or("no kernel")?.to_owned();
    if get("global_offset").is_some_and(|offset| offset.split_whitespace().any(|word| word != "0")) {
        return Err("it has a global offset, which Metal does not have".into());
    }
    let dimensions = get("dimensions").and_then(|text| text.parse().ok()).unwrap_or(3);
    let global = sizes(get("global_size"), dimensions, 1).unwrap_or([1; 3]);
    let local = sizes(get("local_size"), dimensions, 1).unwrap_or([1; 3]);
    let mut arguments: Vec<Option<(Argument, String, Tolerance)>> = Vec::new();
    let lines = section.lines.iter().chain(&config.lines);
    for (key, value) in lines.filter(|(key, _)| key == "arg_in" || key == "arg_out") {
        let unknown = || format!("argument `{value}` is not understood");
        let mut words: Vec<&str> = value.split_whitespace().collect();
        let mut tolerance = Tolerance::default();
        if let Some(at) = words.iter().position(|word| *word == "tolerance") {
            let number = words.get(at + 1).and_then(|word| word.parse::<f64>().ok()).ok_or_else(unknown)?;
            match words.get(at + 2) {
                Some(&"ulp") => tolerance.ulp = number as u64,
                _ => tolerance.absolute = number,
            }
            words.truncate(at);
        }
        let [index, kind, rest @ ..] = &words[..] else { return Err(unknown()) };
        let index: usize = index.parse().map_err(|_| unknown())?;
        if arguments.len() <= index {
            arguments.resize_with(index + 1, || None);
        }
        let (argument, ty) = if *kind == "buffer" {
            let (array, list) = rest.split_first().ok_or_else(unknown)?;
            let (ty, count) = array
                .split_once('[')
                .and_then(|(ty, count)| Some((ty, count.strip_suffix(']')?.parse().ok()?)))
                .ok_or_else(unknown)?;
            if list == ["NULL"] {
                let bytes = values(ty, count, &["repeat", "0"]).ok_or_else(unknown)?.len();
                arguments[index] = Some((Argument::Local(bytes), ty.to_owned(), tolerance));
                continue;
            }
            // What a kernel writes begins as zeros, or as what another line says.
            let list = if key == "arg_out" { &["repeat", "0"][..] } else { list };
            let mut bytes = values(ty, count, list).ok_or_else(unknown)?;
            // Some kernels read one element more.
            bytes.extend([0; 16]);
            (Argument::Buffer(bytes), ty.to_owned())
        } else {
            let bytes = values(kind, 1, rest).ok_or_else(unknown)?;
            (Argument::Value(bytes), (*kind).to_owned())
        };
        let slot = &mut arguments[index];
        let is_in = key == "arg_in";
        match slot {
            Some((old, _, old_tolerance)) => {
                if is_in {
                    *old = argument;
                } else {
                    *old_tolerance = tolerance;
                }
            }
            None => *slot = Some((argument, ty, tolerance)),
        }
    }
    let mut launch = Launch { kernel, arguments: Vec::new(), global, local };
    let mut buffers = Vec::new();
    for argument in arguments {
        let (argument, ty, tolerance) = argument.ok_or("an argument is missing")?;
        if matches!(argument, Argument::Buffer(_)) {
            buffers.push((ty, tolerance));
        }
        launch.arguments.push(argument);
    }
    Ok(Test { launch, buffers })
}

/// Elements that differ: how many, and the first.
fn difference(ty: &str, tolerance: (u64, f64), ours: &[u8], theirs: &[u8]) -> Option<(usize, String)> {
    let (scalar, lanes) = element(ty).unwrap_or(("uchar", 1));
    let width = size(scalar).unwrap_or(1);
    let value = |bytes: &[u8]| match scalar {
        "float" => f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        "half" => f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
        _ => f64::NAN,
    };
    let order = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(bytes);
        let bits = i64::from_le_bytes(wide);
        let sign = 1_i64 << (8 * width - 1);
        if bits & sign != 0 { -(bits & (sign - 1)) } else { bits }
    };
    let equal = |a: &[u8], b: &[u8]| {
        if a == b || !matches!(scalar, "float" | "half") {
            return a == b;
        }
        let (x, y) = (value(a), value(b));
        (x.is_nan() && y.is_nan())
            || (x - y).abs() <= 2.0 * tolerance.1
            || order(a).abs_diff(order(b)) <= 2 * tolerance.0
    };
    // The fourth component of three is undefined.
    let is_padding = |at: usize| lanes == 3 && at % 4 == 3;
    let element = |all: &[u8], at: usize| all[at * width..(at + 1) * width].to_vec();
    let differs = |at: &usize| !is_padding(*at) && !equal(&element(ours, *at), &element(theirs, *at));
    let wrong: Vec<usize> = (0..ours.len() / width).filter(differs).collect();
    let at = *wrong.first()?;
    let show = |bytes: &[u8]| match scalar {
        "float" | "half" => format!("{:e}", value(bytes)),
        _ => format!("{bytes:x?}"),
    };
    let (a, b) = (element(ours, at), element(theirs, at));
    Some((wrong.len(), format!("element {at}: {}, driver {}", show(&a), show(&b))))
}

fn check(file: &Path) {
    let text = std::fs::read_to_string(file).expect("a file");
    let (all, own) = sections(&text);
    let config = all.iter().find(|section| section.name == "config").expect("a section `config`");
    let source = own.unwrap_or_else(|| {
        let name = config.get("program_source_file").expect("a source");
        std::fs::read_to_string(file.with_file_name(name)).expect("a source")
    });
    let options = config.get("build_options").unwrap_or("");
    let mut elinvar = Source::named("test.cl", source.as_str());
    for define in options.split("-D").skip(1) {
        let (name, value) = define.trim().split_once('=').unwrap_or((define.trim(), "1"));
        elinvar = elinvar.define(name, Some(value));
    }
    let theirs = Program::new(&source, options).expect("valid OpenCL C");
    let ours = Translated::new(&elinvar).unwrap_or_else(|error| panic!("{error}"));
    let (mut compared, mut wrong, mut left_out) = (BTreeSet::new(), Vec::new(), Vec::new());
    for section in all.iter().filter(|section| section.name == "test") {
        let name = section.get("name").unwrap_or("");
        let test = match test(config, section) {
            Ok(test) => test,
            Err(why) => {
                left_out.push(format!("{name}: {why}"));
                continue;
            }
        };
        let expected = theirs.launch(&test.launch).unwrap_or_else(|error| panic!("{name}: driver: {error}"));
        match ours.launch(&test.launch) {
            Ok(found) => {
                for (index, (ty, tolerance)) in test.buffers.iter().enumerate() {
                    let tolerance = (tolerance.ulp, tolerance.absolute);
                    if let Some((count, first)) = difference(ty, tolerance, &found[index], &expected[index]) {
                        wrong.push(format!(
                            "{name} ({}), buffer {index}: {count} elements; {first}",
                            test.launch.kernel
                        ));
                    }
                }
                compared.insert(test.launch.kernel);
            }
            Err(error) => wrong.push(format!("{name} ({}): {error}", test.launch.kernel)),
        }
    }
    left_out.iter().for_each(|why| eprintln!("left out: {why}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!compared.is_empty(), "no kernel was compared: {}", left_out.join("; "));
    crate::COMPARED.fetch_add(compared.len(), Ordering::Relaxed);
}

/// The files with tests below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "cl" || extension == "program_test") {
            found.push(path);
        }
    }
}

/// The files with tests, or every Nth by `ELINVAR_OPENCL_EVERY`.
pub fn cases(driver: &Option<String>) -> Vec<crate::Case> {
    let every = std::env::var("ELINVAR_OPENCL_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let folder = package("piglit/usr/lib/x86_64-linux-gnu/piglit");
    let Ok(folder) = folder.map(PathBuf::from) else { return Vec::new() };
    let mut found = Vec::new();
    files(&folder.join("tests/cl/program/execute"), &mut found);
    files(&folder.join("generated_tests/cl"), &mut found);
    found.sort();
    let case = |file: PathBuf| {
        let name = file.strip_prefix(&folder).unwrap_or(&file).display().to_string();
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let why = exclusion(&name, &text).map(str::to_owned);
        crate::Case {
            name: format!("piglit::{name}"),
            absence: driver.clone().or(why),
            run: Box::new(move || check(&file)),
            required: false,
        }
    };
    found.into_iter().step_by(every).map(case).collect()
}
