//! Translates OpenCL C files and compiles the results: `survey [-I DIR] [-D NAME[=V]] [--print] FILE...`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};

fn main() {
    let mut source = Source::default();
    let (mut files, mut print) = (Vec::new(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--print" => print = true,
            "-I" => source = source.include_dir(words.next().expect("a folder")),
            "-D" => {
                let define = words.next().expect("a macro");
                source = match define.split_once('=') {
                    Some((name, value)) => source.define(name, Some(value)),
                    None => source.define(&define, None),
                };
            }
            _ => files.push(word),
        }
    }
    let toolchain = Toolchain::find().expect("clang");
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = survey(&toolchain, &source, file, print);
                    results.lock().expect("results").push((file.clone(), result));
                }
            });
        }
    });
    let (mut good, mut refused, mut failed, mut reasons) = (0, 0, 0, BTreeMap::<String, usize>::new());
    for (file, result) in results.into_inner().expect("results") {
        match result {
            Ok((kernels, errors)) => {
                good += kernels;
                refused += errors.len();
                for error in errors {
                    *reasons.entry(error).or_default() += 1;
                }
            }
            Err(why) => {
                failed += 1;
                println!("FAILED {file}: {why}");
            }
        }
    }
    for (reason, count) in reasons {
        println!("{count:5} {reason}");
    }
    println!("{good} kernels translated and compiled, {refused} reasons, {failed} files failed");
}

fn survey(
    toolchain: &Toolchain,
    base: &Source,
    file: &str,
    print: bool,
) -> Result<(usize, Vec<String>), String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut source = Source::named(file, text);
    source.include_dirs.clone_from(&base.include_dirs);
    source.defines.clone_from(&base.defines);
    if let Some(folder) = std::path::Path::new(file).parent() {
        source.include_dirs.insert(0, if folder.as_os_str().is_empty() { ".".into() } else { folder.into() });
    }
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    let translation = elinvar_translate::opencl(toolchain, &source, &elinvar_translate::Options::default());
    let translation = translation.map_err(|error| first(error.to_string()))?;
    if print {
        println!("{}", translation.msl);
        translation.errors.iter().for_each(|error| println!("{error}"));
    }
    if translation.kernels.is_empty() {
        return Ok((0, translation.errors.into_iter().map(|error| error.message).collect()));
    }
    let msl = Source::named("translated.metal", translation.msl).check_spaces();
    let program = Program::compile(toolchain, &msl)
        .map_err(|error| error.to_string().lines().take(3).collect::<Vec<_>>().join(" / "))?;
    let names: Vec<&str> = program.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    if print {
        println!("{names:?} {:?}", program.warnings());
    }
    for kernel in &translation.kernels {
        if !names.contains(&kernel.name.as_str()) {
            return Err(format!("kernel {} is missing", kernel.name));
        }
        program.ir(&kernel.name).map_err(|error| format!("{}: {}", kernel.name, first(error.to_string())))?;
    }
    if let Some(warning) = program.warnings().first() {
        return Err(format!("warning: {}", first(warning.to_string())));
    }
    Ok((translation.kernels.len(), translation.errors.into_iter().map(|error| error.message).collect()))
}
