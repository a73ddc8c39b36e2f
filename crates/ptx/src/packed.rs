//! A source whose kernels come from a bundle or are compiled on demand.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use elinvar_cache::{Cache, Key};
use elinvar_code::{Bundle, Declared, Variant, canonical, expect_kernel, kernel_key};
use elinvar_driver::{DeviceKind, Dim3, Error, Packed, PipelineOptions, Result, Signature, Source};

use crate::compiler::{Compiler, Constants, Ptx};
use crate::target::Target;

/// The environment variable with the path of a bundle. Its kernels take precedence over cache and compiler. They are
/// executed as is, so the file must be as trusted as a program.
pub const BUNDLE: &str = "ELINVAR_BUNDLE";

/// A source and the PTX of its kernels, from a bundle if one contains it.
pub struct Library {
    source: Source,
    target: Target,
    from: From,
}

enum From {
    Compiler(Box<Compiler>),
    Bundle(Arc<Bundle>, Declared),
}

impl Library {
    /// Loads a source from its own bundle or that of [`BUNDLE`], or compiles it.
    ///
    /// # Errors
    /// As [`Compiler::new`]; errors of the bundle.
    pub fn new(cache: &Cache, source: &Source, target: Target) -> Result<Self> {
        source.expect_no_metal_library()?;
        let own = source
            .packed
            .as_ref()
            .map(|packed| Bundle::from_bytes(&packed.bundle).map(Arc::new))
            .transpose()?;
        let bundle = if own.is_some() { own } else { bundle()? };
        let found = bundle.and_then(|bundle| Some((bundle.source(source)?, bundle)));
        let from = match found {
            Some((declared, bundle)) => From::Bundle(bundle, declared?),
            None if source.packed.is_some() => return Err(Error::invalid("the bundle has no such source")),
            None => From::Compiler(Box::new(Compiler::new(cache, source, target)?)),
        };
        Ok(Self { source: source.clone(), target, from })
    }

    /// Declarations of the source; a bundle does not list unsupported kernels.
    pub fn declared(&self) -> &Declared {
        match &self.from {
            From::Compiler(compiler) => compiler.declared(),
            From::Bundle(_, declared) => declared,
        }
    }

    /// [`Compiler::kernel`], from the bundle if it contains the source.
    ///
    /// # Errors
    /// As [`Compiler::kernel`]; `Unsupported` for a kernel or constants that the bundle lacks.
    pub fn kernel(&self, name: &str, options: &PipelineOptions, constants: Constants) -> Result<Ptx> {
        let (bundle, declared) = match &self.from {
            From::Compiler(compiler) => return compiler.kernel(name, options, constants),
            From::Bundle(bundle, declared) => (bundle, declared),
        };
        expect_kernel(declared, name)?;
        let options = &canonical(&declared.constants, options);
        // Without a variant with addresses, all launches use this one.
        let forms = [constants, Constants::Values];
        let keys = self
            .target
            .that_run()
            .flat_map(|target| forms.map(|constants| key(target, &self.source, name, options, constants)));
        let found = keys.into_iter().find_map(|key| bundle.get(&key));
        found.unwrap_or_else(|| {
            let what = if options.checked { "with bounds checks" } else { "without bounds checks" };
            let target = self.target;
            Err(Error::unsupported(format!(
                "the bundle has no kernel `{name}` for {target}, with these constants and {what}"
            )))
        })
    }
}

impl Library {
    /// Packs all variants of a kernel into a bundle of its own, from which another process creates a pipeline
    /// without a compiler. Returns the bundle and the kernel's signature.
    ///
    /// # Errors
    /// As [`Library::kernel`].
    pub fn pack(&self, name: &str, options: &PipelineOptions) -> Result<(Signature, Packed)> {
        let (mut bundle, source) = (Bundle::default(), &self.source);
        let declared = &self.declared().constants;
        let options = &canonical(declared, options);
        let mut insert = |constants, ptx: Ptx| {
            let key = key(self.target, source, name, options, constants);
            bundle.insert(&key, &Ok(ptx));
        };
        let values = self.kernel(name, options, Constants::Values)?;
        let signature = values.signature.clone();
        if values.takes_values() {
            insert(Constants::Addresses, self.kernel(name, options, Constants::Addresses)?);
        }
        insert(Constants::Values, values);
        let kernels = vec![signature.clone()];
        let declared = Declared { kernels, constants: declared.clone(), ..Declared::default() };
        bundle.insert_source(source, &Ok(declared));
        Ok((signature, Packed { bundle: bundle.to_bytes().into(), key: source.identity() }))
    }

    /// [`Compiler::check_group`]; with a bundle, for one-dimensional threadgroups.
    ///
    /// # Errors
    /// As there.
    pub fn check_group(&self, name: &str, options: &PipelineOptions, group: Dim3) -> Result<()> {
        let bundle = match &self.from {
            From::Compiler(compiler) => return compiler.check_group(name, options, group),
            From::Bundle(bundle, _) => bundle,
        };
        let options = &canonical(&self.declared().constants, options);
        let rows =
            (1..=ROWS).map(|power| 1 << power).filter(|x| *x <= group.x && (group.y, group.z) == (1, 1));
        let refused = rows.map(|x| row_key(&self.source, name, options, x));
        refused.into_iter().find_map(|key| bundle.get::<()>(&key)).unwrap_or(Ok(()))
    }
}

/// Logarithm (base 2) of the maximum size of one-dimensional threadgroups that are checked.
const ROWS: u32 = 10;

/// The key of the error for one-dimensional threadgroups of at least this size.
fn row_key(source: &Source, name: &str, options: &PipelineOptions, x: u32) -> Key {
    kernel_key(&format!("group {x}"), source, name, options)
}

/// The bundle that the environment names, read once.
fn bundle() -> Result<Option<Arc<Bundle>>> {
    static NAMED: LazyLock<Result<Option<Arc<Bundle>>>> = LazyLock::new(|| {
        let path = std::env::var_os(BUNDLE).filter(|path| !path.is_empty());
        path.map(|path| Bundle::open(Path::new(&path)).map(Arc::new)).transpose()
    });
    NAMED.clone()
}

fn key(target: Target, source: &Source, name: &str, options: &PipelineOptions, constants: Constants) -> Key {
    let kind = match constants {
        Constants::Values => format!("{target}"),
        Constants::Addresses => format!("{target} with addresses"),
    };
    kernel_key(&kind, source, name, options)
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

    /// Adds all variants of a kernel, or its error, to a bundle. Returns the compiled variants.
    ///
    /// # Errors
    /// As [`Compiler::kernel`].
    pub fn pack(&self, name: &str, options: &PipelineOptions, bundle: &mut Bundle) -> Result<Vec<Ptx>> {
        let options = &canonical(&self.declared().constants, options);
        let (target, kernel) = (DeviceKind::Cuda.name().to_owned(), name.to_owned());
        let variant = Variant { target, kernel, options: options.clone(), groups: Vec::new() };
        bundle.insert_variant(self.source(), variant);
        let mut made = Vec::new();
        for x in (1..=ROWS).map(|power| 1 << power) {
            let outcome = self.check_group(name, options, Dim3::from(x));
            if matches!(outcome, Err(Error::Compile(_))) {
                bundle.insert(&row_key(self.source(), name, options, x), &outcome);
                break;
            }
        }
        for constants in [Constants::Values, Constants::Addresses] {
            let outcome = self.kernel(name, options, constants);
            bundle.insert(&key(self.target(), self.source(), name, options, constants), &outcome);
            made.push(outcome?);
            if !made.iter().any(Ptx::takes_values) {
                break;
            }
        }
        Ok(made)
    }
}
