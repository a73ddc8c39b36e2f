//! The benchmarks' kernels, compiled ahead of time for NVIDIA GPUs, for machines without clang. Included if the program was built
//! with a bundle of them (`make elinvar`).

use elinvar::{Device, DeviceKind, Error, Library, Source, SourceFile};
use elinvar_driver::Packed;
use elinvar_msl::Toolchain;
use elinvar_ptx::{BUNDLE, Bundle};

// What build.rs has written of the bundle that `ELINVAR_BENCH_BUNDLE` named; empty if it named none.
include!(concat!(env!("OUT_DIR"), "/bench_bundle.rs"));

/// Compile a source of the benchmarks: with clang, or from the bundle that `ELINVAR_BUNDLE` names; on an NVIDIA GPU where neither
/// is, from what this program carries.
pub fn compile(device: &Device, name: impl Into<String>, text: &str) -> elinvar::Result<Library> {
    let source = Source::named(name, text);
    let named = std::env::var_os(BUNDLE).is_some_and(|path| !path.is_empty());
    if device.kind() != DeviceKind::Cuda || named {
        return device.compile(source);
    }
    match Toolchain::find() {
        Ok(_) => device.compile(source),
        Err(why) => device.compile(packed(BENCH_BUNDLE, &source).map_err(|error| error_of(&error, &why))?),
    }
}

/// Why there is neither a compiler nor a kernel.
fn error_of(error: &str, no_clang: &elinvar_msl::Error) -> Error {
    Error::Environment(format!(
        "{error}; `make elinvar` builds one that carries the kernels of the benchmarks for machines without clang\n{no_clang}"
    ))
}

/// The same source as a bundle has it.
fn packed(bundle: &[u8], source: &Source) -> Result<Source, String> {
    if bundle.is_empty() {
        return Err("this elinvar carries no compiled kernels".into());
    }
    let key = source.identity();
    let read = Bundle::from_bytes(bundle).map_err(|error| error.to_string())?;
    let name = source.files.first().map_or("", |file| &file.name);
    // By its text: kernels of another state of the benchmarks are not theirs.
    if !read.sources().any(|(_, known)| known == key) {
        return Err(format!("this elinvar carries compiled kernels, but not of `{name}` as it is"));
    }
    let files = vec![SourceFile { name: name.to_owned(), text: String::new() }];
    Ok(Source { files, packed: Some(Packed { bundle: bundle.into(), key }), ..Source::default() })
}

#[cfg(test)]
mod tests {
    use elinvar_cache::Cache;
    use elinvar_driver::PipelineOptions;
    use elinvar_ptx::{Compiler, Constants};

    use super::*;
    use crate::bench::checks::VECTOR_ADD;

    /// With a bundle of one source, and without any compiler.
    #[test]
    fn a_source_is_found_by_its_text() {
        let (source, options) = (Source::named("vector_add.metal", VECTOR_ADD), PipelineOptions::default());
        let target = elinvar_ptx::Target::default();
        let mut bundle = Bundle::default();
        let cache = elinvar_code::user_cache();
        let compiler = Compiler::packing(cache, &source, target, &mut bundle).unwrap();
        let made = compiler.pack("vector_add", &options, &mut bundle).unwrap();
        let bytes = bundle.to_bytes();

        let found = packed(&bytes, &source).unwrap();
        assert!(found.files[0].text.is_empty());
        let library = elinvar_ptx::Library::new(&Cache::off(), &found, target).unwrap();
        assert_eq!(library.declared().kernels[0].name, "vector_add");
        let ptx = library.kernel("vector_add", &options, Constants::Values).unwrap();
        assert!(ptx.text.contains(".entry") && ptx.text == made[0].text, "{}", ptx.text);

        let changed = Source::named("vector_add.metal", VECTOR_ADD.replace('+', "-"));
        assert!(packed(&bytes, &changed).unwrap_err().contains("not of `vector_add.metal` as it is"));
        assert!(packed(&bytes[..100], &source).unwrap_err().contains("bundle"));
    }

    #[test]
    fn without_a_bundle_the_error_says_how_to_get_one() {
        let source = Source::named("vector_add.metal", VECTOR_ADD);
        let why = packed(&[], &source).unwrap_err();
        let error = error_of(&why, &elinvar_msl::Error::Toolchain("no clang 19".into())).to_string();
        for text in ["carries no compiled kernels", "`make elinvar`", "no clang 19"] {
            assert!(error.contains(text), "{error}");
        }
    }
}
