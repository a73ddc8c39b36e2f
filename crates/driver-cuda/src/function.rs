//! A loaded kernel function, and its launch.
//!
//! The driver compiles PTX to machine code when the module is loaded, and caches the result itself. The kernel's parameters are described by
//! `elinvar-ptx`.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUdevice_attribute_enum as Attribute, CUfunction, CUfunction_attribute_enum as FunctionAttribute,
    CUjit_option_enum as JitOption, CUlaunchConfig, CUmodule, CUstream,
};
use elinvar_driver::{Binding, Dim3, Dispatch, Error, LogKernel, MemorySlice, Result};
use elinvar_ptx::{Argument, Block, Bounds, Extent, Parameter, Ptx};
use parking_lot::Mutex;

use crate::caps;
use crate::context::{Context, Handle};
use crate::cooperative::{self, GridCounter};
use crate::failure::{Failure, code};
use crate::log::KernelLog;
use crate::memory::CudaMemory;
use crate::staging::{Chunks, Staging};

/// CUDA's maximum grid size: along x, and along y and z.
const MOST_GROUPS: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];
/// Dynamic shared memory in bytes that a launch may use without opting in to more.
const ORDINARY_SHARED: u64 = 48 << 10;
/// Size of the buffer for the compiler's log, in bytes.
const LOG: usize = 8 << 10;
/// Registers per thread at which a multiprocessor reaches full occupancy. The driver's compiler limits registers to this number, even if loads
/// then cannot overlap.
const FULL: i32 = 32;
/// Register limit used instead, at three quarters of full occupancy.
const ROOMY: u32 = 40;
/// Registers of a thread are allocated in units of eight, and those of a threadgroup for as many warps as there are schedulers, in threads.
const REGISTERS_TOGETHER: u32 = 8;
const WARPS_TOGETHER: u32 = 4 * 32;
/// Alignment of an argument's threadgroup memory, in bytes.
const THREADGROUP_ALIGN: u64 = 16;

/// A loaded kernel.
pub(crate) struct Function {
    context: Arc<Context>,
    /// Name of the kernel in the source.
    name: String,
    module: Handle<CUmodule>,
    function: Handle<CUfunction>,
    parameters: Vec<Parameter>,
    dynamic_base: u64,
    most_dynamic: u64,
    max_threads: u32,
    /// Registers per thread.
    registers: i32,
    /// Largest numbers of threadgroups of cooperative launches, by threadgroup size and dynamic threadgroup memory.
    resident: Mutex<HashMap<(Dim3, u64), u64>>,
    /// Decoder of fault records, if it checks bounds.
    pub(crate) bounds: Option<Arc<Bounds>>,
    /// Its log calls, if it has any.
    log: Option<Arc<KernelLog>>,
}

impl Function {
    /// Loads a kernel; `log` has its log calls, if it has any.
    pub(crate) fn load(context: &Arc<Context>, log: Option<Arc<KernelLog>>, ptx: &Ptx) -> Result<Self> {
        let function = Self::made(context, ptx, None)?;
        let mut function = match function.registers {
            FULL => Self::made(context, ptx, Some(ROOMY))?,
            _ => function,
        };
        function.log = log;
        Ok(function)
    }

    /// As [`Function::load`], for threadgroups of all sizes that `other` can have, if need be with fewer registers than the driver's compiler takes.
    pub(crate) fn load_like(other: &Self, log: Option<Arc<KernelLog>>, ptx: &Ptx) -> Result<Self> {
        let context = &other.context;
        let mut function = Self::load(context, log.clone(), ptx)?;
        if function.max_threads < other.max_threads {
            let all = Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
            let all = caps::attribute(context.api, context.device, all)
                .map_err(|failure| context.error(failure, "reading the number of registers"))?;
            let threads = other.max_threads.next_multiple_of(WARPS_TOGETHER);
            let registers =
                u32::try_from(all).unwrap_or(0) / threads / REGISTERS_TOGETHER * REGISTERS_TOGETHER;
            function = Self::made(context, ptx, Some(registers))?;
            function.log = log;
        }
        Ok(function)
    }

    /// Loads the module with a limit of registers per thread.
    fn made(context: &Arc<Context>, ptx: &Ptx, registers: Option<u32>) -> Result<Self> {
        let name = &ptx.signature.name;
        let _current = context.enter()?;
        let module = load_module(context, name, &ptx.text, registers)?;
        let bounds = ptx.checks.clone().map(|checks| Arc::new(Bounds::new(checks, ptx.signature.clone())));
        // From here on, dropping it unloads the module.
        let mut function = Self {
            context: context.clone(),
            name: name.clone(),
            module: Handle(module),
            function: Handle(std::ptr::null_mut()),
            parameters: ptx.parameters.clone(),
            dynamic_base: ptx.dynamic_base,
            most_dynamic: 0,
            max_threads: 0,
            registers: 0,
            resident: Mutex::default(),
            bounds,
            log: None,
        };
        function
            .find(&ptx.entry)
            .map_err(|failure| context.error(failure, &format!("loading kernel `{name}`")))?;
        Ok(function)
    }

    #[allow(unsafe_code)] // C functions
    fn find(&mut self, entry: &str) -> Result<(), Failure> {
        let api = self.context.api;
        let entry = CString::new(entry).unwrap_or_default();
        // SAFETY: the module is loaded and the name a C string.
        unsafe { api.function(&mut self.function.0, self.module.0, entry.as_ptr()) }?;
        let attribute = |attribute: FunctionAttribute| {
            let mut value = 0;
            // SAFETY: it writes a number.
            unsafe { api.function_attribute(&mut value, attribute as u32, self.function.0) }.map(|()| value)
        };
        let own = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let most = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
        self.max_threads = u32::try_from(most).unwrap_or(0);
        self.registers = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
        let own = u32::try_from(own).unwrap_or(0);
        self.most_dynamic = allow_shared(&self.context, self.function.0, own)?;
        Ok(())
    }

    /// Its parameters.
    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Its log calls, if it has any.
    pub(crate) fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        self.log.as_ref().map(|log| &log.kernel)
    }

    /// Maximum number of threads per threadgroup, given its registers.
    pub(crate) fn max_threads(&self) -> u32 {
        self.max_threads
    }

    /// Whether it has grid barriers, so that its launches are cooperative.
    fn is_cooperative(&self) -> bool {
        self.parameters.contains(&Parameter::GridCounter)
    }

    /// The largest number of resident threadgroups of this size with so many bytes of dynamic threadgroup memory.
    pub(crate) fn resident_groups(&self, group: Dim3, threadgroup_bytes: u64) -> Result<u64> {
        let size = (group, threadgroup_bytes);
        if let Some(known) = self.resident.lock().get(&size) {
            return Ok(*known);
        }
        let shared = self.dynamic_base.saturating_add(threadgroup_bytes);
        let groups = cooperative::resident_groups(&self.context, self.function.0, group, shared)?;
        self.resident.lock().insert(size, groups);
        Ok(groups)
    }

    /// Appends a launch over `threads` to a stream. The context must be current.
    #[allow(unsafe_code)] // C functions
    pub(crate) fn launch(&self, dispatch: &Dispatch, threads: Dim3, to: &mut Target<'_>) -> Result<()> {
        if threads.volume() == 0 {
            return Ok(());
        }
        let (grid, extent, linear) = self.grid(threads, dispatch.group)?;
        let block = Block::of(dispatch.group.to_array());
        let extent = block.parameter(extent);
        let shared = self.pack(dispatch, (threads, extent, linear), to)?;
        let mut bytes = to.params.len();
        // SAFETY: CUDA's markers for a buffer with all parameters and its size; both stay valid until the call returns, which copies them.
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            to.params.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut bytes).cast(),
            std::ptr::null_mut(),
        ];
        let [x, y, z] = block.size;
        let none = std::ptr::null_mut();
        let is_cooperative = self.is_cooperative();
        if is_cooperative {
            let most = self.resident_groups(dispatch.group, dispatch.threadgroup_bytes())?;
            dispatch.expect_resident(grid.volume(), most)?;
        }
        // SAFETY: the runtime has checked the bindings against the kernel's signature; what the kernel does with them is the caller's
        // responsibility. The submission keeps the memory that they refer to.
        let launched = unsafe {
            let api = self.context.api;
            if is_cooperative {
                let mut attribute = cooperative::attribute();
                let config = CUlaunchConfig {
                    gridDimX: grid.x,
                    gridDimY: grid.y,
                    gridDimZ: grid.z,
                    blockDimX: x,
                    blockDimY: y,
                    blockDimZ: z,
                    sharedMemBytes: shared,
                    hStream: to.stream,
                    attrs: &raw mut attribute,
                    numAttrs: 1,
                };
                api.launch_with(&raw const config, self.function.0, none, extra.as_mut_ptr())
            } else {
                api.launch(
                    self.function.0,
                    grid.x,
                    grid.y,
                    grid.z,
                    x,
                    y,
                    z,
                    shared,
                    to.stream,
                    none,
                    extra.as_mut_ptr(),
                )
            }
        };
        launched.map_err(|failure| self.context.error(failure, &format!("launching kernel `{}`", self.name)))
    }

    /// CUDA's grid, and how it maps to threadgroups, for the kernel: the mapping, and the threadgroups along x and y.
    fn grid(&self, threads: Dim3, group: Dim3) -> Result<(Dim3, Extent, [u32; 2])> {
        let groups = threads.div_ceil(group);
        let (threads, group) = (threads.to_array(), group.to_array());
        let fits = groups.to_array().iter().zip(MOST_GROUPS).all(|(groups, most)| *groups <= most);
        if fits {
            return Ok((groups, Extent::of(threads, group), [groups.x, groups.y]));
        }
        match u32::try_from(groups.volume()) {
            Ok(all) if all <= MOST_GROUPS[0] => Ok((Dim3::from(all), Extent::Row, [groups.x, groups.y])),
            _ => Err(Error::invalid(format!(
                "kernel `{}`: {groups} threadgroups: at most {} in all, or {} along x and {} along y and z",
                self.name, MOST_GROUPS[0], MOST_GROUPS[0], MOST_GROUPS[1]
            ))),
        }
    }

    /// Packs the parameters. Returns the size of dynamic shared memory in bytes.
    fn pack(
        &self,
        dispatch: &Dispatch,
        (threads, extent, linear): (Dim3, u32, [u32; 2]),
        to: &mut Target<'_>,
    ) -> Result<u32> {
        to.params.clear();
        let mut dynamic = self.dynamic_base;
        for parameter in &self.parameters {
            match *parameter {
                Parameter::Argument(index, argument) => {
                    self.argument(dispatch, index, argument, &mut dynamic, to)?
                }
                Parameter::Threads(d) => to.put(&threads.to_array()[d].to_ne_bytes()),
                Parameter::Extent => to.put(&extent.to_ne_bytes()),
                Parameter::Linear(d) => to.put(&linear[d].to_ne_bytes()),
                Parameter::Record => {
                    let Some(bounds) = &self.bounds else {
                        return Err(self.malformed("has a fault record parameter but no bounds checks"));
                    };
                    let (chunks, context, stream) = (to.chunks, &self.context, to.stream);
                    let record =
                        to.staging.record(chunks, context, stream, bounds, dispatch.label.as_ref())?;
                    to.put(&record.to_ne_bytes());
                }
                Parameter::LogRing | Parameter::LogKernel => {
                    let Some(log) = &self.log else {
                        return Err(self.malformed("has a parameter for a log but no log calls"));
                    };
                    match *parameter {
                        Parameter::LogRing => to.put(&log.control.to_ne_bytes()),
                        _ => to.put(&log.kernel.number().to_ne_bytes()),
                    }
                }
                Parameter::GridCounter => {
                    let counter = to.counter.address(&self.context)?;
                    to.put(&counter.to_ne_bytes());
                }
                Parameter::Bytes(index) => {
                    to.put(&dispatch.bindings.get(index).map_or(0, bytes).to_ne_bytes())
                }
            }
        }
        if dynamic > self.most_dynamic {
            return Err(Error::invalid(format!(
                "kernel `{}`: {dynamic} bytes of dynamic threadgroup memory: at most {} beside its own",
                self.name, self.most_dynamic
            )));
        }
        // Does not truncate: the limit came from an i32.
        Ok(dynamic as u32)
    }

    /// Packs the parameters with zeros for those that depend on the grid.
    pub(crate) fn pack_without_grid(&self, dispatch: &Dispatch, to: &mut Target<'_>) -> Result<Packed> {
        let shared = self.pack(dispatch, (Dim3::from(0), 0, [0, 0]), to)?;
        let mut end = 0_u32;
        let place = |parameter: &Parameter| {
            let (size, align) = match *parameter {
                Parameter::Argument(_, Argument::Value { bytes, align }) => {
                    (u32::try_from(bytes).unwrap_or(0), u32::try_from(align).unwrap_or(1).max(1))
                }
                Parameter::Argument(_, Argument::Threadgroup)
                | Parameter::Threads(_)
                | Parameter::Extent
                | Parameter::Linear(_)
                | Parameter::LogKernel => (4, 4),
                _ => (8, 8),
            };
            let offset = end.next_multiple_of(align);
            end = offset + size;
            (*parameter, offset)
        };
        let offsets = self.parameters.iter().map(place).collect();
        Ok(Packed { shared, offsets })
    }

    fn argument(
        &self,
        dispatch: &Dispatch,
        index: usize,
        argument: Argument,
        dynamic: &mut u64,
        to: &mut Target<'_>,
    ) -> Result<()> {
        let binding = dispatch
            .bindings
            .get(index)
            .ok_or_else(|| self.malformed("takes more arguments than are bound"))?;
        match (argument, binding) {
            (Argument::Pointer { .. }, Binding::Memory(slice)) => {
                to.put(&address(slice)?.to_ne_bytes());
                Ok(())
            }
            (Argument::Pointer { .. }, Binding::Bytes(bytes)) => {
                let copy = to.staging.copy(to.chunks, &self.context, to.stream, bytes)?;
                to.put(&copy.to_ne_bytes());
                Ok(())
            }
            (Argument::Pointer { .. }, Binding::Unbound) => {
                to.put(&0_u64.to_ne_bytes());
                Ok(())
            }
            (Argument::Value { bytes: size, align }, Binding::Bytes(bytes)) => {
                to.put_value(bytes, size as usize, align as usize);
                Ok(())
            }
            (Argument::Threadgroup, Binding::Threadgroup(bytes)) => {
                // An overflow exceeds any memory; it is rejected when all sizes are known.
                to.put(&u32::try_from(*dynamic).unwrap_or(u32::MAX).to_ne_bytes());
                let end = bytes.checked_next_multiple_of(THREADGROUP_ALIGN).unwrap_or(u64::MAX);
                *dynamic = dynamic.saturating_add(end);
                Ok(())
            }
            _ => Err(self.malformed(&format!("takes argument {index} in another form than it is bound"))),
        }
    }

    fn malformed(&self, what: &str) -> Error {
        Error::invalid(format!("kernel `{}`: its code {what}", self.name))
    }
}

impl Drop for Function {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: loaded by `load`; work in flight would keep `self` alive.
            let _left = unsafe { self.context.api.unload_module(self.module.0) };
        }
    }
}

/// The packed parameters of a launch.
pub(crate) struct Packed {
    /// Dynamic shared memory in bytes.
    pub(crate) shared: u32,
    /// Where the parameters are, in bytes.
    pub(crate) offsets: Vec<(Parameter, u32)>,
}

/// The target stream of a launch, and its resources.
pub(crate) struct Target<'t> {
    pub(crate) stream: CUstream,
    pub(crate) chunks: &'t Chunks,
    pub(crate) staging: &'t mut Staging,
    /// The counter of grid barriers for kernels of the stream.
    pub(crate) counter: &'t mut GridCounter,
    /// Parameter buffer, reused for each launch.
    pub(crate) params: &'t mut Vec<u8>,
}

impl Target<'_> {
    /// Appends an integer, aligned to its size.
    fn put(&mut self, bytes: &[u8]) {
        self.put_value(bytes, bytes.len(), bytes.len());
    }

    /// Appends a value of `size` bytes.
    fn put_value(&mut self, bytes: &[u8], size: usize, align: usize) {
        let begin = self.params.len().next_multiple_of(align.max(1));
        self.params.resize(begin, 0);
        self.params.extend_from_slice(&bytes[..bytes.len().min(size)]);
        self.params.resize(begin + size, 0);
    }
}

/// Allows a function all dynamic shared memory that the device has beside its own static memory of so many bytes. Returns the number of
/// bytes. The context must be current.
#[allow(unsafe_code)] // a C function
pub(crate) fn allow_shared(context: &Context, function: CUfunction, own: u32) -> Result<u64, Failure> {
    let which = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let all = caps::attribute(context.api, context.device, which)?;
    let most = all.saturating_sub(i32::try_from(own).unwrap_or(i32::MAX)).max(0);
    let bytes = u64::try_from(most).unwrap_or(0);
    if bytes > ORDINARY_SHARED {
        let which = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32;
        // SAFETY: the function is loaded.
        unsafe { context.api.set_function_attribute(function, which, most) }?;
    }
    Ok(bytes)
}

/// Size in bytes of the memory that an argument points to.
fn bytes(binding: &Binding) -> u64 {
    match binding {
        Binding::Memory(slice) => slice.len,
        Binding::Bytes(bytes) => bytes.len() as u64,
        Binding::Threadgroup(bytes) => *bytes,
        Binding::Unbound => 0,
    }
}

/// The memory of a slice, after checking that it belongs to this driver.
pub(crate) fn memory(slice: &MemorySlice) -> Result<&CudaMemory> {
    let memory: &dyn Any = &*slice.memory;
    memory.downcast_ref().ok_or_else(|| Error::invalid("the memory belongs to another driver"))
}

/// The device address of the first byte of a slice, after checking that the slice is within its memory.
pub(crate) fn address(slice: &MemorySlice) -> Result<u64> {
    memory(slice)?.at(slice.offset, slice.len)
}

/// Loads PTX as a module, which the driver compiles. The context must be current.
#[allow(unsafe_code)] // a C function
fn load_module(context: &Context, name: &str, text: &str, registers: Option<u32>) -> Result<CUmodule> {
    let image = CString::new(text)
        .map_err(|_| Error::unsupported(format!("kernel `{name}`: its PTX has a null byte")))?;
    let (mut errors, mut module): (Vec<u8>, CUmodule) = (vec![0; LOG], std::ptr::null_mut());
    let mut options =
        vec![JitOption::CU_JIT_ERROR_LOG_BUFFER as u32, JitOption::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as u32];
    let mut values: Vec<*mut c_void> =
        vec![errors.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG)];
    if let Some(registers) = registers {
        options.push(JitOption::CU_JIT_MAX_REGISTERS as u32);
        values.push(std::ptr::without_provenance_mut(registers as usize));
    }
    // SAFETY: the image is a C string; the options are a buffer, its size and a number, the last two passed as pointers, to which the driver
    // writes.
    let loaded = unsafe {
        let count = options.len() as u32;
        context.api.load_module(
            &mut module,
            image.as_ptr().cast(),
            count,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    loaded.map(|()| module).map_err(|failure| {
        let end = errors.iter().position(|byte| *byte == 0).unwrap_or(errors.len());
        let log = String::from_utf8_lossy(&errors[..end]);
        refused(context, name, failure, log.trim())
    })
}

/// Error for a module that the driver rejects.
fn refused(context: &Context, name: &str, failure: Failure, log: &str) -> Error {
    let text = failure.text(context.api);
    let log = if log.is_empty() { String::new() } else { format!("\n{log}") };
    let device = &context.name;
    match failure.code {
        code::INVALID_PTX | code::NO_BINARY_FOR_GPU | code::UNSUPPORTED_PTX_VERSION | code::INVALID_IMAGE => {
            Error::unsupported(format!("kernel `{name}`: device `{device}` rejected its PTX: {text}{log}"))
        }
        _ => context.error(failure, &format!("loading kernel `{name}`")),
    }
}
