//! Kernels compiled for this machine and loaded by another process: what a device in a worker process runs.
//!
//! The compiler runs in this process, as for the device itself, with the same cache. A kernel's code for one threadgroup size goes
//! to the other process in a bundle of its own, so that it needs neither a compiler nor files.

use std::sync::Arc;

use elinvar_cache::Cache;
use elinvar_code::{Bundle, Declared, source_key};
use elinvar_driver::{Dim3, Library, Packed, PipelineOptions, Result, Signature, Source};
use elinvar_msl::record;

use crate::compile::CpuLibrary;
use crate::kept::Object;
use crate::kernel::{self, Form};
use crate::packed::{NATIVE, library, object_key, object_of, signature_key};
use crate::target::Target;

/// A source that is compiled for this machine, whose code is loaded elsewhere.
pub struct Unloaded {
    from: From,
    source: Source,
}

enum From {
    Compiler(Arc<CpuLibrary>),
    Bundle { bundle: Arc<Bundle>, library: Arc<dyn Library> },
}

impl Unloaded {
    /// Check a source with the compiler that is found, by way of a cache; or take it from its bundle.
    ///
    /// # Errors
    /// As [`elinvar_driver::Device::compile`].
    pub fn new(cache: &Cache, source: &Source) -> Result<Self> {
        source.expect_no_metal_library()?;
        let from = match &source.packed {
            Some(packed) => From::Bundle {
                bundle: Arc::new(Bundle::from_bytes(&packed.bundle)?),
                library: library(source)?,
            },
            None => From::Compiler(Arc::new(CpuLibrary::new(cache, source, Target::from_env()?)?)),
        };
        Ok(Self { from, source: source.clone() })
    }

    /// What the source declares. Its pipelines are for this process.
    pub fn library(&self) -> &dyn Library {
        match &self.from {
            From::Compiler(library) => &**library,
            From::Bundle { library, .. } => &**library,
        }
    }

    /// A kernel, specialized.
    ///
    /// # Errors
    /// As [`Library::pipeline`].
    pub fn kernel(&self, name: &str, options: &PipelineOptions) -> Result<UnloadedKernel> {
        let (source, options) = (self.source.clone(), options.clone());
        let (signature, build): (_, Build) = match &self.from {
            From::Compiler(library) => {
                let (origin, thread) = library.thread(name, &options)?;
                let (signature, library) = (origin.signature.clone(), library.clone());
                (signature, Box::new(move |form| library.object(&origin, &thread, form)))
            }
            From::Bundle { bundle, library } => {
                let signature = library.pipeline(name, &options)?.signature().clone();
                let (bundle, source) = (bundle.clone(), source.clone());
                let (name, options) = (name.to_owned(), options.clone());
                let build = move |form| object_of(&bundle, &source, &name, &options, form);
                (signature, Box::new(build))
            }
        };
        Ok(UnloadedKernel { signature, source, options, build })
    }
}

type Build = Box<dyn Fn(Form) -> Result<Object> + Send + Sync>;

/// A kernel that can be compiled for any threadgroup size within its limit, and is loaded elsewhere.
pub struct UnloadedKernel {
    signature: Signature,
    source: Source,
    options: PipelineOptions,
    build: Build,
}

impl UnloadedKernel {
    /// What the kernel takes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// What it was specialized with.
    pub fn options(&self) -> &PipelineOptions {
        &self.options
    }

    /// Largest threadgroup.
    pub fn max_threads(&self) -> u32 {
        kernel::max_threads(&self.signature)
    }

    /// Its code for threadgroups of a size, in a bundle that has nothing else. A device of this driver, in any process of this
    /// machine, makes a pipeline of it.
    ///
    /// # Errors
    /// As [`elinvar_driver::Pipeline::prepare`].
    pub fn pack(&self, group: Dim3, stoppable: bool) -> Result<Packed> {
        kernel::check_group(&self.signature, group)?;
        let form = Form { group, stoppable };
        let (name, source, options) = (&self.signature.name, &self.source, &self.options);
        let object = (self.build)(form)?.write();
        let mut bundle = Bundle::default();
        let declared = Declared { kernels: vec![self.signature.clone()], ..Declared::default() };
        bundle.insert_source(source, &Ok(declared));
        let key = signature_key(source, name, options);
        bundle.insert(&key, &Ok(&self.signature), |w, signature| record::write_signature(w, signature));
        let key = object_key(source, name, options, NATIVE, form);
        bundle.insert(&key, &Ok(object), |w, bytes| w.bytes(bytes));
        Ok(Packed { bundle: bundle.to_bytes().into(), key: *source_key(source).as_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_kernel_is_a_kernel_of_the_driver_from_text_and_from_a_bundle() {
        let text = "kernel void k(device int* out, uint i [[thread_position_in_grid]]) { out[i] = 7; }";
        let (options, group) = (PipelineOptions::default(), Dim3::from(8));
        let unloaded = Unloaded::new(&Cache::off(), &Source::msl(text)).unwrap();
        let packed = unloaded.kernel("k", &options).unwrap().pack(group, false).unwrap();
        let bundled = Source { packed: Some(packed), ..Source::default() };
        let again = Unloaded::new(&Cache::off(), &bundled).unwrap();
        let kernel = again.kernel("k", &options).unwrap();
        let repacked = Source { packed: Some(kernel.pack(group, false).unwrap()), ..Source::default() };
        for source in [&bundled, &repacked] {
            let pipeline = library(source).unwrap().pipeline("k", &options).unwrap();
            pipeline.prepare(group).unwrap();
            assert!(pipeline.prepare(Dim3::from(16)).unwrap_err().to_string().contains("16x1x1"));
        }
        assert_eq!(kernel.max_threads(), 1024);
        let error = kernel.pack(Dim3::from(2048), false).unwrap_err().to_string();
        assert!(error.contains("1 to 1024 threads"), "{error}");
    }
}
