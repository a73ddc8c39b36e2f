//! [`Program`]: the kernels of indirect command buffers, linked with the executor and CUDA's device runtime.
//!
//! A kernel can be launched from the device only by code that is linked with it, so each list of kernels is a module of its own. It is
//! linked when it is executed first.

use std::ffi::CString;
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{
    CUdeviceptr, CUfunction, CUfunction_attribute_enum as FunctionAttribute, CUmodule,
};
use elinvar_driver::{Error, ExecuteCommands, Init, Memory, Pipeline, Result, Storage};
use elinvar_ptx::{Bounds, Constants, Ptx};
use parking_lot::Mutex;

use super::layout::{Kernel, Tables};
use super::link::Linker;
use crate::context::{Context, Handle};
use crate::failure::Failure;
use crate::function::allow_shared;
use crate::log::KernelLog;
use crate::memory::CudaMemory;
use crate::pipeline::CudaPipeline;

/// Made from `executor.c`.
const EXECUTOR: &str = include_str!("executor.ptx");
/// Its entries: for indirect command buffers, for nested launches, and for launches with counts in memory.
const COMMANDS: &str = "elinvar_execute_commands";
const NESTED: &str = "elinvar_launch_nested";
const INDIRECT: &str = "elinvar_launch_indirect";
/// Number of programs at which those of dropped lists are removed.
const MANY: usize = 16;

/// The programs of a device.
#[derive(Default)]
pub(crate) struct Programs {
    known: Mutex<Vec<Known>>,
}

struct Known {
    pipelines: Weak<[Arc<dyn Pipeline>]>,
    inherited: Option<Weak<dyn Pipeline>>,
    program: Arc<Program>,
}

impl Known {
    fn is_of(&self, execution: &ExecuteCommands) -> bool {
        let has_same_kernel = match (&self.inherited, &execution.pipeline) {
            (None, None) => true,
            (Some(known), Some(pipeline)) => std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(pipeline)),
            _ => false,
        };
        has_same_kernel && std::ptr::addr_eq(self.pipelines.as_ptr(), Arc::as_ptr(&execution.pipelines))
    }

    /// Whether an execution can still name it.
    fn is_alive(&self) -> bool {
        self.pipelines.strong_count() > 0
            && self.inherited.as_ref().is_none_or(|pipeline| pipeline.strong_count() > 0)
    }
}

impl Programs {
    /// The program for the kernels of an execution. The context must be current.
    pub(crate) fn of(
        &self,
        context: &Arc<Context>,
        linker: &Linker,
        execution: &ExecuteCommands,
    ) -> Result<Arc<Program>> {
        let mut all = self.known.lock();
        // A list is kept allocated while it is listed here, so no other list can have its address.
        if let Some(known) = all.iter().find(|known| known.is_of(execution)) {
            return Ok(known.program.clone());
        }
        if all.len() >= MANY {
            all.retain(Known::is_alive);
        }
        let pipelines: Vec<&CudaPipeline> =
            execution.kernels().map(|pipeline| CudaPipeline::of(&**pipeline)).collect::<Result<_>>()?;
        let program = Arc::new(Program::link(context, linker, &pipelines, Constants::Addresses)?);
        all.push(Known {
            pipelines: Arc::downgrade(&execution.pipelines),
            inherited: execution.pipeline.as_ref().map(Arc::downgrade),
            program: program.clone(),
        });
        Ok(program)
    }
}

/// The code of a kernel.
#[derive(Clone, Copy, Default)]
pub(super) struct First {
    pub(super) entry: u64,
    pub(super) most_threads: u32,
    /// Maximum dynamic shared memory of a launch, in bytes.
    pub(super) most_dynamic: u64,
}

/// Kernels and the executor.
pub(crate) struct Program {
    context: Arc<Context>,
    module: Handle<CUmodule>,
    pub(super) commands: Handle<CUfunction>,
    pub(super) nested: Handle<CUfunction>,
    pub(super) indirect: Handle<CUfunction>,
    /// Of its first kernel.
    pub(super) first: First,
    /// Kernels, parameters, arguments, and zeros.
    tables: CudaMemory,
    /// Where the parts of the tables begin.
    offsets: [u64; 4],
    pub(super) kernel_count: u32,
    /// Maximum dynamic shared memory of each kernel, in bytes.
    pub(super) most_dynamic: Vec<u64>,
    /// Decoders of fault records, of kernels that check bounds.
    pub(super) bounds: Vec<Option<Arc<Bounds>>>,
    /// The counters that log calls use.
    _logs: Vec<Option<Arc<KernelLog>>>,
}

impl Program {
    /// Links kernels with the executor. The context must be current.
    pub(crate) fn link(
        context: &Arc<Context>,
        linker: &Linker,
        pipelines: &[&CudaPipeline],
        constants: Constants,
    ) -> Result<Self> {
        let parts = pipelines.iter().map(|pipeline| pipeline.code(constants));
        let (codes, logs): (Vec<Ptx>, Vec<_>) = parts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let renamed: Vec<(String, String)> =
            codes.iter().enumerate().map(|(i, ptx)| rename(ptx, i)).collect();
        let texts: Vec<&str> = renamed.iter().map(|(text, _)| text.as_str()).chain([EXECUTOR]).collect();
        let failed = |failure: Failure| context.error(failure, "linking the kernels of commands");
        let module = Handle(linker.load(context, &texts)?);
        // From here on, dropping it unloads the module.
        let mut program = Self {
            context: context.clone(),
            module,
            commands: Handle(null_mut()),
            nested: Handle(null_mut()),
            indirect: Handle(null_mut()),
            first: First::default(),
            tables: CudaMemory::new(context, 0, Storage::Private, Init::Uninitialized)?,
            offsets: [0; 4],
            kernel_count: codes.len() as u32,
            most_dynamic: Vec::new(),
            bounds: Vec::new(),
            _logs: Vec::new(),
        };
        program.commands = Handle(program.function(COMMANDS).map_err(failed)?);
        program.nested = Handle(program.function(NESTED).map_err(failed)?);
        program.indirect = Handle(program.function(INDIRECT).map_err(failed)?);
        let mut tables = Tables::default();
        let mut zeros = 0;
        for (((pipeline, ptx), log), (_, entry)) in pipelines.iter().zip(&codes).zip(&logs).zip(&renamed) {
            let function = program.function(entry).map_err(failed)?;
            let attribute = |which| program.attribute(function, which).map_err(failed);
            let most_threads = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
            let own = attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            let most_dynamic = allow_shared(context, function, own).map_err(failed)?;
            program.most_dynamic.push(most_dynamic);
            let entry = program.address(&format!("{entry}_address"))?;
            if program.first.entry == 0 {
                program.first = First { entry, most_threads, most_dynamic };
            }
            tables.add(&Kernel {
                entry,
                most_threads: most_threads.min(pipeline.max_threads_per_threadgroup()),
                most_size: pipeline.max_size().to_array(),
                own_memory: pipeline.threadgroup_memory(),
                dynamic_base: ptx.dynamic_base,
                most_dynamic,
                parameters: &ptx.parameters,
                signature: &ptx.signature,
                is_checked: ptx.checks.is_some(),
                log: log.as_ref().map_or((0, 0), |log| (log.control, log.kernel.number())),
            });
            zeros = ptx.signature.args.iter().map(|arg| arg.element_size).fold(zeros, u64::max);
            let bounds = |checks| Arc::new(Bounds::new(checks, ptx.signature.clone()));
            program.bounds.push(ptx.checks.clone().map(bounds));
        }
        program._logs = logs;
        program.upload(tables, zeros)?;
        Ok(program)
    }

    #[allow(unsafe_code)] // writes to new memory
    fn upload(&mut self, tables: Tables, zeros: u64) -> Result<()> {
        let zeros = vec![0; usize::try_from(zeros).unwrap_or(0)];
        let mut all = Vec::new();
        let parts = [tables.kernels.0, tables.parameters.0, tables.arguments.0, zeros];
        for (offset, part) in self.offsets.iter_mut().zip(&parts) {
            all.resize(all.len().next_multiple_of(256), 0);
            *offset = all.len() as u64;
            all.extend_from_slice(part);
        }
        self.tables =
            CudaMemory::new(&self.context, all.len() as u64, Storage::Private, Init::Uninitialized)?;
        // SAFETY: nothing else knows this memory.
        unsafe { self.tables.write(0, &all) }
    }

    /// Addresses of the tables of kernels, parameters and arguments, and of zeros.
    pub(super) fn addresses(&self) -> Result<[u64; 4]> {
        let first = self.tables.at(0, 0)?;
        Ok(self.offsets.map(|offset| first + offset))
    }

    /// Whether any kernel checks bounds.
    pub(super) fn is_checked(&self) -> bool {
        self.bounds.iter().any(Option::is_some)
    }

    #[allow(unsafe_code)] // a C function
    fn function(&self, name: &str) -> Result<CUfunction, Failure> {
        let (name, mut function) = (CString::new(name).unwrap_or_default(), null_mut());
        // SAFETY: the module is loaded and the name a C string.
        unsafe { self.context.api.function(&mut function, self.module.0, name.as_ptr()) }?;
        Ok(function)
    }

    #[allow(unsafe_code)] // a C function
    fn attribute(&self, function: CUfunction, which: FunctionAttribute) -> Result<u32, Failure> {
        let mut value = 0;
        // SAFETY: it writes a number; the function is loaded.
        unsafe { self.context.api.function_attribute(&mut value, which as u32, function) }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Reads an address from a variable of the module.
    #[allow(unsafe_code)] // C functions
    fn address(&self, name: &str) -> Result<u64> {
        let api = self.context.api;
        let failed = |failure: Failure| self.context.error(failure, "reading a kernel's address");
        let symbol = CString::new(name).unwrap_or_default();
        let (mut at, mut bytes): (CUdeviceptr, usize) = (0, 0);
        // SAFETY: it writes two numbers; the name is a C string.
        unsafe { api.variable(&mut at, &mut bytes, self.module.0, symbol.as_ptr()) }.map_err(failed)?;
        let mut value = 0_u64;
        let stream = self.context.create_stream(0)?;
        // SAFETY: the variable has this size; the copy has ended when the stream has.
        let read = unsafe {
            let copied = api.copy_to_host((&raw mut value).cast(), at, size_of::<u64>(), stream);
            let waited = copied.and_then(|()| api.wait_for_stream(stream));
            api.destroy_stream(stream).and(waited)
        };
        read.map_err(failed)?;
        match value {
            0 => Err(Error::unsupported(format!("`{name}`: CUDA's device runtime gives it no address"))),
            value => Ok(value),
        }
    }
}

impl Drop for Program {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: loaded by `link`; executions in flight keep the list of kernels, and so this, alive.
            let _left = unsafe { self.context.api.unload_module(self.module.0) };
        }
    }
}

/// The text of a kernel whose entry has a name of its own, and a variable with the entry's address. Returns text and name.
fn rename(ptx: &Ptx, number: usize) -> (String, String) {
    let entry = format!("elinvar_command_{number}");
    let text = ptx.text.replace(&ptx.entry, &entry);
    (format!("{text}\n.visible .global .align 8 .u64 {entry}_address[1] = {{{entry}}};\n"), entry)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::EXECUTOR;

    /// `ELINVAR_BLESS=1` makes the PTX anew, with clang 19.
    #[test]
    fn the_executor_is_made_of_its_source() {
        let source = include_str!("executor.c");
        let head = format!("// executor.c {}\n", blake3::hash(source.as_bytes()).to_hex());
        if std::env::var_os("ELINVAR_BLESS").is_none() {
            assert!(
                EXECUTOR.starts_with(&head),
                "executor.ptx is older than executor.c: ELINVAR_BLESS=1 makes it"
            );
            return;
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands");
        let mut clang = Command::new("clang-19");
        clang.args(["--target=nvptx64-nvidia-cuda", "-march=sm_80", "-Xclang", "-target-feature", "-Xclang"]);
        // Calls stay where all threads of the block reach them.
        clang.args([
            "+ptx78",
            "-Os",
            "-fno-unroll-loops",
            "-fconvergent-functions",
            "-ffreestanding",
            "-nostdlib",
        ]);
        let output = clang.args(["-S", "executor.c", "-o", "-"]).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        std::fs::write(format!("{folder}/executor.ptx"), format!("{head}{}\n", lines.join("\n"))).unwrap();
    }
}
