//! Common code of the tests: a device, a pipeline from source, buffers of numbers.
#![cfg(target_os = "macos")]

pub mod test_hooks;

use std::ffi::c_void;
use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::*;

pub type Object<T> = Retained<ProtocolObject<T>>;

pub fn size(width: usize) -> MTLSize {
    MTLSize { width, height: 1, depth: 1 }
}

pub fn device() -> Object<dyn MTLDevice> {
    MTLCreateSystemDefaultDevice().expect("a device")
}

pub fn library(
    device: &ProtocolObject<dyn MTLDevice>,
    source: &str,
) -> Result<Object<dyn MTLLibrary>, String> {
    let made = device.newLibraryWithSource_options_error(&NSString::from_str(source), None);
    made.map_err(|error| error.localizedDescription().to_string())
}

pub fn pipeline(
    device: &ProtocolObject<dyn MTLDevice>,
    source: &str,
    name: &str,
) -> Object<dyn MTLComputePipelineState> {
    let library = library(device, source).expect("it compiles");
    let function = library.newFunctionWithName(&NSString::from_str(name)).expect("the kernel is there");
    device.newComputePipelineStateWithFunction_error(&function).expect("a pipeline")
}

pub fn buffer_of(device: &ProtocolObject<dyn MTLDevice>, numbers: &[f32]) -> Object<dyn MTLBuffer> {
    let bytes = NonNull::from(numbers).cast::<c_void>();
    let options = MTLResourceOptions::StorageModeShared;
    unsafe { device.newBufferWithBytes_length_options(bytes, size_of_val(numbers), options) }
        .expect("a buffer")
}

pub fn numbers(buffer: &ProtocolObject<dyn MTLBuffer>) -> Vec<f32> {
    let start = buffer.contents().as_ptr().cast::<f32>();
    unsafe { std::slice::from_raw_parts(start, buffer.length() / 4) }.to_vec()
}

pub const SAXPY: &str = "
#include <metal_stdlib>
using namespace metal;
kernel void saxpy(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                  constant float &a [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    y[i] = a * x[i] + y[i];
}
kernel void sum(device const float *x [[buffer(0)]], device float *y [[buffer(1)]],
                threadgroup float *part [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]],
                uint g [[threadgroup_position_in_grid]]) {
    part[t] = x[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) {
        float all = 0;
        for (uint k = 0; k < n; ++k) all += part[k];
        y[g] = all;
    }
}";
