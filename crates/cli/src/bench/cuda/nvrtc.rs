//! The baseline: CUDA C++ compiled by NVRTC, loaded and launched by CUDA driver calls.
#![allow(unsafe_code)] // C functions

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use cudarc::nvrtc::{self, CompileOptions};
use elinvar::Error;

use super::Contestant;
use super::problems::Problem;
use crate::bench::cpu::problem::Argument;
use crate::failure::{Failure, Result};

const TEXT: &str = include_str!("../kernels/baselines.cu");
/// Compute capability that all supported GPUs have.
const ARCHITECTURE: &str = "compute_80";

/// Reason why this baseline is unavailable, if it is.
pub(in super::super) fn absence() -> Option<String> {
    // SAFETY: loading the library runs only its initializers.
    let is_there = unsafe { nvrtc::sys::is_culib_present() };
    (!is_there).then(|| "NVRTC is not installed: the library `libnvrtc` cannot be loaded".into())
}

/// A failure of the driver.
pub(super) fn failed(error: DriverError) -> Failure {
    Error::DeviceLost(format!("the baseline: {error}")).into()
}

/// A CUDA C++ function and its module, on the first GPU.
pub(super) struct Module {
    context: Arc<CudaContext>,
    module: sys::CUmodule,
    pub(super) function: sys::CUfunction,
    pub(super) stream: sys::CUstream,
}

impl Module {
    /// `None` without NVRTC.
    pub(super) fn new(kernel: &str, options: &[&str]) -> Result<Option<Self>> {
        if absence().is_some() {
            return Ok(None);
        }
        let options = CompileOptions {
            arch: Some(ARCHITECTURE),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            ..CompileOptions::default()
        };
        let ptx = nvrtc::compile_ptx_with_opts(TEXT, options);
        let ptx = ptx.map_err(|error| Error::Environment(format!("NVRTC: {error:?}")))?.to_src();
        let context = CudaContext::new(0).map_err(failed)?;
        let text =
            |text: &str| CString::new(text).map_err(|error| Error::Environment(format!("NVRTC: {error}")));
        let (image, name) = (text(&ptx)?, text(kernel)?);
        // SAFETY: `new` has made the context current; the image is a C string of PTX.
        let (module, function) = unsafe {
            let module = result::module::load_data(image.as_ptr().cast()).map_err(failed)?;
            (module, result::module::get_function(module, name).map_err(failed)?)
        };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(failed)?;
        Ok(Some(Self { context, module, function, stream }))
    }

    /// Makes the context current on this thread.
    pub(super) fn enter(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed)
    }

    /// Launches it, with pointers to the parameters.
    ///
    /// # Safety
    /// The parameters are those of the function, which stays within what they point to.
    pub(super) unsafe fn launch(
        &self,
        groups: [u32; 3],
        group: [u32; 3],
        params: &mut [*mut c_void],
    ) -> std::result::Result<(), DriverError> {
        let [gx, gy, gz] = groups;
        let [x, y, z] = group;
        let (function, stream, params, none) =
            (self.function, self.stream, params.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: guaranteed by the caller.
        unsafe { sys::cuLaunchKernel(function, gx, gy, gz, x, y, z, 0, stream, params, none) }.result()
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: this value owns the stream.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed)
    }

    /// Device time of `work`.
    pub(super) fn timed(&self, work: impl FnOnce() -> std::result::Result<(), DriverError>) -> Result<u64> {
        let time = || {
            let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let (begin, end) = (event()?, event()?);
            // SAFETY: the stream belongs to this value, and the events were created above.
            unsafe {
                result::event::record(begin, self.stream)?;
                work()?;
                result::event::record(end, self.stream)?;
                result::event::synchronize(end)?;
                let ms = result::event::elapsed(begin, end)?;
                result::event::destroy(begin)?;
                result::event::destroy(end)?;
                Ok((f64::from(ms) * 1e6) as u64)
            }
        };
        time().map_err(failed)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: this value owns both, and their work has completed. After an error they are left until the process ends.
        let _left = unsafe { result::stream::destroy(self.stream).and(result::module::unload(self.module)) };
    }
}

/// A problem in CUDA C++ with its own copy of the data.
pub(super) struct Native {
    module: Module,
    groups: [u32; 3],
    group: [u32; 3],
    shapes: Vec<Argument>,
    /// For each argument: its device memory, or 0 for a number.
    memory: Vec<u64>,
}

impl Native {
    pub(super) fn new(problem: &Problem, options: &[&str]) -> Result<Option<Self>> {
        let Some(module) = Module::new(problem.kernel, options)? else { return Ok(None) };
        let mut memory = Vec::new();
        for argument in &problem.args {
            let bytes = argument.raw();
            memory.push(match argument {
                Argument::Float(_) | Argument::Word(_) => 0,
                // SAFETY: the context is current; the allocation has the size of the copied bytes.
                _ => unsafe {
                    let place = result::malloc_sync(bytes.len()).map_err(failed)?;
                    result::memcpy_htod_sync(place, bytes).map_err(failed)?;
                    place
                },
            });
        }
        let group = problem.group.map(|n| n as u32);
        let groups = std::array::from_fn(|d| problem.threads[d].div_ceil(problem.group[d]) as u32);
        Ok(Some(Self { module, groups, group, shapes: problem.args.clone(), memory }))
    }
}

impl Contestant for Native {
    fn run(&mut self, iterations: u64) -> Result<u64> {
        self.module.enter()?;
        let Self { module, groups, group, shapes, memory } = self;
        let params = shapes.iter_mut().zip(memory).map(|(shape, place)| match shape {
            Argument::Float(_) | Argument::Word(_) => shape.raw_mut().as_mut_ptr().cast::<c_void>(),
            _ => std::ptr::from_mut(place).cast(),
        });
        let mut params: Vec<*mut c_void> = params.collect();
        module.timed(|| {
            // SAFETY: the problem's arguments match the kernel's parameters.
            (0..iterations).try_for_each(|_| unsafe { module.launch(*groups, *group, &mut params) })
        })
    }

    fn arguments(&self) -> Result<Vec<Argument>> {
        self.module.enter()?;
        let mut arguments = self.shapes.clone();
        for (argument, place) in arguments.iter_mut().zip(&self.memory).filter(|(_, place)| **place != 0) {
            // SAFETY: the allocation has that many bytes.
            unsafe { result::memcpy_dtoh_sync(argument.raw_mut(), *place) }.map_err(failed)?;
        }
        Ok(arguments)
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        for place in self.memory.iter().filter(|place| **place != 0) {
            // SAFETY: allocated by `new`, and not used any more. After an error it is left until the process ends.
            let _left = unsafe { result::free_sync(*place) };
        }
    }
}
