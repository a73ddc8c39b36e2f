//! An OpenCL driver for the CPU, such as PoCL: the independent reference.
#![allow(unsafe_code)] // OpenCL is C

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cl3::command_queue::{create_command_queue, enqueue_nd_range_kernel, enqueue_read_buffer, finish};
use cl3::context::create_context;
use cl3::device::{CL_DEVICE_TYPE_CPU, get_device_ids};
use cl3::kernel::{create_kernel, set_kernel_arg};
use cl3::memory::{CL_MEM_COPY_HOST_PTR, CL_MEM_READ_WRITE, create_buffer};
use cl3::platform::get_platform_ids;
use cl3::program::{CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_info};
use cl3::types::cl_mem;

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
    let platforms = get_platform_ids().expect("platforms");
    let mut devices = platforms.iter().filter_map(|p| get_device_ids(*p, CL_DEVICE_TYPE_CPU).ok()).flatten();
    let device = devices.next().expect("a CPU");
    let context = create_context(&[device], null(), None, null_mut()).expect("a context");
    // SAFETY: the context belongs to this device.
    let queue = unsafe { create_command_queue(context, device, 0) }.expect("a queue");
    let options = std::ffi::CString::new(format!("-cl-std=CL1.2 -I {folder}")).expect("no zeros");
    let program = create_program_with_source(context, &[text]).expect("a program");
    if build_program(program, &[device], &options, None, null_mut()).is_err() {
        let log = get_program_build_info(program, device, CL_PROGRAM_BUILD_LOG).expect("a log");
        panic!("{log}");
    }
    let kernel = create_kernel(program, c"k").expect("a kernel");
    let mut out = vec![0_u8; bytes];
    let memories: Vec<cl_mem> = inputs
        .iter()
        .chain([&out])
        .map(|data| {
            let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
            // SAFETY: the driver copies that many bytes from the vector during the call.
            unsafe { create_buffer(context, flags, data.len(), data.as_ptr() as *mut c_void) }
                .expect("memory")
        })
        .collect();
    for (index, memory) in memories.iter().enumerate() {
        let value = std::ptr::from_ref(memory).cast();
        // SAFETY: the driver copies a handle during the call.
        unsafe { set_kernel_arg(kernel, u32::try_from(index).expect("few"), size_of::<cl_mem>(), value) }
            .expect("an argument");
    }
    let grid = [threads];
    // SAFETY: one size, for one dimension; the kernel stays within its arguments.
    unsafe { enqueue_nd_range_kernel(queue, kernel, 1, null(), grid.as_ptr(), null(), 0, null()) }
        .expect("a launch");
    finish(queue).expect("an end");
    // SAFETY: a blocking read of the size that the buffer was created with.
    unsafe { enqueue_read_buffer(queue, memories[3], 1, 0, bytes, out.as_mut_ptr().cast(), 0, null()) }
        .expect("a read");
    out
}
