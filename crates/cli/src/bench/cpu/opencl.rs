//! A problem on an OpenCL CPU driver, such as PoCL: the same kernel in OpenCL C.
//!
//! The OpenCL loader is opened at run time; without it, or without a driver for the CPU, this baseline is skipped and the output
//! says so. With fewer threads than the driver has, a sub-device is used (`clCreateSubDevices`). Timed by the host, from the
//! first enqueued dispatch to the end of the last one.

use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;
use std::time::Instant;

use cl3::command_queue::release_command_queue;
use cl3::command_queue::{create_command_queue, enqueue_nd_range_kernel, enqueue_read_buffer, finish};
use cl3::context::{create_context, release_context};
use cl3::device::{CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_PARTITION_BY_COUNTS, CL_DEVICE_TYPE_CPU};
use cl3::device::{create_sub_devices, get_device_ids, get_device_info};
use cl3::event::release_event;
use cl3::kernel::{create_kernel, release_kernel, set_kernel_arg};
use cl3::memory::{CL_MEM_COPY_HOST_PTR, CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use cl3::platform::get_platform_ids;
use cl3::program::{build_program, create_program_with_source, release_program};
use cl3::types::{cl_command_queue, cl_context, cl_device_id, cl_kernel, cl_mem, cl_program};
use elinvar::Error;

use super::Contestant;
use super::problem::{Argument, Problem};
use crate::failure::{Failure, Result};

/// The first CPU device, as an integer: the handle is valid until the process ends.
static DEVICE: LazyLock<std::result::Result<usize, String>> = LazyLock::new(find);

fn find() -> std::result::Result<usize, String> {
    if !cl3::is_opencl_runtime_available() {
        return Err("no OpenCL loader (libOpenCL) is installed".into());
    }
    let platforms = get_platform_ids().map_err(|_| "no OpenCL driver is installed".to_owned())?;
    let mut devices = platforms.iter().filter_map(|p| get_device_ids(*p, CL_DEVICE_TYPE_CPU).ok()).flatten();
    devices.next().map(|device| device as usize).ok_or_else(|| "no OpenCL driver is for the CPU".into())
}

/// Reason why OpenCL is unavailable; `None` if it is available.
pub fn absence() -> Option<String> {
    DEVICE.as_ref().err().cloned()
}

/// OpenCL objects of a problem, released on drop.
pub struct OpenCl {
    context: cl_context,
    queue: cl_command_queue,
    program: cl_program,
    kernel: cl_kernel,
    threads: [usize; 3],
    group: [usize; 3],
    args: Vec<(Argument, Option<cl_mem>)>,
}

fn failed(what: &'static str) -> impl Fn(i32) -> Failure {
    move |code| Error::DeviceLost(format!("OpenCL: {what} answers {code}")).into()
}

/// The device, or a sub-device with this number of compute units.
fn device(threads: usize) -> Result<Option<cl_device_id>> {
    let Ok(device) = &*DEVICE else { return Ok(None) };
    let device = *device as cl_device_id;
    let units = get_device_info(device, CL_DEVICE_MAX_COMPUTE_UNITS).map_err(failed("clGetDeviceInfo"))?;
    if u32::from(units) as usize <= threads {
        return Ok(Some(device));
    }
    let counts = [CL_DEVICE_PARTITION_BY_COUNTS, threads as isize, 0, 0];
    let parts = create_sub_devices(device, &counts).map_err(failed("clCreateSubDevices"))?;
    Ok(parts.first().copied())
}

impl OpenCl {
    /// Builds the problem's kernel; `None` without a driver.
    #[allow(unsafe_code)] // OpenCL is C
    pub fn new(problem: &Problem, threads: usize) -> Result<Option<Self>> {
        let Some(device) = device(threads)? else { return Ok(None) };
        let context =
            create_context(&[device], null(), None, null_mut()).map_err(failed("clCreateContext"))?;
        // SAFETY: the context belongs to this device.
        let queue = unsafe { create_command_queue(context, device, 0) };
        let program = create_program_with_source(context, &[problem.opencl])
            .map_err(failed("clCreateProgramWithSource"))?;
        // Metal's default.
        build_program(program, &[device], c"-cl-fast-relaxed-math", None, null_mut())
            .map_err(failed("clBuildProgram"))?;
        let name =
            CString::new(problem.kernel).map_err(|_| Failure::usage("a kernel's name has no zeros"))?;
        let mut built = Self {
            context,
            queue: queue.map_err(failed("clCreateCommandQueue"))?,
            program,
            kernel: create_kernel(program, &name).map_err(failed("clCreateKernel"))?,
            threads: problem.threads,
            group: problem.group,
            args: Vec::new(),
        };
        for (index, argument) in problem.args.iter().enumerate() {
            built.set(index as u32, argument)?;
        }
        Ok(Some(built))
    }

    #[allow(unsafe_code)] // OpenCL is C
    fn set(&mut self, index: u32, argument: &Argument) -> Result<()> {
        let bytes = argument.raw();
        let scalar = matches!(argument, Argument::Float(_) | Argument::Word(_));
        let memory = (!scalar).then(|| {
            let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
            // SAFETY: the driver copies that many bytes from the slice during the call.
            unsafe { create_buffer(self.context, flags, bytes.len(), bytes.as_ptr() as *mut c_void) }
        });
        let memory = memory.transpose().map_err(failed("clCreateBuffer"))?;
        let (size, value) = match &memory {
            Some(memory) => (size_of::<cl_mem>(), std::ptr::from_ref(memory).cast()),
            None => (bytes.len(), bytes.as_ptr().cast()),
        };
        // SAFETY: the driver copies a handle or a scalar of that size during the call.
        unsafe { set_kernel_arg(self.kernel, index, size, value) }.map_err(failed("clSetKernelArg"))?;
        self.args.push((argument.clone(), memory));
        Ok(())
    }
}

impl Contestant for OpenCl {
    #[allow(unsafe_code)] // OpenCL is C
    fn run(&mut self, iterations: u64) -> Result<u64> {
        let start = Instant::now();
        for _ in 0..iterations {
            let (threads, group) = (self.threads.as_ptr(), self.group.as_ptr());
            // SAFETY: both arrays have three sizes; the problem's sizes are those of its kernel's arguments.
            let event = unsafe {
                enqueue_nd_range_kernel(self.queue, self.kernel, 3, null(), threads, group, 0, null())
            };
            let event = event.map_err(failed("clEnqueueNDRangeKernel"))?;
            // SAFETY: this function owns the event, which is not used after this.
            unsafe { release_event(event) }.map_err(failed("clReleaseEvent"))?;
        }
        finish(self.queue).map_err(failed("clFinish"))?;
        Ok(start.elapsed().as_nanos() as u64)
    }

    #[allow(unsafe_code)] // OpenCL is C
    fn arguments(&self) -> Result<Vec<Argument>> {
        let read = |(argument, memory): &(Argument, Option<cl_mem>)| {
            let mut argument = argument.clone();
            if let Some(memory) = memory {
                let bytes = argument.raw_mut();
                let (size, to) = (bytes.len(), bytes.as_mut_ptr().cast());
                // SAFETY: a blocking read of the size that the buffer was created with.
                let event = unsafe { enqueue_read_buffer(self.queue, *memory, 1, 0, size, to, 0, null()) };
                let event = event.map_err(failed("clEnqueueReadBuffer"))?;
                // SAFETY: this function owns the event, which is not used after this.
                unsafe { release_event(event) }.map_err(failed("clReleaseEvent"))?;
            }
            Ok(argument)
        };
        self.args.iter().map(read).collect()
    }
}

impl Drop for OpenCl {
    #[allow(unsafe_code)] // OpenCL is C
    fn drop(&mut self) {
        // SAFETY: each was made by `new` or `set` and is not used any more. Errors of a release are ignored.
        unsafe {
            for memory in self.args.iter().filter_map(|(_, memory)| *memory) {
                let _ = release_mem_object(memory);
            }
            let _ = release_kernel(self.kernel);
            let _ = release_program(self.program);
            let _ = release_command_queue(self.queue);
            let _ = release_context(self.context);
        }
    }
}
