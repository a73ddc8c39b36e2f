//! `cargo xtask wgsl`: translates published compute shaders in WGSL and compiles the results.
//!
//! The packages are downloaded by cargo, never committed; nothing of them runs. `corpora/wgsl` gets each shader as its host passes it to
//! WebGPU, with imports, conditions and constants resolved ([`prepare`]). Every kernel of a translation is compiled and must pass the strict
//! check (`elinvar check --target metal`); shaders that are refused are counted by reason.

mod packages;
mod prepare;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use elinvar_analysis::{AppleFamily, violations};
use elinvar_driver::Source;
use elinvar_msl::InductionVariables;
use elinvar_translate::{Error, Language};

use self::packages::PACKAGES;
use self::prepare::Shader;

/// Result of a shader.
enum Outcome {
    /// Kernels that compile and pass the strict check.
    Kernels(usize),
    /// The reason without the file's name.
    Refused(String),
    Failed(String),
}

/// Surveys the shaders with a part of a name.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let part = match words {
        [] => "",
        [part] if !part.starts_with("--") => part,
        _ => bail!("usage: cargo xtask wgsl [PART]"),
    };
    let corpus = root.join("corpora/wgsl");
    let (mut total, mut failures) = (0, 0);
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    println!("{:<28} {:>7} {:>7} {:>7}", "package", "shaders", "kernels", "refused");
    for package in PACKAGES {
        let folder = corpus.join(format!("{}-{}", package.name, package.version));
        let mut shaders = prepare::shaders(package)?;
        std::fs::create_dir_all(&folder)?;
        for shader in &shaders {
            let file = folder.join(format!("{}.wgsl", shader.name));
            std::fs::write(&file, &shader.text).with_context(|| file.display().to_string())?;
        }
        shaders.retain(|shader| shader.name.contains(part));
        let (mut kernels, mut refused) = (0, 0);
        for (shader, outcome) in shaders.iter().zip(crate::corpus::in_parallel(&shaders, survey)) {
            let name = format!("{}/{}", package.name, shader.name);
            match outcome {
                Outcome::Kernels(number) => kernels += number,
                Outcome::Refused(reason) => {
                    refused += 1;
                    reasons.entry(reason).or_default().push(name);
                }
                Outcome::Failed(message) => {
                    failures += 1;
                    println!("{name}: {message}");
                }
            }
        }
        let name = format!("{} {}", package.name, package.version);
        println!("{name:<28} {:>7} {kernels:>7} {refused:>7}", shaders.len());
        total += kernels;
    }
    println!("{total} kernels translated and compiled");
    for (reason, names) in &reasons {
        println!("  {} shaders: {reason}: {}", names.len(), names.join(", "));
    }
    if failures > 0 { bail!("{failures} shaders failed") } else { Ok(()) }
}

fn survey(shader: &Shader) -> Outcome {
    let source = Source::named(format!("{}.wgsl", shader.name), shader.text.as_str());
    let translation = match elinvar_translate::shader(&source, Language::Wgsl) {
        Ok(translation) => translation,
        Err(Error::Compile(errors)) => {
            let first = errors.into_iter().next().map(|error| error.message);
            return Outcome::Refused(first.unwrap_or_default());
        }
        Err(other) => return Outcome::Failed(other.to_string()),
    };
    let msl = Source::named("translation.metal", translation.msl).check_spaces();
    let names = translation.kernels.iter().map(|kernel| kernel.name.as_str());
    match compile(&msl, names) {
        Ok(kernels) => Outcome::Kernels(kernels),
        Err(message) => Outcome::Failed(message),
    }
}

/// Compiles kernels, which must have no warning and nothing that Metal refuses; how many they are.
fn compile<'a>(msl: &Source, names: impl Iterator<Item = &'a str>) -> Result<usize, String> {
    let program = elinvar_code::Program::new(elinvar_code::user_cache(), msl, InductionVariables::AsWritten)
        .map_err(|error| error.to_string())?;
    if let Some(warning) = program.declared().warnings.first() {
        return Err(warning.to_string());
    }
    let mut number = 0;
    for name in names {
        let thread = program.thread(name, &[]).map_err(|error| format!("kernel `{name}`: {error}"))?;
        let module = program.module(&thread).map_err(|error| format!("kernel `{name}`: {error}"))?;
        let found = violations(AppleFamily::M1, &module, &thread.origin.signature);
        if let Some(one) = found.into_iter().next() {
            return Err(format!("kernel `{name}`: {}", one.reason));
        }
        number += 1;
    }
    Ok(number)
}
