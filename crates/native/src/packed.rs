//! [`Library`]: a source whose kernels were compiled ahead of time, or are compiled on demand.
//!
//! Machine code is specific to a threadgroup size, so a bundle contains code for the sizes that were chosen when it was packed, and on
//! request general code, which serves other sizes of the same layout ([`RowSizes`](elinvar_spmd::RowSizes)). It is compiled for a level of
//! the processor architecture ([`Target::levels`]) and used on processors that support this level. Code for buffers above
//! [`SizeBound::DEFAULT`] is packed on request, as one form for all sizes.

use elinvar_cache::{Cache, Key};
use elinvar_code::{Bundle, Declared, Variant, canonical, expect_kernel, kernel_key};
use elinvar_driver::{DeviceKind, Dim3, Error, Packed, PipelineOptions, Result, Signature, Source, Tier};
use elinvar_spmd::SizeBound;

use crate::by_size::Made;
use crate::compiler::{Compiler, Form, Loaded, check_form};
use crate::object::Object;
use crate::specialization::Specialization;
use crate::target::{NATIVE, Target};

/// A source and the machine code of its kernels, which is read from the source's bundle if it has one.
pub struct Library {
    source: Source,
    from: From,
}

enum From {
    Compiler(Box<Compiler>),
    Bundle(Bundle, Declared),
}

impl Library {
    /// Loads a source from its own bundle, or compiles it.
    ///
    /// # Errors
    /// As [`Compiler::new`]; `InvalidArgument` for an invalid bundle.
    pub fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        source.expect_no_metal_library()?;
        let from = match &source.packed {
            Some(packed) => {
                let bundle = Bundle::from_bytes(&packed.bundle)?;
                let declared = bundle.source(source);
                let declared = declared.ok_or_else(|| Error::invalid("the bundle has no such source"))??;
                From::Bundle(bundle, declared)
            }
            None => From::Compiler(Box::new(Compiler::new(cache, source, target)?)),
        };
        Ok(Self { source: source.clone(), from })
    }

    /// Declarations of the source. A bundle does not list kernels that cannot be compiled.
    pub fn declared(&self) -> &Declared {
        match &self.from {
            From::Compiler(compiler) => compiler.declared(),
            From::Bundle(_, declared) => declared,
        }
    }

    /// As [`Compiler::signature`], from the bundle if there is one.
    ///
    /// # Errors
    /// As [`Compiler::signature`]; `Unsupported` if the bundle lacks the kernel, or lacks it with these constants.
    pub fn signature(&self, name: &str, options: &PipelineOptions) -> Result<Signature> {
        let (bundle, declared) = match &self.from {
            From::Compiler(compiler) => return compiler.signature(name, options),
            From::Bundle(bundle, declared) => (bundle, declared),
        };
        expect_kernel(declared, name)?;
        let options = &canonical(&declared.constants, options);
        let key = signature_key(&self.source, name, options);
        bundle.get(&key).unwrap_or_else(|| {
            let what = if options.checked { "with bounds checks" } else { "without bounds checks" };
            Err(Error::unsupported(format!(
                "the bundle has no kernel `{name}` for the CPU, with these constants and {what}"
            )))
        })
    }

    /// As [`Compiler::ir`].
    ///
    /// # Errors
    /// As [`Compiler::ir`]; `Unsupported` for a bundle, which has machine code only.
    pub fn ir(&self, name: &str, options: &PipelineOptions) -> Result<String> {
        match &self.from {
            From::Compiler(compiler) => compiler.ir(name, options),
            From::Bundle(..) => Err(Error::unsupported(format!(
                "kernel `{name}` is of a bundle, which has machine code and not the code of one thread"
            ))),
        }
    }

    /// As [`Compiler::specialization`]. A bundle has code for the sizes that it was packed for.
    pub fn specialization(&self, options: &PipelineOptions) -> Specialization {
        match &self.from {
            From::Compiler(compiler) => compiler.specialization(options),
            From::Bundle(..) => Specialization::ALWAYS,
        }
    }

    /// As [`Compiler::kernel_with`], from the bundle if there is one.
    ///
    /// # Errors
    /// As [`Compiler::kernel_with`]; `Unsupported` if the bundle lacks the kernel, or lacks it with these constants or this threadgroup size.
    pub fn kernel_with<T>(
        &self,
        name: &str,
        options: &PipelineOptions,
        form: Form,
        load: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<Loaded<T>> {
        match &self.from {
            From::Compiler(compiler) => compiler.kernel_with(name, options, form, load),
            From::Bundle(bundle, declared) => {
                let options = &canonical(&declared.constants, options);
                let object = object_of(bundle, &self.source, name, options, form)?;
                Ok(Loaded { loaded: load(&object.bytes)?, object, optimizable: false })
            }
        }
    }

    /// Packs one kernel in one form, so that another process of this machine can create a pipeline from it without a compiler. Also returns
    /// [`Loaded::optimizable`] and whether the code is optimized.
    ///
    /// # Errors
    /// As [`Library::kernel_with`].
    pub fn pack(&self, name: &str, options: &PipelineOptions, form: Form) -> Result<Made<Packed>> {
        let (signature, source) = (self.signature(name, options)?, &self.source);
        check_form(&signature, form)?;
        let Loaded { object, optimizable, .. } = self.kernel_with(name, options, form, |_| Ok(()))?;
        let (optimized, row_sizes) = (object.optimized, object.row_sizes);
        let mut bundle = Bundle::default();
        let constants = self.declared().constants.clone();
        let options = &canonical(&constants, options);
        let declared = Declared { kernels: vec![signature.clone()], constants, ..Declared::default() };
        bundle.insert_source(source, &Ok(declared));
        bundle.insert(&signature_key(source, name, options), &Ok(signature));
        bundle.insert(&object_key(source, name, options, NATIVE, form), &Ok(object));
        let code = Packed { bundle: bundle.to_bytes().into(), key: source.identity() };
        Ok(Made { code, optimized, optimizable, row_sizes })
    }
}

impl Compiler {
    /// Validates a source and adds its declarations, or its error, to a bundle.
    ///
    /// # Errors
    /// As [`Compiler::new`].
    pub fn packing(cache: &Cache, source: &Source, target: Target, bundle: &mut Bundle) -> Result<Self> {
        let compiled = Self::new(cache, source, target);
        let declared = |compiler: &Self| compiler.declared().clone();
        bundle.insert_source(source, &compiled.as_ref().map(declared).map_err(Clone::clone));
        compiled
    }

    /// Adds a kernel to a bundle, for threadgroups of these sizes and buffers of up to these sizes. With `general`, also its general code, if it
    /// has any.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn pack(
        &self,
        name: &str,
        options: &PipelineOptions,
        groups: &[Dim3],
        general: bool,
        bounds: &[SizeBound],
        bundle: &mut Bundle,
    ) -> Result<()> {
        let options = canonical(&self.declared().constants, options);
        let options = &PipelineOptions { tier: Tier::Optimized, ..options };
        let signature = self.signature(name, options)?;
        bundle.insert(&signature_key(self.source(), name, options), &Ok(signature));
        let (target, kernel) = (DeviceKind::Cpu.name().to_owned(), name.to_owned());
        let variant = Variant { target, kernel, options: options.clone(), groups: groups.to_vec() };
        bundle.insert_variant(self.source(), variant);
        let groups = groups.iter().copied().map(Some).chain(general.then_some(None));
        for (group, objects) in groups.flat_map(|group| bounds.iter().map(move |bound| (group, *bound))) {
            for stoppable in [false, true] {
                let form = Form { group, stoppable, objects };
                let object = self.kernel(name, options, form);
                if group.is_none() && matches!(object, Err(Error::Unsupported(_))) {
                    continue;
                }
                let key = object_key(self.source(), name, options, self.target().processor_name(), form);
                bundle.insert(&key, &object);
                object?;
            }
        }
        Ok(())
    }
}

fn signature_key(source: &Source, name: &str, options: &PipelineOptions) -> Key {
    kernel_key("cpu", source, name, options)
}

fn object_key(source: &Source, name: &str, options: &PipelineOptions, level: &str, form: Form) -> Key {
    let Form { group, stoppable, objects } = form;
    let size = size_of(group);
    let system = std::env::consts::OS;
    let buffers = match objects {
        SizeBound::DEFAULT => String::new(),
        larger => format!(" {}", larger.bytes()),
    };
    kernel_key(&format!("cpu {system} {level} {size} {stoppable}{buffers}"), source, name, options)
}

fn size_of(group: Option<Dim3>) -> String {
    group.map_or_else(|| "any size".into(), |Dim3 { x, y, z }| format!("{x}x{y}x{z}"))
}

/// Looks up a kernel's code in a bundle: for this threadgroup size and these buffers, for larger ones of any size, or general code that
/// serves the size.
fn object_of(
    bundle: &Bundle,
    source: &Source,
    name: &str,
    options: &PipelineOptions,
    form: Form,
) -> Result<Object> {
    let levels = Target::levels();
    let levels_of = |form: Form| {
        let mut levels = std::iter::once(&NATIVE).chain(&levels);
        levels.find_map(|level| bundle.get(&object_key(source, name, options, level, form)))
    };
    let is_large = form.objects > SizeBound::DEFAULT;
    let of = |form: Form| {
        let any = || is_large.then(|| levels_of(Form { objects: SizeBound::NONE, ..form })).flatten();
        levels_of(form).or_else(any)
    };
    let general = || {
        let group = form.group?.to_array();
        let serves = |object: &Result<Object>| {
            let sizes = object.as_ref().ok().and_then(|object| object.row_sizes);
            sizes.is_some_and(|sizes| sizes.contains(group))
        };
        of(Form { group: None, ..form }).filter(serves)
    };
    let size = size_of(form.group);
    of(form).or_else(general).unwrap_or_else(|| {
        let known = levels.join("`, `");
        let buffers = match is_large {
            true => format!(" and buffers above {} bytes (packed with `--large-buffers`)", SizeBound::DEFAULT.bytes()),
            false => String::new(),
        };
        Err(Error::unsupported(format!(
            "the bundle has no kernel `{name}` for threadgroups of {size}{buffers} on this processor (`{known}`)"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kernel void k(device int* out, uint i [[thread_position_in_grid]]) { out[i] = 7; }";

    fn library(packed: Packed) -> Library {
        let source = Source { packed: Some(packed), ..Source::default() };
        Library::new(&Cache::off(), &source, Target::new(None, None)).unwrap()
    }

    fn packing(source: &Source, bundle: &mut Bundle) -> Compiler {
        let target = Target::of(Target::levels()[0]).unwrap();
        Compiler::packing(&Cache::off(), source, target, bundle).unwrap()
    }

    fn form(threads: u32, stoppable: bool) -> Form {
        Form { group: Some(Dim3::from(threads)), stoppable, objects: SizeBound::DEFAULT }
    }

    #[test]
    fn code_for_large_buffers_is_packed_on_request() {
        let source = Source::msl(
            "kernel void k(device uchar* x, constant uint& n, uint i [[thread_position_in_grid]]) { x[i + n] = 7; }",
        );
        let options = PipelineOptions::default();
        let packed = |bounds: &[SizeBound]| {
            let mut bundle = Bundle::default();
            let compiler = packing(&source, &mut bundle);
            compiler.pack("k", &options, &[Dim3::from(64)], false, bounds, &mut bundle).unwrap();
            (library(Packed { bundle: bundle.to_bytes().into(), key: source.identity() }), compiler)
        };
        let large = |bound, stoppable| Form { objects: bound, ..form(64, stoppable) };
        let get = |library: &Library, form| {
            library.kernel_with("k", &options, form, |_| Ok(())).map(|loaded| loaded.object)
        };
        let (small, compiler) = packed(&[SizeBound::DEFAULT]);
        let error = get(&small, large(SizeBound::of(3 << 30), false)).unwrap_err().to_string();
        let expected = "no kernel `k` for threadgroups of 64x1x1 and buffers above 2147483648 bytes (packed with `--large-buffers`)";
        assert!(error.contains(expected), "{error}");
        let (both, _) = packed(&[SizeBound::DEFAULT, SizeBound::NONE]);
        for stoppable in [false, true] {
            let [narrow, wide] = [SizeBound::DEFAULT, SizeBound::NONE]
                .map(|bound| compiler.kernel("k", &options, large(bound, stoppable)).unwrap());
            assert_ne!(narrow, wide);
            assert_eq!(get(&both, form(64, stoppable)).unwrap(), narrow);
            for gib in [3, 12, 100] {
                assert_eq!(get(&both, large(SizeBound::of(gib << 30), stoppable)).unwrap(), wide);
            }
        }
        // Without a bound, code is for small buffers, too, but it is not used for them.
        let (only, _) = packed(&[SizeBound::NONE]);
        assert!(get(&only, form(64, false)).unwrap_err().to_string().contains("64x1x1 on this processor"));
    }

    #[test]
    fn general_code_serves_sizes_that_are_not_packed() {
        let source = Source::msl(TEXT);
        let mut bundle = Bundle::default();
        let compiler = packing(&source, &mut bundle);
        let options = PipelineOptions::default();
        compiler.pack("k", &options, &[Dim3::from(64)], true, &[SizeBound::DEFAULT], &mut bundle).unwrap();
        let packed = library(Packed { bundle: bundle.to_bytes().into(), key: source.identity() });
        let get = |form| packed.kernel_with("k", &options, form, |_| Ok(())).map(|loaded| loaded.object);
        for stoppable in [false, true] {
            let made = |group| compiler.kernel("k", &options, Form { group, ..form(64, stoppable) }).unwrap();
            let (own, general) = (made(Some(Dim3::from(64))), made(None));
            assert_ne!(own, general);
            assert_eq!(get(form(64, stoppable)).unwrap(), own);
            for threads in [96, 256, 1024] {
                assert_eq!(get(form(threads, stoppable)).unwrap(), general);
            }
            // Threads would be missing in most vectors.
            let error = get(form(1, stoppable)).unwrap_err().to_string();
            assert!(error.contains("no kernel `k` for threadgroups of 1x1x1"), "{error}");
        }
    }

    #[test]
    fn a_packed_kernel_is_the_kernel() {
        let source = Source::msl(TEXT);
        let mut bundle = Bundle::default();
        let compiler = packing(&source, &mut bundle);
        let options = PipelineOptions::default();
        compiler.pack("k", &options, &[Dim3::from(8)], false, &[SizeBound::DEFAULT], &mut bundle).unwrap();
        let key = source.identity();
        let library = library(Packed { bundle: bundle.to_bytes().into(), key });
        assert_eq!(library.declared(), compiler.declared());
        assert_eq!(library.signature("k", &options).unwrap(), compiler.signature("k", &options).unwrap());
        for stoppable in [false, true] {
            let made = compiler.kernel("k", &options, form(8, stoppable)).unwrap();
            let packed = library.kernel_with("k", &options, form(8, stoppable), |_| Ok(()));
            assert_eq!(packed.unwrap().object, made);
        }
        let absent =
            library.kernel_with("k", &options, form(16, false), |_| Ok(())).err().unwrap().to_string();
        assert!(absent.contains("no kernel `k` for threadgroups of 16x1x1"), "{absent}");
        let checked = PipelineOptions { checked: true, ..options };
        assert!(library.signature("k", &checked).unwrap_err().to_string().contains("with bounds checks"));
    }

    #[test]
    fn a_level_that_no_machine_has_is_refused() {
        let error = Target::of("z80").unwrap_err().to_string();
        assert!(error.starts_with("unsupported level `z80`; this machine supports `"), "{error}");
        assert!(Target::levels().iter().all(|level| Target::of(level).unwrap().processor_name() == *level));
    }

    #[test]
    fn a_kernel_for_another_process_is_packed_from_text_and_from_a_bundle() {
        let options = PipelineOptions::default();
        let compiled = Library::new(&Cache::off(), &Source::msl(TEXT), Target::from_env().unwrap()).unwrap();
        let bundled = library(compiled.pack("k", &options, form(8, false)).unwrap().code);
        let again = library(bundled.pack("k", &options, form(8, false)).unwrap().code);
        let object = |library: &Library, threads| -> Result<Object> {
            Ok(library.kernel_with("k", &options, form(threads, false), |_| Ok(()))?.object)
        };
        for library in [&bundled, &again] {
            assert_eq!(object(library, 8).unwrap(), object(&compiled, 8).unwrap());
            assert!(object(library, 16).unwrap_err().to_string().contains("16x1x1"));
        }
        let error = bundled.pack("k", &options, form(2048, false)).err().unwrap().to_string();
        assert!(error.contains("1 to 1024 threads"), "{error}");
    }
}
