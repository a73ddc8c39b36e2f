//! Runs the kernels of a corpus: one launch per case, with every output compared.
//!
//! A kernel that the device does not support runs in the reference interpreter, so that its reference is known to be correct when the
//! device supports it.

use std::borrow::Cow;
use std::path::Path;

use elinvar::{
    Access, Arg, CheckedKernel, Completion, Device, ElementType, Error, Grid, Kernel, Library, Scalar,
    Source, Stream, driver,
};
use elinvar_ir::Module;
use elinvar_msl::{Program, Toolchain};
use elinvar_reference::{Argument as Memory, Launch, run as interpret};

use super::kernels::{Argument, Case};

/// Result of a case.
pub(super) enum Fate {
    /// It ran, and every element is correct.
    Right,
    /// It ran with a wrong result, or failed to run.
    Wrong(String),
    /// The driver does not support the kernel, for this reason; its result in the interpreter is correct.
    Unsupported(String),
}

/// Environment of the cases.
pub(super) struct Runner {
    pub device: Device,
    /// Whether the kernels have bounds checks; an out-of-bounds access is then a wrong result.
    pub checked: bool,
}

/// A kernel with or without bounds checks.
enum Ready {
    Plain(Kernel),
    Checked(CheckedKernel),
}

impl Ready {
    fn arg(&self, index: usize) -> &driver::Arg {
        let signature = match self {
            Self::Plain(kernel) => kernel.signature(),
            Self::Checked(kernel) => kernel.signature(),
        };
        &signature.args[index]
    }

    fn count(&self) -> usize {
        match self {
            Self::Plain(kernel) => kernel.signature().args.len(),
            Self::Checked(kernel) => kernel.signature().args.len(),
        }
    }

    fn launch(&self, stream: &Stream, grid: Grid, args: Vec<Arg>) -> elinvar::Result<Completion> {
        match self {
            // SAFETY: the buffers of a case have the sizes that the kernel's definition requires for its arguments.
            #[allow(unsafe_code)]
            Self::Plain(kernel) => unsafe { kernel.launch(stream, grid, args) },
            Self::Checked(kernel) => kernel.launch(stream, grid, args),
        }
    }
}

impl Runner {
    /// Runs the cases of one file. If the file does not compile, all its cases are wrong.
    pub(super) fn file(&self, source: &Source, cases: &[Case]) -> Vec<Fate> {
        match self.device.compile(source.clone()) {
            Ok(library) => cases.iter().map(|case| self.fate(&library, source, case)).collect(),
            Err(error) => cases.iter().map(|_| Fate::Wrong(error.to_string())).collect(),
        }
    }

    fn fate(&self, library: &Library, source: &Source, case: &Case) -> Fate {
        match self.in_groups(library, case, case.group) {
            Ok(Ok(())) => Fate::Right,
            Ok(Err(wrong)) => Fate::Wrong(wrong),
            Err(Error::Unsupported(why)) => match Self::interpreted(source, case) {
                Ok(()) => Fate::Unsupported(why),
                Err(wrong) => Fate::Wrong(format!("in the reference interpreter: {wrong}")),
            },
            Err(error) => Fate::Wrong(error.to_string()),
        }
    }

    /// Runs a case in threadgroups of a size. The outer error is the device's, the inner one describes a wrong result.
    pub(super) fn in_groups(
        &self,
        library: &Library,
        case: &Case,
        [w, h, d]: [u32; 3],
    ) -> elinvar::Result<Result<(), String>> {
        let device = &self.device;
        let kernel = if self.checked {
            Ready::Checked(library.checked_kernel_with(&case.kernel, &case.constants)?)
        } else {
            Ready::Plain(library.kernel_with(&case.kernel, &case.constants)?)
        };
        let count = kernel.count();
        if count != case.arguments.len() {
            return Ok(Err(format!("the kernel has {count} parameters, the case {}", case.arguments.len())));
        }
        let (mut args, mut outputs) = (Vec::new(), Vec::new());
        for (index, argument) in case.arguments.iter().enumerate() {
            args.push(match argument {
                Argument::Bytes(bytes) => Arg::bytes(bytes.clone()),
                Argument::Threadgroup(bytes) => elinvar::Threadgroup::bytes(*bytes).into(),
                Argument::Buffer { scalar, before, after } => {
                    let mut buffer = device.buffer_with_data(before)?;
                    let writes = after.is_some() || kernel.arg(index).access == Access::ReadWrite;
                    let arg = if writes { Arg::from(&mut buffer) } else { Arg::from(&buffer) };
                    outputs.extend(after.as_ref().map(|check| (index, buffer, check)));
                    typed(arg, &kernel.arg(index).element, *scalar)
                }
            });
        }
        let stream = device.stream()?;
        let [x, y, z] = case.threads;
        let grid = Grid::threads((x, y, z)).group((w, h, d));
        kernel.launch(&stream, grid, args)?.wait()?;
        for (index, buffer, check) in outputs {
            if let Err(wrong) = (check.compare)(&buffer.to_vec()?) {
                let name = &kernel.arg(index).name;
                return Ok(Err(format!("argument {index} `{name}`: {wrong}")));
            }
        }
        Ok(Ok(()))
    }

    /// Runs the case in the interpreter.
    fn interpreted(source: &Source, case: &Case) -> Result<(), String> {
        let toolchain = Toolchain::find().map_err(|error| error.to_string())?;
        let program = Program::compile(&toolchain, source).map_err(|error| error.to_string())?;
        let code =
            program.specialize(&case.kernel, case.constants.values()).map_err(|error| error.to_string())?;
        let module = Module::parse(&code.ir).map_err(|error| error.to_string())?;
        let arguments = case.arguments.iter().map(|argument| match argument {
            Argument::Bytes(bytes) | Argument::Buffer { before: bytes, .. } => Memory::Bytes(bytes.clone()),
            Argument::Threadgroup(bytes) => Memory::Threadgroup(*bytes as u64),
        });
        let launch = Launch { threads: case.threads, group: case.group, arguments: arguments.collect() };
        let left = interpret(&module, &launch).map_err(|fault| fault.to_string())?;
        for (index, (argument, bytes)) in case.arguments.iter().zip(&left).enumerate() {
            if let Argument::Buffer { after: Some(check), .. } = argument {
                (check.compare)(bytes).map_err(|wrong| format!("argument {index}: {wrong}"))?;
            }
        }
        Ok(())
    }
}

/// The argument with its type. A parameter of type `char*` or `void*` accepts any type, because the kernel casts it.
fn typed(arg: Arg, element: &ElementType, scalar: Option<Scalar>) -> Arg {
    match (element, scalar) {
        (ElementType::Scalar(declared) | ElementType::Atomic(declared), None) => arg.of(*declared),
        (ElementType::Scalar(Scalar::I8), _) => arg.of(Scalar::I8),
        (ElementType::Other(_), _) | (_, None) => arg,
        (_, Some(scalar)) => arg.of(scalar),
    }
}

/// The source of a file with the options that its host compiles it with.
pub(super) fn source(corpus: &super::sources::Corpus, folder: &Path, name: &str) -> Result<Source, String> {
    let path = folder.join(corpus.folder).join(name);
    let text = corpus.text(folder, name).map_err(|error| format!("{error:#}"))?;
    let mut text = format!("{}{text}", corpus.prelude);
    for (placeholder, value) in corpus.replaced {
        text = text.replace(placeholder, value);
    }
    let mut source = Source::named(name, text);
    // As for a compiler that reads the file, its folder is searched first.
    if let Some(dir) = path.parent() {
        source = source.include_dir(dir);
    }
    for dir in corpus.include_dirs {
        source = source.include_dir(folder.join(dir));
    }
    for (macro_name, value) in corpus.defines {
        source = source.define(*macro_name, Some(value));
    }
    for (_, library) in corpus.libraries.iter().filter(|(file, _)| *file == name) {
        source = source.with_library(self::source(corpus, folder, library)?);
    }
    source.linked().map(Cow::into_owned).map_err(|error| error.to_string())
}
