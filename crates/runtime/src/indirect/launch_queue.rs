//! [`LaunchQueue`]: the queue of a kernel that launches kernels, and its launch.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::indirect::{MAX_COMMAND_BUFFERS, expect_command_kernel};
use elinvar_driver::{
    Binding, Command, CommandRange, Dispatch, Error, ExecuteCommands, NestedLaunch, Pipeline, QueueHeader,
    Result, Use,
};

use crate::launch::args::{Element, Value};
use crate::launch::bind::{Bound, bind};
use crate::launch::grid::Size;
use crate::observe::trace::TraceStep;
use crate::{Arg, Args, Buffer, CommandBuffer, Completion, Device, Grid, Kernel, Stream};

/// Maximum number of kernels of a queue.
const MOST_KERNELS: u32 = 1 << 16;

/// Room for the launches that kernels enqueue: an argument `device elinvar::launch_queue&` of the header `<elinvar/launch>`.
///
/// [`Kernel::launch_nested`] launches a kernel with such an argument. Its launches run when it has ended, level by level: those of a level begin
/// when all launches of the level before have ended. They are kernels of the queue, by their index in its list, and may have the queue as an
/// argument too, for launches of the next level. What a stream does next begins when all levels have ended.
///
/// ```no_run
/// # fn main() -> elinvar::Result<()> {
/// use elinvar::{Device, Grid, LaunchQueue, Source};
///
/// let device = Device::system_default()?;
/// let library = device.compile(Source::msl(
///     "#include <elinvar/launch>
///      kernel void halve(device elinvar::launch_queue& queue, device uint* x, constant uint& n, uint i [[thread_position_in_grid]]) {
///          x[i] += 1;
///          if (i == 0 && n > 1) {
///              elinvar::launch half(queue);
///              half.set_kernel(0);
///              half.set_buffer(x, 1);
///              half.set_value(n / 2, 2);
///              half.dispatch_threads(n / 2, 32);
///          }
///      }",
/// ))?;
/// let halve = library.kernel("halve")?;
/// let mut queue = LaunchQueue::new(&device, 1, 10, &[&halve])?;
/// let mut x = device.buffer::<u32>(8)?;
/// // SAFETY: the kernel stays within the `n` elements that it is told of.
/// unsafe { halve.launch_nested(&device.stream()?, &mut queue, Grid::threads(8), (&mut x, 8_u32)) }?;
/// assert_eq!(x.to_vec()?, [4, 3, 2, 2, 1, 1, 1, 1]);
/// # Ok(())
/// # }
/// ```
pub struct LaunchQueue {
    memory: Buffer<u8>,
    capacity: u32,
    depth: u32,
    pipelines: Arc<[Arc<dyn Pipeline>]>,
}

impl LaunchQueue {
    /// Creates a queue for at most `capacity` launches of these kernels in a level, and `depth` levels below the host's launch.
    ///
    /// # Errors
    /// `InvalidArgument` without kernels or for a capacity of 0, and a kernel of another device; `Unsupported` with the reason on a device whose
    /// kernels cannot launch kernels, and for a kernel with a grid barrier, an inbox, a queue or a `visible_function_table`; otherwise as
    /// [`Device::buffer`].
    pub fn new(device: &Device, capacity: u32, depth: u32, kernels: &[&Kernel]) -> Result<Self> {
        device.driver().expect_nested_launches()?;
        let count = u32::try_from(kernels.len()).unwrap_or(u32::MAX);
        if capacity == 0 || count == 0 || count > MOST_KERNELS {
            return Err(Error::invalid(format!(
                "a launch queue for {capacity} launches of {count} kernels: at least 1 of 1 to {MOST_KERNELS}"
            )));
        }
        for kernel in kernels {
            let name = &kernel.signature().name;
            device.expect_same(&kernel.device, || format!("launch queue: kernel `{name}` is"))?;
            expect_command_kernel(&*kernel.pipeline, true)?;
        }
        let bytes = QueueHeader::bytes(count, capacity);
        let mut memory = device.buffer::<u8>(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let head = QueueHeader::to_bytes(count, capacity, memory.gpu_address()?);
        memory.slice_mut(0..head.len())?.write(&head)?;
        let pipelines = kernels.iter().map(|kernel| kernel.pipeline.clone()).collect();
        Ok(Self { memory, capacity, depth, pipelines })
    }

    /// Maximum number of launches in a level.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Maximum number of levels below the host's launch.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// The argument of a kernel.
    fn port(&self, pipeline: &Arc<dyn Pipeline>) -> Result<Arg> {
        let at = self.pipelines.iter().position(|known| Arc::ptr_eq(known, pipeline));
        let first = QueueHeader::port(at.map_or(0, |at| at as u32 + 1)) as usize;
        let port = self.memory.slice(first..first + QueueHeader::PORT_BYTES as usize)?;
        Ok(Arg { value: Value::Memory { span: port.span, element: Element::LaunchQueue, writable: true } })
    }
}

impl fmt::Debug for LaunchQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            self.pipelines.iter().map(|pipeline| pipeline.signature().name.as_str()).collect();
        write!(f, "LaunchQueue({} launches, {} levels, kernels {names:?})", self.capacity, self.depth)
    }
}

impl Kernel {
    /// Launches a kernel that launches kernels, behind the stream's pending work. `args` are its arguments but for the queue. Does not block.
    ///
    /// Launches of kernels may have the buffers of `args`, and those that `args` uses ([`Arg::use_resource`]), as arguments; a launch with another
    /// address is a fault. A buffer that the kernel only reads is for reads in all launches, unless it is also used as `&mut`.
    ///
    /// # Safety
    /// As [`Kernel::launch`], for every launch; and work of another stream must not use the queue at the same time.
    ///
    /// # Errors
    /// As [`CommandBuffer::launch_nested`] and [`CommandBuffer::submit`].
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch_nested(
        &self,
        stream: &Stream,
        queue: &mut LaunchQueue,
        grid: Grid,
        args: impl Args,
    ) -> Result<Completion> {
        let mut command_buffer = stream.command_buffer();
        // SAFETY: the caller vouches for the same.
        unsafe { command_buffer.launch_nested(queue, self, grid, args) }?;
        command_buffer.submit()
    }
}

impl CommandBuffer {
    /// Adds a launch of a kernel that launches kernels; see [`Kernel::launch_nested`].
    ///
    /// # Safety
    /// As [`Kernel::launch_nested`].
    ///
    /// # Errors
    /// As [`CommandBuffer::launch`]; `InvalidArgument` for a kernel without a launch queue.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch_nested(
        &mut self,
        queue: &mut LaunchQueue,
        kernel: &Kernel,
        grid: Grid,
        args: impl Args,
    ) -> Result<()> {
        let recorded = self.record_nested(queue, kernel, grid, args);
        self.noted(recorded)
    }

    fn record_nested(
        &mut self,
        queue: &LaunchQueue,
        kernel: &Kernel,
        grid: Grid,
        args: impl Args,
    ) -> Result<()> {
        let device = self.device().clone();
        device.expect_here("a launch")?;
        let name = &kernel.signature().name;
        device.expect_same(&kernel.device, || format!("kernel `{name}` is"))?;
        device.expect_same(queue.device(), || format!("kernel `{name}`: the launch queue is"))?;
        let Some(index) = kernel.signature().launch_queue() else {
            return Err(Error::invalid(format!(
                "kernel `{name}`: it has no launch queue; a kernel that launches kernels has an argument `device elinvar::launch_queue&`"
            )));
        };
        expect_command_kernel(&*kernel.pipeline, true)?;
        let mut list = args.into_args();
        let mut places = list.iter().enumerate().filter(|(_, arg)| !matches!(arg.value, Value::Use(_)));
        let at = places.nth(index).map_or(list.len(), |(at, _)| at);
        list.insert(at, queue.port(&kernel.pipeline)?);
        let Bound { bindings, uses, usages } = bind(&device, &kernel.pipeline, list, Vec::new())?;
        let Some(Size { grid, group, counts }) = grid.resolve(kernel)? else {
            return Ok(());
        };
        let bound = bindings.iter().zip(&kernel.signature().args).enumerate();
        let bound = bound.filter_map(|(number, (binding, arg))| match binding {
            Binding::Memory(slice) if number != index => {
                Some(Use { slice: slice.clone(), access: arg.access })
            }
            _ => None,
        });
        let children = ExecuteCommands {
            commands: queue.memory.span.memory_slice(),
            capacity: queue.capacity,
            max_buffers: MAX_COMMAND_BUFFERS,
            pipelines: queue.pipelines.clone(),
            range: CommandRange::Known(0..0),
            pipeline: None,
            buffers: None,
            uses: bound.chain(uses.iter().cloned()).collect(),
            max_threadgroup_memory: device.caps().limits.max_threadgroup_memory,
            label: kernel.label.clone(),
        };
        let (pipeline, label) = (kernel.pipeline.clone(), kernel.label.clone());
        let root = Dispatch { pipeline, bindings, uses, grid, group, label };
        root.prepare()?;
        let nested = NestedLaunch { root, children, depth: queue.depth };
        let usages = usages.into_iter().chain(counts);
        let (kernel, label) = (kernel.pipeline.clone(), kernel.label.clone());
        self.push(Command::LaunchNested(Box::new(nested)), usages, TraceStep::LaunchNested { kernel, label });
        Ok(())
    }
}
