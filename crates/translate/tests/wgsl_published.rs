//! Published compute shaders in WGSL that nobody here wrote: results of their translations against values computed here in Rust.
//!
//! The files are those of wgpu's examples, `vello_shaders`, `web-rwkv` and others, which `cargo xtask wgsl` downloads and prepares:
//! ELINVAR_WGSL_CORPUS names `corpora/wgsl`. Without it the cases are ignored, and the reason is printed.
#![allow(unsafe_code)] // launches

#[path = "support/wgsl_cases/mod.rs"]
mod wgsl_cases;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use elinvar::driver::{ArgKind, ElementType};
use elinvar::{Arg, Buffer, Device, Grid, Library, Source, Threadgroup};
use elinvar_translate::{Language, Translation};
use libtest_mimic::{Arguments, Failed, Trial};
use wgsl_cases::{Case, Step};

/// A translation with its library.
struct Compiled {
    translation: Translation,
    library: Library,
}

fn compiled(file: &str, corpus: &Path, device: &Device) -> Result<Compiled, String> {
    let path = corpus.join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let source = Source::named(file, text);
    let translation =
        elinvar_translate::shader(&source, Language::Wgsl).map_err(|error| error.to_string())?;
    let msl = Source::named("translation.metal", translation.msl.as_str()).check_spaces();
    let library = device.compile(msl).map_err(|error| format!("{error}\n{}", translation.msl))?;
    match library.warnings().first() {
        Some(warning) => Err(format!("{warning}\n{}", translation.msl)),
        None => Ok(Compiled { translation, library }),
    }
}

/// Runs a step; `sizes` are the bytes of the arrays without a length, in the order of their declarations.
fn launch(
    step: &Step,
    compiled: &Compiled,
    memory: &BTreeMap<&'static str, Vec<u8>>,
    buffers: &mut BTreeMap<&'static str, Buffer<u8>>,
    device: &Device,
) -> Result<(), String> {
    let message = |error: elinvar::Error| error.to_string();
    let described = compiled.translation.kernels.iter().find(|kernel| {
        let renamed = compiled.translation.renamed.iter().find(|(from, _)| from == step.kernel);
        kernel.name == renamed.map_or(step.kernel, |(_, to)| to.as_str())
    });
    let described = described.ok_or_else(|| format!("no kernel `{}`", step.kernel))?;
    let kernel = compiled.library.kernel(&described.name).map_err(message)?;
    let sizes: Vec<u8> =
        step.arrays.iter().flat_map(|name| (memory[name].len() as u32).to_le_bytes()).collect();
    let mut args = Vec::new();
    for declared in &kernel.signature().args {
        let name = declared.name.as_str();
        if declared.kind == ArgKind::Threadgroup {
            args.push(Threadgroup::bytes(declared.element_size as usize).into());
        } else if name == "_buffer_sizes" {
            args.push(Arg::bytes(&sizes));
        } else if declared.constant {
            let bytes = memory.get(name).ok_or_else(|| format!("the case has no `{name}`"))?;
            args.push(Arg::bytes(bytes));
        } else {
            let buffer = buffers.get_mut(name).ok_or_else(|| format!("the case has no `{name}`"))?;
            let memory = Arg::from(buffer);
            args.push(match declared.element {
                ElementType::Scalar(scalar) => memory.of(scalar),
                _ => memory,
            });
        }
    }
    let stream = device.stream().map_err(message)?;
    let [x, y, z] = described.group_size.ok_or("no size of a threadgroup")?.map(|n| n as usize);
    let grid = Grid::groups((step.groups[0], step.groups[1], step.groups[2])).group((x, y, z));
    // SAFETY: the sizes are those of the buffers, and the shader makes no access beyond them.
    let done = unsafe { kernel.launch(&stream, grid, args) };
    done.and_then(|done| done.wait()).map_err(message)?;
    Ok(())
}

fn run(case: &Case, corpus: &Path, device: &Device) -> Result<(), Failed> {
    let memory: BTreeMap<&'static str, Vec<u8>> = case.memory.iter().cloned().collect();
    let mut buffers = BTreeMap::new();
    for (name, bytes) in &memory {
        buffers.insert(*name, device.buffer_with_data(bytes).map_err(|error| error.to_string())?);
    }
    let mut libraries: BTreeMap<&str, Compiled> = BTreeMap::new();
    for step in &case.steps {
        if !libraries.contains_key(step.file) {
            libraries.insert(step.file, compiled(step.file, corpus, device)?);
        }
        let compiled = &libraries[step.file];
        // Steps after the first may exchange two buffers.
        if let Some((a, b)) = step.exchange {
            let (first, second) = (buffers.remove(a), buffers.remove(b));
            let (Some(first), Some(second)) = (first, second) else {
                return Err(format!("no {a} or {b}").into());
            };
            buffers.extend([(a, second), (b, first)]);
        }
        let mut values = memory.clone();
        values.extend(step.values.iter().cloned());
        launch(step, compiled, &values, &mut buffers, device)
            .map_err(|error| format!("{error}\n{}", compiled.translation.msl))?;
    }
    for (name, expected) in &case.expected {
        if memory.get(name).is_some_and(|bytes| expected.is_equal(bytes)) {
            return Err(format!("the case expects of `{name}` what is there before").into());
        }
        let found = buffers[name].to_vec().map_err(|error| error.to_string())?;
        expected.compare(&found).map_err(|error| format!("`{name}`: {error}"))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let corpus = std::env::var_os("ELINVAR_WGSL_CORPUS").map(PathBuf::from);
    let corpus = corpus.and_then(|folder| std::fs::canonicalize(folder).ok());
    if corpus.is_none() {
        eprintln!(
            "cases with published shaders are ignored: ELINVAR_WGSL_CORPUS does not name the folder `corpora/wgsl`: run \
             `cargo xtask wgsl`"
        );
    }
    let is_ignored = corpus.is_none();
    let corpus = corpus.unwrap_or_default();
    let mut trials = Vec::new();
    for device in Device::all().unwrap_or_default() {
        let kind = format!("{:?}", device.kind()).to_lowercase();
        for case in wgsl_cases::all() {
            let (folder, at) = (corpus.clone(), device.clone());
            let name = format!("{}::{kind}", case.name);
            trials.push(Trial::test(name, move || run(&case, &folder, &at)).with_ignored_flag(is_ignored));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
