//! [`PackedSource`]: a source in a bundle, as [`Packer`](crate::Packer) has written it.

use elinvar_code::{Bundle, Declared, canonical, expect_kernel};
use elinvar_driver::{Error, Packed, PipelineOptions, Result, Source};

use crate::packer::{Code, Known, code_key, known_key};

/// A source in a bundle.
pub(crate) struct PackedSource {
    source: Source,
    bundle: Bundle,
    pub(crate) declared: Declared,
}

impl PackedSource {
    /// Opens a source's bundle. Returns what Metal is given, too.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid bundle; `Unsupported` if it has nothing for Metal; the error with which the source was rejected.
    pub(crate) fn open(source: &Source, packed: &Packed) -> Result<(Self, Code)> {
        let bundle = Bundle::from_bytes(&packed.bundle)?;
        let declared = bundle.source(source);
        let declared = declared.ok_or_else(|| Error::invalid("the bundle has no such source"))??;
        let code = bundle.get(&code_key(source)).unwrap_or_else(|| {
            let name = source.files.first().map_or("", |file| &file.name);
            Err(Error::unsupported(format!(
                "the bundle has nothing of `{name}` for Metal (`elinvar pack --target metal`)"
            )))
        })?;
        Ok((Self { source: source.clone(), bundle, declared }, code))
    }

    /// What is known of a kernel.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel; `Unsupported` if the bundle lacks it with these options; its error from packing.
    pub(crate) fn kernel(&self, name: &str, options: &PipelineOptions) -> Result<Known> {
        expect_kernel(&self.declared, name)?;
        let options = canonical(&self.declared.constants, options);
        self.bundle.get(&known_key(&self.source, name, &options)).unwrap_or_else(|| {
            let what = if options.checked { "with bounds checks" } else { "without bounds checks" };
            Err(Error::unsupported(format!(
                "the bundle has no kernel `{name}` for Metal, with these constants and {what}"
            )))
        })
    }
}

#[cfg(test)]
mod tests {
    use elinvar_code::user_cache;
    use elinvar_driver::{Constant, MathMode, Scalar};

    use super::*;
    use crate::Packer;

    const TEXT: &str = "constant uint N [[function_constant(2)]];\n\
        constant bool used [[function_constant(0)]];\n\
        kernel void k(device float* out [[buffer(1)]], constant float& x [[buffer(0)]],\n\
            device float* more [[buffer(2), function_constant(used)]], uint i [[thread_position_in_grid]]) {\n\
            out[i] = x + N; }\n\
        kernel void own(device float* out, uint i [[thread_position_in_grid]]) {\n\
            float a[4] = {1}; a[i] = 2; out[i] = a[out[0] > 1]; }\n";

    fn source() -> Source {
        Source::named("k.metal", format!("#include <metal_stdlib>\nusing namespace metal;\n{TEXT}"))
    }

    fn with(constants: &[(&str, Scalar, &[u8])], checked: bool) -> PipelineOptions {
        let constant = |(name, scalar, bytes): &(&str, Scalar, &[u8])| Constant {
            key: (*name).into(),
            scalar: *scalar,
            bytes: bytes.to_vec(),
        };
        let constants = constants.iter().map(constant).collect();
        PipelineOptions { constants, checked, ..PipelineOptions::default() }
    }

    fn packed(bundle: &Bundle, source: &Source) -> Source {
        let key = source.identity();
        let packed = Some(Packed { bundle: bundle.to_bytes().into(), key });
        Source { packed, ..Source::named("k.metal", "") }
    }

    #[test]
    fn signatures_are_those_of_the_front_end_with_the_same_constants() {
        let (source, mut bundle) = (source(), Bundle::default());
        let packer = Packer::new(user_cache(), &source, None, &mut bundle).unwrap();
        let seven = [7, 0, 0, 0];
        for used in [0, 1] {
            let options = with(&[("used", Scalar::Bool, &[used]), ("N", Scalar::U32, &seven)], false);
            packer.pack("k", &options, &mut bundle).unwrap();
        }
        let checked = with(&[("N", Scalar::U32, &seven), ("used", Scalar::Bool, &[0])], true);
        packer.pack("k", &checked, &mut bundle).unwrap();
        packer.pack("own", &with(&[], false), &mut bundle).unwrap();
        let why = packer.pack("own", &with(&[], true), &mut bundle).unwrap_err();
        assert!(why.to_string().contains("a private array may be accessed out of bounds"), "{why}");
        let missing = packer.pack("k", &with(&[], false), &mut bundle).unwrap_err();
        assert!(matches!(&missing, Error::InvalidArgument(_)), "{missing}");

        let loaded = packed(&bundle, &source);
        let (opened, code) = PackedSource::open(&loaded, loaded.packed.as_ref().unwrap()).unwrap();
        assert!(matches!(code, Code::Text(text) if text.contains("kernel void own(")));
        assert_eq!(&opened.declared.kernels, &packer.declared().kernels);
        let toolchain = elinvar_msl::Toolchain::find_with(user_cache()).unwrap();
        let program = elinvar_msl::Program::compile(&toolchain, &source).unwrap();
        for (used, args) in [(0, 2), (1, 3)] {
            // In another order, and one by index.
            let mut options = with(&[("N", Scalar::U32, &seven), ("used", Scalar::Bool, &[used])], false);
            options.constants[1].key = 0.into();
            let (signature, steering) = opened.kernel("k", &options).unwrap();
            let expected = program.specialize("k", &options.constants).unwrap().signature;
            assert_eq!((signature.args.len(), &signature.args), (args, &expected.args));
            assert_eq!((&signature.builtins, signature.line), (&expected.builtins, expected.line));
            assert!(signature.code.is_some(), "facts about the code are known");
            assert_eq!(steering, 0, "it reads values only");
        }
        assert!(opened.kernel("k", &checked).is_ok());
        let refused = |name, options: &PipelineOptions| opened.kernel(name, options).unwrap_err().to_string();
        assert!(refused("own", &with(&[], true)).contains("a private array"));
        let other = with(&[("N", Scalar::U32, &[8, 0, 0, 0]), ("used", Scalar::Bool, &[0])], false);
        assert_eq!(
            refused("k", &other),
            "unsupported: the bundle has no kernel `k` for Metal, with these constants and without bounds checks"
        );
        assert_eq!(refused("l", &other), "no kernel `l` in the packed source; it has `k`, `own`");
    }

    #[test]
    fn a_library_takes_the_place_of_the_text() {
        let (source, mut bundle) = (source().math(MathMode::Safe), Bundle::default());
        Packer::new(user_cache(), &source, Some(b"MTLB"), &mut bundle).unwrap();
        let bytes = bundle.to_bytes();
        assert!(!bytes.windows(9).any(|part| part == b"a[i] = 2;"), "the text is not in the bundle");
        let loaded = packed(&bundle, &source);
        let (_, code) = PackedSource::open(&loaded, loaded.packed.as_ref().unwrap()).unwrap();
        assert_eq!(code, Code::Library(serde_bytes::ByteBuf::from(*b"MTLB")));
    }

    #[test]
    fn a_source_that_was_packed_for_others_or_rejected_is_refused() {
        let mut bundle = Bundle::default();
        let wrong = Source::named("w.metal", "kernel void k() { x; }");
        assert!(matches!(Packer::new(user_cache(), &wrong, None, &mut bundle), Err(Error::Compile(_))));
        let plain = source();
        bundle.insert_source(&plain, &Ok(Declared::default()));
        let open = |source: &Source| {
            let loaded = packed(&bundle, source);
            PackedSource::open(&loaded, loaded.packed.as_ref().unwrap()).map(drop).unwrap_err().to_string()
        };
        assert!(open(&wrong).contains("use of undeclared identifier 'x'"));
        assert_eq!(
            open(&plain),
            "unsupported: the bundle has nothing of `k.metal` for Metal (`elinvar pack --target metal`)"
        );
        assert!(open(&Source::msl("other")).contains("no such source"));
    }
}
