//! Pipelines: a kernel's function, and its variant for launches that bind a buffer to an argument that is passed by value.

use std::any::Any;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use elinvar_driver::{Binding, Dim3, Error, LogKernel, Pipeline, Result, Signature};
use elinvar_ptx::{Argument, Constants, Parameter, Ptx};
use parking_lot::{Mutex, RwLock};

use crate::commands::Program;
use crate::context::Context;
use crate::function::Function;
use crate::log::KernelLog;
use crate::shared::Shared;

/// A kernel's code, and its log calls, if it has any.
pub(crate) type Code = (Ptx, Option<Arc<KernelLog>>);

/// Compiles a kernel to PTX.
pub(crate) type Make = Box<dyn Fn(Constants) -> Result<Code> + Send + Sync>;

/// Rejects threadgroup sizes for which not all threads reach a barrier.
pub(crate) type Check = Box<dyn Fn(Dim3) -> Result<()> + Send + Sync>;

/// A kernel that can be launched.
pub(crate) struct CudaPipeline {
    context: Arc<Context>,
    signature: Signature,
    max_threads: u32,
    max_size: Dim3,
    function: Arc<Function>,
    /// The arguments that `function` takes by value.
    values: Vec<usize>,
    /// The variant that takes addresses instead, compiled on first use.
    twin: OnceLock<Arc<Function>>,
    making: Mutex<()>,
    /// Both variants, linked for launches by the device, on first use.
    programs: [OnceLock<Arc<Program>>; 2],
    make: Make,
    check: Check,
    /// Threadgroup sizes that have been accepted.
    checked: RwLock<HashSet<Dim3>>,
}

impl CudaPipeline {
    pub(crate) fn new(context: &Arc<Context>, max_size: Dim3, make: Make, check: Check) -> Result<Self> {
        let (ptx, log) = make(Constants::Values)?;
        let (signature, function) = (ptx.signature.clone(), Function::load(context, log, &ptx)?);
        let own = signature.max_threads_per_threadgroup.unwrap_or(u32::MAX);
        let max_threads = own.min(function.max_threads());
        let value = |parameter: &Parameter| match parameter {
            Parameter::Argument(index, Argument::Value { .. }) => Some(*index),
            _ => None,
        };
        let values = function.parameters().iter().filter_map(value).collect();
        let (function, twin, making) = (Arc::new(function), OnceLock::new(), Mutex::new(()));
        let checked = RwLock::default();
        let context = context.clone();
        Ok(Self {
            context,
            signature,
            max_threads,
            max_size,
            function,
            values,
            twin,
            making,
            programs: [OnceLock::new(), OnceLock::new()],
            make,
            check,
            checked,
        })
    }

    /// The function variant for these bindings.
    pub(crate) fn function(&self, bindings: &[Binding]) -> Result<&Arc<Function>> {
        let is_bound =
            |index: &usize| matches!(bindings.get(*index), Some(Binding::Memory(_) | Binding::Unbound));
        if !self.values.iter().any(is_bound) {
            return Ok(&self.function);
        }
        let _turn = self.twin.get().is_none().then(|| self.making.lock());
        if let Some(twin) = self.twin.get() {
            return Ok(twin);
        }
        let (ptx, log) = self.code(Constants::Addresses)?;
        let twin = Function::load_like(&self.function, log, &ptx)?;
        Ok(self.twin.get_or_init(|| Arc::new(twin)))
    }

    /// The function variant for these bindings, linked for launches by the device. `None` without CUDA's device runtime, and for a cooperative
    /// kernel. The context must be current.
    pub(crate) fn program(&self, shared: &Shared, bindings: &[Binding]) -> Result<Option<&Arc<Program>>> {
        let Ok(linker) = &shared.linker else { return Ok(None) };
        if self.signature.is_cooperative() {
            return Ok(None);
        }
        let has_addresses = !Arc::ptr_eq(self.function(bindings)?, &self.function);
        let program = &self.programs[usize::from(has_addresses)];
        let _turn = program.get().is_none().then(|| self.making.lock());
        if program.get().is_none() {
            let constants = if has_addresses { Constants::Addresses } else { Constants::Values };
            let made = Program::link(&self.context, linker, &[self], constants)?;
            return Ok(Some(program.get_or_init(|| Arc::new(made))));
        }
        Ok(program.get())
    }

    /// The pipeline, after checking that it belongs to this driver.
    pub(crate) fn of(pipeline: &dyn Pipeline) -> Result<&Self> {
        let any: &dyn Any = pipeline;
        any.downcast_ref().ok_or_else(|| {
            let name = &pipeline.signature().name;
            Error::invalid(format!("kernel `{name}` was not compiled by the CUDA driver"))
        })
    }

    /// Its code.
    pub(crate) fn code(&self, constants: Constants) -> Result<Code> {
        (self.make)(constants)
    }

    /// Largest threadgroup along each dimension.
    pub(crate) fn max_size(&self) -> Dim3 {
        self.max_size
    }
}

/// Checks a threadgroup size against the limits of a kernel and of each dimension.
///
/// # Errors
/// `InvalidArgument` with the limit.
pub fn expect_group(name: &str, group: Dim3, max_threads: u32, most: Dim3) -> Result<()> {
    let Dim3 { x, y, z } = group;
    if !(1..=u128::from(max_threads)).contains(&group.volume()) {
        return Err(Error::invalid(format!(
            "kernel `{name}` cannot have threadgroups of {x}x{y}x{z}: 1 to {max_threads} threads are allowed"
        )));
    }
    if x > most.x || y > most.y || z > most.z {
        return Err(Error::invalid(format!(
            "kernel `{name}` cannot have threadgroups of {x}x{y}x{z}: the device allows {}x{}x{} at most",
            most.x, most.y, most.z
        )));
    }
    Ok(())
}

impl Pipeline for CudaPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.max_threads
    }

    fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        self.function.log_kernel()
    }

    fn resident_groups(&self, group: Dim3, threadgroup_bytes: u64) -> Result<u64> {
        self.prepare(group)?;
        self.function.resident_groups(group, threadgroup_bytes)
    }

    /// The code is the same for all sizes; only the barriers are checked.
    fn prepare(&self, group: Dim3) -> Result<()> {
        if self.checked.read().contains(&group) {
            return Ok(());
        }
        expect_group(&self.signature.name, group, self.max_threads, self.max_size)?;
        (self.check)(group)?;
        self.checked.write().insert(group);
        Ok(())
    }
}
