//! Kernels that were compiled ahead, and packing them.
//!
//! Machine code is made for a threadgroup's size, so a bundle has code for the sizes that were chosen when it was packed. It is made
//! for a level of the processor's architecture, and used where the processor has that level.

use std::sync::Arc;

use elinvar_cache::{Cache, Key};
use elinvar_code::{Bundle, Declared, kernel_key};
use elinvar_driver::{
    Diagnostic, Dim3, Error, FunctionConstant, Library, Pipeline, PipelineOptions, Result, Signature, Source,
};
use elinvar_msl::record;

use crate::compile::CpuLibrary;
use crate::kept::Object;
use crate::kernel::{CpuPipeline, Form, Kernel};
use crate::loader::Code;
use crate::target::Target;

/// The level of code for this very processor, which goes from one process to another and into no file.
pub(crate) const NATIVE: &str = "native";

/// Compiles a source for a level of this machine's architecture, into bundles.
pub struct Packer {
    library: CpuLibrary,
    source: Source,
    level: String,
}

impl Packer {
    /// The levels that can be packed for, as clang names them, the highest first. Those that this machine has not are left out.
    pub fn levels() -> Vec<&'static str> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            // What each level has and those below have not; the rest comes with these.
            let levels = [
                ("x86-64", true),
                ("x86-64-v2", has!("sse4.2") && has!("popcnt")),
                ("x86-64-v3", has!("avx2") && has!("fma") && has!("bmi2") && has!("f16c") && has!("lzcnt")),
                ("x86-64-v4", has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")),
            ];
            let here = levels.iter().take_while(|(_, is_here)| *is_here).count();
            levels[..here].iter().rev().map(|(name, _)| *name).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            vec!["generic"]
        }
    }

    /// Check a source and add it to a bundle: what it declares, or why it is refused.
    ///
    /// # Errors
    /// `Compile` with the diagnostics; `InvalidArgument` for a level that is none of [`Packer::levels`].
    pub fn new(cache: &Cache, source: &Source, level: &str, bundle: &mut Bundle) -> Result<Self> {
        let levels = Self::levels();
        if !levels.contains(&level) {
            let known = levels.join("`, `");
            return Err(Error::invalid(format!(
                "`{level}` is no level that this machine has; it has `{known}`"
            )));
        }
        let library = CpuLibrary::new(cache, source, Target::new(Some(level), None));
        let declared = |library: &CpuLibrary| Declared {
            kernels: library.kernels().to_vec(),
            constants: library.constants().to_vec(),
            warnings: library.warnings().to_vec(),
        };
        bundle.insert_source(source, &library.as_ref().map(declared).map_err(Clone::clone));
        Ok(Self { library: library?, source: source.clone(), level: level.to_owned() })
    }

    /// What the source has.
    pub fn library(&self) -> &dyn Library {
        &self.library
    }

    /// Add a kernel to a bundle, for threadgroups of these sizes.
    ///
    /// # Errors
    /// As [`Library::pipeline`] and [`Pipeline::prepare`].
    pub fn pack(
        &self,
        name: &str,
        options: &PipelineOptions,
        groups: &[Dim3],
        bundle: &mut Bundle,
    ) -> Result<()> {
        let (origin, thread) = self.library.thread(name, options)?;
        let signature = origin.signature.clone();
        let write = |w: &mut elinvar_cache::Writer, s: &Signature| record::write_signature(w, s);
        bundle.insert(&signature_key(&self.source, name, options), &Ok(signature), write);
        for group in groups {
            for stoppable in [false, true] {
                let form = Form { group: *group, stoppable };
                let object = self.library.object(&origin, &thread, form).map(|object| object.write());
                let key = object_key(&self.source, name, options, &self.level, form);
                bundle.insert(&key, &object, |w, bytes| w.bytes(bytes));
                object?;
            }
        }
        Ok(())
    }
}

pub(crate) fn signature_key(source: &Source, name: &str, options: &PipelineOptions) -> Key {
    kernel_key("cpu", source, name, options)
}

pub(crate) fn object_key(
    source: &Source,
    name: &str,
    options: &PipelineOptions,
    level: &str,
    form: Form,
) -> Key {
    let Form { group: Dim3 { x, y, z }, stoppable } = form;
    let system = std::env::consts::OS;
    kernel_key(&format!("cpu {system} {level} {x}x{y}x{z} {stoppable}"), source, name, options)
}

/// The library of a source in a bundle.
pub(crate) fn library(source: &Source) -> Result<Arc<dyn Library>> {
    let packed = source.packed.as_ref().ok_or_else(|| Error::invalid("the source is in no bundle"))?;
    let bundle = Bundle::from_bytes(&packed.bundle)?;
    let declared = bundle.source(source).ok_or_else(|| Error::invalid("the bundle has no such source"))??;
    Ok(Arc::new(PackedLibrary { bundle: Arc::new(bundle), declared, source: source.clone() }))
}

struct PackedLibrary {
    bundle: Arc<Bundle>,
    declared: Declared,
    source: Source,
}

impl Library for PackedLibrary {
    fn kernels(&self) -> &[Signature] {
        &self.declared.kernels
    }

    fn warnings(&self) -> &[Diagnostic] {
        &self.declared.warnings
    }

    fn constants(&self) -> &[FunctionConstant] {
        &self.declared.constants
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        let key = signature_key(&self.source, kernel, options);
        let signature = self.bundle.get(&key, record::read_signature).unwrap_or_else(|| {
            let what = if options.checked { "with bounds checks" } else { "without bounds checks" };
            Err(Error::unsupported(format!(
                "the bundle has no kernel `{kernel}` for the CPU, with these constants and {what}"
            )))
        })?;
        let (bundle, source) = (self.bundle.clone(), self.source.clone());
        let (options, of) = (options.clone(), signature.clone());
        let build = move |form| kernel_of(&bundle, &source, &of, &options, form);
        Ok(Arc::new(CpuPipeline::new(signature, Arc::new(build))))
    }
}

fn kernel_of(
    bundle: &Bundle,
    source: &Source,
    signature: &Signature,
    options: &PipelineOptions,
    form: Form,
) -> Result<Kernel> {
    let object = object_of(bundle, source, &signature.name, options, form)?;
    let code = Code::from_bytes(&object.bytes, elinvar_spmd::SYMBOL)?;
    Ok(object.kernel(code, signature))
}

/// A kernel's code in a bundle.
pub(crate) fn object_of(
    bundle: &Bundle,
    source: &Source,
    name: &str,
    options: &PipelineOptions,
    form: Form,
) -> Result<Object> {
    let levels = Packer::levels();
    let keys = std::iter::once(&NATIVE).chain(&levels);
    let mut keys = keys.map(|level| object_key(source, name, options, level, form));
    let found = keys.find_map(|key| bundle.get(&key, |r| Object::read(r.bytes()?)));
    let Dim3 { x, y, z } = form.group;
    found.unwrap_or_else(|| {
        let known = levels.join("`, `");
        Err(Error::unsupported(format!(
            "the bundle has no kernel `{name}` for threadgroups of {x}x{y}x{z} on this processor (`{known}`)"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_kernel_is_the_kernel() {
        let source =
            Source::msl("kernel void k(device int* out, uint i [[thread_position_in_grid]]) { out[i] = 7; }");
        let mut bundle = Bundle::default();
        let level = Packer::levels()[0];
        let packer = Packer::new(&Cache::off(), &source, level, &mut bundle).unwrap();
        let options = PipelineOptions::default();
        packer.pack("k", &options, &[Dim3::from(8)], &mut bundle).unwrap();
        let key = *elinvar_code::source_key(&source).as_bytes();
        let packed = elinvar_driver::Packed { bundle: bundle.to_bytes().into(), key };
        let library = library(&Source { packed: Some(packed), ..Source::default() }).unwrap();
        let pipeline = library.pipeline("k", &options).unwrap();
        pipeline.prepare(Dim3::from(8)).unwrap();
        pipeline.stoppable().unwrap().prepare(Dim3::from(8)).unwrap();
        let error = pipeline.prepare(Dim3::from(16)).unwrap_err().to_string();
        assert!(error.contains("no kernel `k` for threadgroups of 16x1x1"), "{error}");
        let checked = PipelineOptions { checked: true, ..options };
        assert!(library.pipeline("k", &checked).unwrap_err().to_string().contains("with bounds checks"));
        assert!(Packer::new(&Cache::off(), &source, "z80", &mut bundle).is_err());
    }
}
