//! Running a corpus's kernels: one launch for each case, every output compared.

use std::path::Path;

use elinvar::{Access, Arg, Device, ElementType, Error, Kernel, Library, Scalar, Source};

use super::kernels::{Argument, Case};

/// What became of a case.
pub(super) enum Fate {
    /// It ran, and every element is right.
    Right,
    /// It ran and left something wrong, or did not run though it should have.
    Wrong(String),
    /// The kernel is valid and beyond the driver, with its reason.
    Unsupported(String),
}

/// Run the cases of one file. A file that does not compile makes all its cases wrong.
pub(super) fn file(device: &Device, source: Source, cases: &[Case]) -> Vec<Fate> {
    match device.compile(source) {
        Ok(library) => cases.iter().map(|case| fate(device, &library, case)).collect(),
        Err(error) => cases.iter().map(|_| Fate::Wrong(error.to_string())).collect(),
    }
}

fn fate(device: &Device, library: &Library, case: &Case) -> Fate {
    match launch(device, library, case) {
        Ok(Ok(())) => Fate::Right,
        Ok(Err(wrong)) => Fate::Wrong(wrong),
        Err(Error::Unsupported(why)) => Fate::Unsupported(why),
        Err(error) => Fate::Wrong(error.to_string()),
    }
}

/// The outer error is the device's, the inner one says what is wrong.
fn launch(device: &Device, library: &Library, case: &Case) -> elinvar::Result<Result<(), String>> {
    let kernel = library.kernel_with(&case.kernel, &case.constants)?;
    let count = kernel.signature().args.len();
    if count != case.arguments.len() {
        return Ok(Err(format!("the kernel has {count} parameters, the case {}", case.arguments.len())));
    }
    let (mut args, mut outputs) = (Vec::new(), Vec::new());
    for (index, argument) in case.arguments.iter().enumerate() {
        args.push(match argument {
            Argument::Bytes(bytes) => Arg::bytes(bytes.clone()),
            Argument::Threadgroup(bytes) => elinvar::Threadgroup::bytes(*bytes).into(),
            Argument::Buffer { scalar, before, after } => {
                let mut buffer = device.buffer_from(before)?;
                let writes = after.is_some() || kernel.signature().args[index].access == Access::ReadWrite;
                let arg = if writes { Arg::from(&mut buffer) } else { Arg::from(&buffer) };
                outputs.extend(after.as_ref().map(|check| (index, buffer, check)));
                typed(arg, &kernel, index, *scalar)
            }
        });
    }
    let stream = device.stream()?;
    // SAFETY: the case's buffers are as large as the kernel's definition asks for with these arguments.
    #[allow(unsafe_code)]
    let done = unsafe { kernel.launch(&stream, case.grid, args) }?;
    done.wait()?;
    for (index, buffer, check) in outputs {
        if let Err(wrong) = (check.compare)(&buffer.to_vec()?) {
            let name = &kernel.signature().args[index].name;
            return Ok(Err(format!("argument {index} `{name}`: {wrong}")));
        }
    }
    Ok(Ok(()))
}

/// The argument with its type. A parameter of `char*` or `void*` takes any, since the kernel casts it.
fn typed(arg: Arg, kernel: &Kernel, index: usize, scalar: Option<Scalar>) -> Arg {
    match (&kernel.signature().args[index].element, scalar) {
        (ElementType::Scalar(declared), None) => arg.of(*declared),
        (ElementType::Scalar(Scalar::I8), _) => arg.of(Scalar::I8),
        (ElementType::Other(_), _) | (_, None) => arg,
        (_, Some(scalar)) => arg.of(scalar),
    }
}

/// The source of a file as its host compiles it.
pub(super) fn source(corpus: &super::sources::Corpus, folder: &Path, name: &str) -> Result<Source, String> {
    let path = folder.join(corpus.folder).join(name);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut source = Source::named(name, text);
    for dir in corpus.include_dirs {
        source = source.include_dir(folder.join(dir));
    }
    for (macro_name, value) in corpus.defines {
        source = source.define(*macro_name, Some(value));
    }
    Ok(source)
}
