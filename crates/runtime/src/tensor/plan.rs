//! [`Plan`]: an operation for given operands on a device, ready to be recorded.
//!
//! Planning checks shapes, types and overlaps, chooses the route, and compiles kernels. A plan has steps, each a launch of a kernel of
//! ours or one primitive of the vendor's library. Recording a plan allocates its workspace, so it can be recorded any number of times.

use std::fmt;

use elinvar_driver::{Error, Primitive, Result, Timing};

use crate::launch::args::{Arg, ArgList, Element, Value};
use crate::memory::span::Span;
use crate::tensor::kernel_cache::{self, File, Specialization};
use crate::tensor::operation::{Operands, Operation};
use crate::tensor::profile::TensorProfile;
use crate::tensor::view::{TensorMut, TensorRef};
use crate::tensor::{DataType, vendor};
use crate::{Buffer, CommandBuffer, Device, Grid, HostAccess, Kernel};

/// Who computes an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// The faster one by measurement where the vendor's library has the operation, otherwise kernels of Elinvar. Large operations are
    /// measured once for a class of shapes, by the first plan on this machine, which waits for it; small ones are the library's, unless it
    /// compiles for each shape (MPSGraph), but products on NVIDIA GPUs whose sums have up to 128 terms are a kernel's.
    #[default]
    Auto,
    /// The vendor's library.
    Vendor,
    /// Kernels of Elinvar, in MSL.
    Kernel,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Vendor => "vendor",
            Self::Kernel => "kernel",
        })
    }
}

/// An operation that is planned for its operands and their device; see [`CommandBuffer::tensor_plan`].
pub struct Plan {
    device: Device,
    operation: &'static str,
    route: Route,
    steps: Steps,
    flops: u64,
    bytes: u64,
}

/// The steps of a plan, in order.
pub(crate) struct Steps {
    device: Device,
    list: Vec<Step>,
    /// Bytes of the workspace so far.
    workspace: u64,
    /// What the steps do, for display.
    pub(crate) algorithm: &'static str,
    /// The algorithm that is asked for.
    pub(crate) wanted: Option<&'static str>,
}

enum Step {
    Launch { kernel: Kernel, grid: Grid, args: Vec<StepArg> },
    Primitive { primitive: Box<Primitive>, operands: Vec<Arg> },
}

/// An argument of a step.
#[derive(Clone)]
pub(crate) enum StepArg {
    Given(Arg),
    /// Bytes of the workspace.
    Workspace(Workspace),
}

/// A range of a plan's workspace.
#[derive(Clone, Copy)]
pub(crate) struct Workspace {
    offset: u64,
    len: u64,
}

/// Alignment of ranges of the workspace.
const ALIGNMENT: u64 = 256;

impl Plan {
    /// Plans an operation. `inputs` and `outputs` are in the order that the operation's documentation lists.
    ///
    /// # Errors
    /// `InvalidArgument` that names the operand, with the shapes and the axis, if shapes or types do not fit, an operand belongs to
    /// another device, or an output may overlap another operand; `Unsupported` with the reason if the device lacks the route;
    /// `Compile` and `Environment` as [`Device::compile`].
    pub fn new(
        operation: impl Into<Operation>,
        inputs: &[&TensorRef<'_>],
        outputs: &mut [&mut TensorMut<'_>],
        route: Route,
    ) -> Result<Self> {
        Self::choose(&operation.into(), inputs, outputs, route, None)
    }

    /// As [`Plan::new`] for [`Route::Kernel`], by an algorithm of [`Operation::algorithms`].
    ///
    /// # Errors
    /// As [`Plan::new`]; `Unsupported` if the algorithm cannot compute the operation for these operands.
    pub fn with_algorithm(
        operation: impl Into<Operation>,
        inputs: &[&TensorRef<'_>],
        outputs: &mut [&mut TensorMut<'_>],
        algorithm: &'static str,
    ) -> Result<Self> {
        Self::choose(&operation.into(), inputs, outputs, Route::Kernel, Some(algorithm))
    }

    fn choose(
        operation: &Operation,
        inputs: &[&TensorRef<'_>],
        outputs: &mut [&mut TensorMut<'_>],
        route: Route,
        wanted: Option<&'static str>,
    ) -> Result<Self> {
        let outputs: Vec<&TensorRef<'_>> = outputs.iter().map(|output| &***output).collect();
        let operands = Operands { inputs, outputs: &outputs };
        let device = operation.check(&operands)?;
        Self::of(&device, operation, &operands, route, wanted)
    }

    /// A plan for operands that have been checked.
    pub(crate) fn of(
        device: &Device,
        operation: &Operation,
        operands: &Operands<'_>,
        route: Route,
        wanted: Option<&'static str>,
    ) -> Result<Self> {
        let device = device.clone();
        let mut steps =
            Steps { device: device.clone(), list: Vec::new(), workspace: 0, algorithm: "nothing", wanted };
        let is_empty = operands.outputs.iter().all(|output| output.is_empty());
        let vendor = match route {
            Route::Auto | Route::Vendor if !is_empty => vendor::primitive(&device, operation, operands),
            _ => Err(None),
        };
        let route = match (route, &vendor) {
            (Route::Auto, Ok(chosen)) if chosen.compiles && vendor::changes_shape(operation) => Route::Kernel,
            (Route::Auto, Ok(chosen)) => {
                let unmeasured = if chosen.compiles { Route::Kernel } else { Route::Vendor };
                device.route_choices().route(&device, operation, operands, unmeasured)
            }
            _ => route,
        };
        let route = match (route, vendor) {
            (Route::Auto | Route::Vendor, Ok(vendor::Chosen { primitive, order, algorithm, .. })) => {
                steps.algorithm = algorithm;
                let operands = order.iter().map(|operand| operands.vendor_arg(*operand)).collect();
                steps.list.push(Step::Primitive { primitive: Box::new(primitive), operands });
                Route::Vendor
            }
            (Route::Vendor, Err(reason)) => {
                let reason = reason.map_or_else(String::new, |reason| match reason {
                    Error::Unsupported(text) => format!(" ({text})"),
                    other => format!(" ({other})"),
                });
                return Err(Error::unsupported(format!(
                    "{}: device `{}` has no library for these operands{reason}; the route `kernel` computes it",
                    operation.name(),
                    device.name()
                )));
            }
            _ => {
                if !is_empty {
                    operation.add_steps(operands, &mut steps)?;
                    steps.expect_wanted(operation.name())?;
                }
                Route::Kernel
            }
        };
        let (flops, bytes) = (operation.flops(operands), operands.bytes());
        Ok(Self { device, operation: operation.name(), route, steps, flops, bytes })
    }

    /// The route: [`Route::Vendor`] or [`Route::Kernel`].
    pub fn route(&self) -> Route {
        self.route
    }

    /// Name of the operation.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Name of the algorithm: what the steps do.
    pub fn algorithm(&self) -> &'static str {
        self.steps.algorithm
    }

    /// Floating-point or integer operations of the definition: a multiply and an add are two. 0 for copies.
    pub fn flops(&self) -> u64 {
        self.flops
    }

    /// Bytes that have to move: each element of each operand once.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of launches or primitives.
    pub fn steps(&self) -> usize {
        self.steps.list.len()
    }

    /// Bytes of memory for intermediate results, which each recording allocates.
    pub fn workspace_bytes(&self) -> u64 {
        self.steps.workspace
    }

    /// The device that it is planned for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The profile of a run that took `timing` on the device.
    pub fn profile(&self, timing: Timing) -> TensorProfile {
        TensorProfile::new(self, timing.end_ns.saturating_sub(timing.start_ns))
    }

    /// Records the steps.
    pub(crate) fn record(&self, command_buffer: &mut CommandBuffer) -> Result<()> {
        command_buffer.device().expect_same(&self.device, || format!("{}: the plan is", self.operation))?;
        let workspace = self.steps.allocate()?;
        let mark = command_buffer.mark();
        let recorded = self.steps.list.iter().try_for_each(|step| step.record(command_buffer, &workspace));
        recorded.inspect_err(|_| command_buffer.truncate(mark))
    }
}

impl Steps {
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Whether the device is a CPU, which has vector registers.
    pub(crate) fn is_cpu(&self) -> bool {
        self.device.caps().limits.vector_bits.is_some()
    }

    fn expect_wanted(&self, operation: &str) -> Result<()> {
        match self.wanted {
            Some(wanted) if wanted != self.algorithm => Err(Error::unsupported(format!(
                "{operation}: the algorithm `{wanted}` does not compute it for these operands; `{}` does",
                self.algorithm
            ))),
            _ => Ok(()),
        }
    }

    /// Adds a launch of a kernel with values of its function constants.
    pub(crate) fn launch(
        &mut self,
        file: File,
        name: &'static str,
        constants: &[(u32, kernel_cache::Value)],
        grid: Grid,
        args: impl IntoIterator<Item = StepArg>,
    ) -> Result<()> {
        let wanted = Specialization { file, name, constants: constants.to_vec() };
        let kernel = self.device.tensor_kernels().kernel(&self.device, &wanted)?;
        self.list.push(Step::Launch { kernel, grid, args: args.into_iter().collect() });
        Ok(())
    }

    /// Memory for `bytes` bytes of intermediate results.
    pub(crate) fn workspace(&mut self, bytes: u64) -> Workspace {
        let offset = self.workspace;
        self.workspace = (offset + bytes).next_multiple_of(ALIGNMENT);
        Workspace { offset, len: bytes }
    }

    #[allow(unsafe_code)] // steps write the workspace before they read it
    fn allocate(&self) -> Result<Option<Buffer<u8>>> {
        if self.workspace == 0 {
            return Ok(None);
        }
        // SAFETY: each step reads only what a step before it has written.
        let workspace = unsafe { self.device.buffer_uninit(self.workspace as usize, HostAccess::Transient) }?;
        Ok(Some(workspace))
    }
}

impl Step {
    #[allow(unsafe_code)] // launches kernels of this module
    fn record(&self, command_buffer: &mut CommandBuffer, workspace: &Option<Buffer<u8>>) -> Result<()> {
        match self {
            Self::Launch { kernel, grid, args } => {
                let args: ArgList = args.iter().map(|arg| arg.resolve(workspace)).collect();
                // SAFETY: the kernels access the elements of their views only, which are within their buffers, and each writes
                // different elements in different threads. `Operation::check` has excluded overlaps.
                unsafe { command_buffer.launch(kernel, grid.clone(), args) }
            }
            Self::Primitive { primitive, operands } => command_buffer.primitive(primitive, operands),
        }
    }
}

impl StepArg {
    /// The memory of a view, from its first to its last element, as bytes.
    pub(crate) fn tensor(view: &TensorRef<'_>, writable: bool) -> Self {
        Self::Given(bytes_arg(view.used_span(), writable))
    }

    /// A struct or an array.
    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Given(Arg::bytes(bytes))
    }

    /// No memory, for an operand that the kernel does not access.
    pub(crate) fn unbound() -> Self {
        Self::Given(Arg::unbound())
    }

    /// Its offset in memory that is aligned by [`ALIGNMENT`], in bytes.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Given(Arg { value: Value::Memory { span, .. } }) => span.offset,
            Self::Workspace(workspace) => workspace.offset,
            _ => 0,
        }
    }

    /// Without the first `bytes` bytes.
    pub(crate) fn skipping(self, bytes: u64) -> Self {
        match self {
            Self::Given(Arg { value: Value::Memory { span, element, writable } }) => {
                let (offset, len) = (span.offset + bytes, span.len - bytes);
                Self::Given(Arg {
                    value: Value::Memory { span: Span { offset, len, ..span }, element, writable },
                })
            }
            Self::Workspace(Workspace { offset, len }) => {
                Self::Workspace(Workspace { offset: offset + bytes, len: len - bytes })
            }
            other => other,
        }
    }

    fn resolve(&self, workspace: &Option<Buffer<u8>>) -> Arg {
        match (self, workspace) {
            (Self::Given(arg), _) => arg.clone(),
            (Self::Workspace(range), Some(workspace)) => {
                let offset = workspace.span.offset + range.offset;
                bytes_arg(Span { offset, len: range.len, storage: workspace.span.storage.clone() }, true)
            }
            (Self::Workspace(_), None) => Arg::unbound(),
        }
    }
}

/// Memory of any element type: that of a kernel of this module is right by construction.
fn bytes_arg(span: Span, writable: bool) -> Arg {
    let element = Element::Raw;
    Arg { value: Value::Memory { span, element, writable } }
}

/// An argument of the element type, for a primitive.
pub(crate) fn typed_arg(view: &TensorRef<'_>, writable: bool) -> Arg {
    bytes_arg(view.used_span(), writable).of(DataType::scalar(view.data_type))
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, route, .. } = self;
        write!(f, "Plan({operation}, {route}: {}, {} steps)", self.algorithm(), self.steps())
    }
}
