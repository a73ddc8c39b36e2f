//! The tables of the executor (`executor.c`) in device memory: what it knows of kernels, and of an execution.
//!
//! Bytes are written field by field, in the order and with the sizes of the C structs.

use elinvar_driver::{Access, Arg, ArgKind, ElementType, Signature};
use elinvar_ptx::{Argument, Parameter};

/// Size in bytes of a failure's report: four numbers, and the record of the command.
pub(super) const STATUS_BYTES: usize = 16 + 576;
/// Number of arguments that can be inherited.
pub(super) const INHERITED: usize = 31;

/// Why an execution has ended early, as the executor reports it.
pub(super) mod code {
    pub(crate) const DONE: u32 = 0;
    pub(crate) const RANGE: u32 = 1;
    pub(crate) const BEYOND: u32 = 2;
    pub(crate) const REJECTED: u32 = 3;
    pub(crate) const LAUNCH_FAILED: u32 = 4;
    pub(crate) const SHARED_MEMORY: u32 = 5;
    pub(crate) const GRID: u32 = 6;
    pub(crate) const FAULT: u32 = 7;
    pub(crate) const OVERFLOW: u32 = 8;
    pub(crate) const TOO_DEEP: u32 = 9;
}

/// Bytes of C structs.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
    }

    pub(super) fn u64s(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.0.extend(value.to_ne_bytes()));
    }
}

/// What the executor knows of a kernel's code.
pub(super) struct Kernel<'k> {
    pub(super) entry: u64,
    pub(super) most_threads: u32,
    pub(super) most_size: [u32; 3],
    /// Threadgroup memory that the kernel declares, in bytes.
    pub(super) own_memory: u64,
    pub(super) dynamic_base: u64,
    /// Maximum dynamic shared memory of a launch, in bytes.
    pub(super) most_dynamic: u64,
    pub(super) parameters: &'k [Parameter],
    pub(super) signature: &'k Signature,
    pub(super) is_checked: bool,
    /// Address of the log ring's control block, and the kernel's number in records.
    pub(super) log: (u64, u32),
}

/// The tables of a program's kernels: kernels, parameters and arguments.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) kernels: Bytes,
    pub(super) parameters: Bytes,
    pub(super) arguments: Bytes,
    parameter_count: u32,
    argument_count: u32,
}

impl Tables {
    pub(super) fn add(&mut self, kernel: &Kernel<'_>) {
        let (parameters, arguments) = (kernel.parameters.len() as u32, kernel.signature.args.len() as u32);
        let number = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        self.kernels.u64s(&[kernel.entry]);
        self.kernels.u32s(&[kernel.most_threads]);
        self.kernels.u32s(&kernel.most_size);
        let memory = [kernel.own_memory, kernel.dynamic_base, kernel.most_dynamic].map(number);
        self.kernels.u32s(&memory);
        let tables = [self.parameter_count, parameters, self.argument_count, arguments];
        self.kernels.u32s(&tables);
        self.kernels.u32s(&[kernel.is_checked.into()]);
        self.parameter_count += parameters;
        self.argument_count += arguments;
        let mut offset = 0_u32;
        for parameter in kernel.parameters {
            let (kind, which, value, size) = parameter_of(parameter, kernel.log);
            offset = offset.next_multiple_of(size);
            self.parameters.u32s(&[kind, which, offset, 0]);
            self.parameters.u64s(&[value]);
            offset += size;
        }
        kernel.signature.args.iter().for_each(|arg| self.argument(arg));
    }

    fn argument(&mut self, arg: &Arg) {
        let kind = match arg.kind {
            _ if arg.element == ElementType::LaunchQueue => 3,
            ArgKind::Pointer => 0,
            ArgKind::Reference => 1,
            ArgKind::Threadgroup => 2,
        };
        let writes = u32::from(arg.access == Access::ReadWrite);
        let align = u32::try_from(arg.element_align).unwrap_or(1).max(1);
        self.arguments.u32s(&[arg.index, kind, writes, align]);
        self.arguments.u64s(&[arg.element_size]);
    }
}

/// Kind, index, constant value and size in bytes of a parameter.
fn parameter_of(parameter: &Parameter, (ring, number): (u64, u32)) -> (u32, u32, u64, u32) {
    let index = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    match *parameter {
        Parameter::Argument(at, Argument::Threadgroup) => (1, index(at), 0, 4),
        // By value only with `Constants::Values`, which commands do not use.
        Parameter::Argument(at, _) => (0, index(at), 0, 8),
        Parameter::Threads(d) => (2, index(d), 0, 4),
        Parameter::Extent => (3, 0, 0, 4),
        Parameter::Linear(d) => (4, index(d), 0, 4),
        Parameter::Record => (5, 0, 0, 8),
        Parameter::Bytes(at) => (6, index(at), 0, 8),
        Parameter::LogRing => (7, 0, ring, 8),
        Parameter::LogKernel => (8, 0, number.into(), 4),
        // Kernels with grid barriers are refused.
        Parameter::GridCounter => (7, 0, 0, 8),
    }
}
