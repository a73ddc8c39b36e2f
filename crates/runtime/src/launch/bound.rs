//! [`BoundKernel`]: a kernel written in Rust with its arguments.
//!
//! `#[elinvar::kernel]` generates the code that makes one. Types and lengths are known when the user's crate is compiled, so what remains is
//! the compilation of the MSL for a device, which happens once for each device, instance and set of function constants.

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::Pod;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, MathMode, Pipeline, Result, Source, SourceFile};
use elinvar_kernel::KernelType;

use crate::launch::args::ArgList;
use crate::{
    Arg, Buffer, BufferSlice, BufferSliceMut, CheckedKernel, CommandBuffer, Completion, ConstantValue,
    Constants, Device, Grid, Kernel, KernelOptions, Stream, Threadgroup,
};

/// What a kernel's `&[T]` takes: a `&Buffer<T>` or a slice of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a kernel reads",
    label = "expected `&Buffer<T>` or a slice of a buffer",
    note = "pass a shared reference to a buffer of the parameter's element type"
)]
pub trait ReadArg {
    /// The type of the elements.
    type Element: Pod;
    /// The argument, and the number of its elements.
    fn argument(self) -> (Arg, usize);
}

/// What a kernel's `&mut [T]` takes: a `&mut Buffer<T>` or a mutable slice of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a kernel writes",
    label = "expected `&mut Buffer<T>` or a mutable slice of a buffer",
    note = "pass a mutable reference to a buffer of the parameter's element type"
)]
pub trait WriteArg {
    /// The type of the elements.
    type Element: Pod;
    /// The argument, and the number of its elements.
    fn argument(self) -> (Arg, usize);
}

macro_rules! arguments {
    ($trait:ident: $($ty:ty),*) => {$(
        impl<T: Pod> $trait for $ty {
            type Element = T;

            fn argument(self) -> (Arg, usize) {
                let length = self.len();
                (self.into(), length)
            }
        }
    )*};
}
arguments!(ReadArg: &Buffer<T>, BufferSlice<'_, T>, &BufferSlice<'_, T>, &BufferSliceMut<'_, T>);
arguments!(WriteArg: &mut Buffer<T>, BufferSliceMut<'_, T>, &mut BufferSliceMut<'_, T>);

/// A kernel written in Rust, an instance of it for types and constants, with arguments.
#[derive(Clone)]
pub struct BoundKernel {
    name: &'static str,
    text: &'static str,
    math: MathMode,
    instance: String,
    arguments: ArgList,
    lengths: ArgList,
    constants: Constants,
}

impl BoundKernel {
    #[doc(hidden)]
    pub fn new(
        name: &'static str,
        text: &'static str,
        math: MathMode,
        types: &[(&'static str, &'static str)],
        constants: &[(&'static str, &'static str, String)],
    ) -> Self {
        let mut instance = String::new();
        for (name, ty) in types {
            instance.push_str(&format!("using {name} = {ty};\n"));
        }
        for (name, ty, value) in constants {
            instance.push_str(&format!("constant constexpr {ty} {name} = {value};\n"));
        }
        Self {
            name,
            text,
            math,
            instance,
            arguments: ArgList::new(),
            lengths: ArgList::new(),
            constants: Constants::new(),
        }
    }

    fn buffer(&mut self, (argument, length): (Arg, usize), with_length: bool) -> Result<()> {
        let Ok(counted) = u32::try_from(length) else {
            let (name, index) = (self.name, self.arguments.len());
            return Err(Error::invalid(format!(
                "kernel `{name}`: argument {index} has {length} elements, but kernels written in Rust index at most {}",
                u32::MAX
            )));
        };
        self.arguments.push(argument);
        if with_length {
            self.lengths.push(counted.into());
        }
        Ok(())
    }

    #[doc(hidden)]
    pub fn read(&mut self, argument: impl ReadArg, with_length: bool) -> Result<()> {
        self.buffer(argument.argument(), with_length)
    }

    #[doc(hidden)]
    pub fn write(&mut self, argument: impl WriteArg, with_length: bool) -> Result<()> {
        self.buffer(argument.argument(), with_length)
    }

    #[doc(hidden)]
    pub fn threadgroup<T: Pod>(&mut self, length: usize, with_length: bool) -> Result<()> {
        self.buffer((Threadgroup::of::<T>(length).into(), length), with_length)
    }

    #[doc(hidden)]
    pub fn value<T: KernelType>(&mut self, value: T) {
        self.arguments.push(Arg::value(&value));
    }

    #[doc(hidden)]
    pub fn flag(&mut self, value: bool) {
        self.arguments.push(value.into());
    }

    #[doc(hidden)]
    pub fn constant(&mut self, name: &str, value: impl ConstantValue) {
        self.constants = std::mem::take(&mut self.constants).set(name, value);
    }

    /// The Metal Shading Language that is compiled, with `#line` directives that name the Rust file.
    pub fn source(&self) -> Source {
        let file = |name: String, text: &str| SourceFile { name, text: text.into() };
        let mut files = Vec::new();
        if !self.instance.is_empty() {
            let head = format!("#include <metal_stdlib>\nusing namespace metal;\n{}", self.instance);
            files.push(file(format!("{}.instance.metal", self.name), &head));
        }
        files.push(file(format!("{}.metal", self.name), self.text));
        Source { files, math: self.math, ..Source::default() }
    }

    /// The compiled kernel with checks, as for [`CheckedKernel::launch`] with [`BoundKernel::arguments`].
    ///
    /// # Errors
    /// As [`Device::compile`] and [`crate::Library::checked_kernel`].
    pub fn checked_kernel(&self, device: &Device) -> Result<CheckedKernel> {
        Ok(CheckedKernel { kernel: self.compiled(device, true)? })
    }

    /// The compiled kernel without checks.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`crate::Library::kernel`].
    pub fn kernel(&self, device: &Device) -> Result<Kernel> {
        self.compiled(device, false)
    }

    /// The arguments in the order of the kernel's parameters in MSL: those of the function, then the lengths of slices that it uses.
    pub fn arguments(&self) -> ArgList {
        self.arguments.iter().chain(&self.lengths).cloned().collect()
    }

    fn compiled(&self, device: &Device, checked: bool) -> Result<Kernel> {
        let key = Key {
            text: self.text,
            name: self.name,
            instance: self.instance.clone(),
            constants: format!("{:?}", self.constants.values()),
            checked,
        };
        device.rust_kernels().kernel(device, key, || {
            let library = device.compile(self.source())?;
            let options = KernelOptions::new().constants(&self.constants);
            if checked {
                return Ok(library.checked_kernel_with(self.name, options)?.kernel);
            }
            library.kernel_with(self.name, options)
        })
    }

    /// Launches the kernel with checks of each access.
    ///
    /// # Errors
    /// As [`CheckedKernel::launch`] and [`BoundKernel::checked_kernel`].
    pub fn launch(&self, stream: &Stream, grid: Grid) -> Result<Completion> {
        self.checked_kernel(stream.device())?.launch(stream, grid, self.arguments())
    }

    /// Adds a launch with checks to a command buffer.
    ///
    /// # Errors
    /// As [`CommandBuffer::launch_checked`] and [`BoundKernel::checked_kernel`].
    pub fn record(&self, device: &Device, commands: &mut CommandBuffer, grid: Grid) -> Result<()> {
        commands.launch_checked(&self.checked_kernel(device)?, grid, self.arguments())
    }
}

/// What is compiled for a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    text: &'static str,
    name: &'static str,
    instance: String,
    constants: String,
    checked: bool,
}

/// A pipeline and the identity of its kernel.
type Compiled = (Arc<dyn Pipeline>, Arc<str>);

/// The compiled kernels of a device that are written in Rust. Does not keep the device alive.
#[derive(Default)]
pub(crate) struct RustKernels {
    pipelines: Mutex<HashMap<Key, Compiled>>,
}

impl RustKernels {
    fn kernel(&self, device: &Device, key: Key, compile: impl FnOnce() -> Result<Kernel>) -> Result<Kernel> {
        let known = self.pipelines.lock().get(&key).cloned();
        if let Some((pipeline, identity)) = known {
            return Ok(Kernel::new(device.clone(), pipeline, identity));
        }
        let kernel = compile()?;
        self.pipelines.lock().insert(key, (kernel.pipeline.clone(), kernel.identity.clone()));
        Ok(kernel)
    }
}

impl std::fmt::Debug for BoundKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoundKernel({})", self.name)
    }
}
