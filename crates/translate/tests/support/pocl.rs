//! An OpenCL driver for the CPU, such as PoCL: the independent reference.
#![allow(unsafe_code)] // OpenCL is C

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cl3::command_queue::{create_command_queue, enqueue_nd_range_kernel, enqueue_read_buffer, finish};
use cl3::context::create_context;
use cl3::device::{CL_DEVICE_TYPE_CPU, get_device_ids};
use cl3::kernel::{create_kernel, set_kernel_arg};
use cl3::memory::{CL_MEM_COPY_HOST_PTR, CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use cl3::platform::get_platform_ids;
use cl3::program::{CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_info};
use cl3::types::{cl_command_queue, cl_context, cl_mem, cl_program};

use super::{Argument, Launch};

/// Whether there is one; if not, why.
pub fn absence() -> Option<String> {
    if !cl3::is_opencl_runtime_available() {
        return Some("no OpenCL loader (libOpenCL) is installed".into());
    }
    let Ok(platforms) = get_platform_ids() else { return Some("no OpenCL driver is installed".into()) };
    let has_cpu = platforms
        .iter()
        .any(|platform| get_device_ids(*platform, CL_DEVICE_TYPE_CPU).is_ok_and(|all| !all.is_empty()));
    (!has_cpu).then(|| "no OpenCL driver is for the CPU".into())
}

/// Runs kernel `k(in0, in1, in2, out)`. Objects live until the process ends.
pub fn run(text: &str, inputs: &[Vec<u8>; 3], bytes: usize, threads: usize) -> Vec<u8> {
    run_in(text, "/", inputs, bytes, threads)
}

/// [`run`] for a source that includes files of a folder.
pub fn run_in(text: &str, folder: &str, inputs: &[Vec<u8>; 3], bytes: usize, threads: usize) -> Vec<u8> {
    let program = Program::new(text, &format!("-I {folder}")).unwrap_or_else(|log| panic!("{log}"));
    let mut arguments: Vec<Argument> = inputs.iter().cloned().map(Argument::Buffer).collect();
    arguments.push(Argument::Buffer(vec![0; bytes]));
    let launch = Launch { kernel: "k".into(), arguments, global: [threads, 1, 1], local: [0; 3] };
    program.launch(&launch).expect("a launch").pop().expect("four buffers")
}

/// A source that the driver has compiled. Objects live until the process ends.
pub struct Program {
    context: cl_context,
    queue: cl_command_queue,
    program: cl_program,
}

impl Program {
    /// Compiles a source; the log if it cannot.
    pub fn new(text: &str, options: &str) -> Result<Self, String> {
        let platforms = get_platform_ids().expect("platforms");
        let mut devices =
            platforms.iter().filter_map(|p| get_device_ids(*p, CL_DEVICE_TYPE_CPU).ok()).flatten();
        let device = devices.next().expect("a CPU");
        let context = create_context(&[device], null(), None, null_mut()).expect("a context");
        // SAFETY: the context belongs to this device.
        let queue = unsafe { create_command_queue(context, device, 0) }.expect("a queue");
        let options = std::ffi::CString::new(format!("-cl-std=CL1.2 {options}")).expect("no zeros");
        let program = create_program_with_source(context, &[text]).expect("a program");
        if build_program(program, &[device], &options, None, null_mut()).is_err() {
            let log = get_program_build_info(program, device, CL_PROGRAM_BUILD_LOG).expect("a log");
            return Err(log.to_string());
        }
        Ok(Self { context, queue, program })
    }

    /// The buffers after a launch.
    pub fn launch(&self, launch: &Launch) -> Result<Vec<Vec<u8>>, String> {
        let name = std::ffi::CString::new(launch.kernel.as_str()).map_err(|error| error.to_string())?;
        let kernel = create_kernel(self.program, &name).map_err(|error| format!("kernel: {error}"))?;
        let mut memories = Vec::new();
        for (index, argument) in launch.arguments.iter().enumerate() {
            let index = u32::try_from(index).expect("few");
            let done = match argument {
                Argument::Buffer(data) => {
                    let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
                    // SAFETY: the driver copies that many bytes from the vector during the call.
                    let memory: cl_mem = unsafe {
                        create_buffer(self.context, flags, data.len(), data.as_ptr() as *mut c_void)
                    }
                    .expect("memory");
                    memories.push((memory, data.len()));
                    let value = std::ptr::from_ref(&memory).cast();
                    // SAFETY: the driver copies a handle during the call.
                    unsafe { set_kernel_arg(kernel, index, size_of::<cl_mem>(), value) }
                }
                // SAFETY: the driver copies that many bytes during the call.
                Argument::Value(bytes) => unsafe {
                    set_kernel_arg(kernel, index, bytes.len(), bytes.as_ptr().cast())
                },
                // SAFETY: local memory has a size and no value.
                Argument::Local(bytes) => unsafe { set_kernel_arg(kernel, index, *bytes, null()) },
            };
            done.map_err(|error| format!("argument {index}: {error}"))?;
        }
        let local = if launch.local[0] == 0 { null() } else { launch.local.as_ptr() };
        let (queue, global) = (self.queue, launch.global.as_ptr());
        // SAFETY: three sizes, for three dimensions; the kernel stays within its arguments.
        unsafe { enqueue_nd_range_kernel(queue, kernel, 3, null(), global, local, 0, null()) }
            .map_err(|error| format!("launch: {error}"))?;
        finish(queue).map_err(|error| format!("launch: {error}"))?;
        let read = |(memory, bytes): (cl_mem, usize)| {
            let mut out = vec![0_u8; bytes];
            // SAFETY: a blocking read of the size that the buffer was created with.
            unsafe { enqueue_read_buffer(queue, memory, 1, 0, bytes, out.as_mut_ptr().cast(), 0, null()) }
                .expect("a read");
            // SAFETY: nothing uses the buffer any more.
            unsafe { release_mem_object(memory) }.expect("memory");
            out
        };
        Ok(memories.into_iter().map(read).collect())
    }
}
