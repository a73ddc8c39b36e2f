//! Creation methods of `MTLDevice`, whose names start with `new`; each delegates to the type that is created. The operating system's version
//! determines which of them exist, as documented for each method.

use elinvar_objc::Declaration;
use elinvar_objc::foundation::os_version;

use crate::commands::log_state::LogState;
use crate::commands::queue::Queue;
use crate::device::Device;
use crate::encoders::indirect::IndirectBuffer;
use crate::library::Library;
use crate::library::binary_archive::Archive;
use crate::library::pipeline::{self, Pipeline};
use crate::memory::buffer::Buffer;
use crate::memory::heap::{Heap, buffer_size_and_align};
use crate::memory::residency::ResidencySet;
use crate::sync::counter::{SampleBuffer, sets};
use crate::sync::event::{Event, SharedEvent};
use crate::sync::fence::Fence;

pub fn declare(device: Declaration<Device>) -> Declaration<Device> {
    let os = os_version();
    device
        .method("newBufferWithLength:options:", Buffer::with_length)
        .method("newBufferWithBytes:length:options:", Buffer::with_bytes)
        .method("newBufferWithBytesNoCopy:length:options:deallocator:", Buffer::without_copy)
        .method("newHeapWithDescriptor:", Heap::with_descriptor)
        .method("heapBufferSizeAndAlignWithLength:options:", buffer_size_and_align)
        .method("newCommandQueue", Queue::new)
        .method("newCommandQueueWithMaxCommandBufferCount:", Queue::with_count)
        .method("newLibraryWithSource:options:error:", Library::with_source)
        .method("newLibraryWithSource:options:completionHandler:", Library::with_source_later)
        .method("newLibraryWithData:error:", Library::with_data)
        .method("newLibraryWithURL:error:", Library::with_url)
        .method("newLibraryWithFile:error:", Library::with_file)
        .method("newDefaultLibrary", Library::default_of)
        .method("newComputePipelineStateWithFunction:error:", Pipeline::with_function)
        .method("newComputePipelineStateWithFunction:completionHandler:", Pipeline::with_function_later)
        .method("newComputePipelineStateWithFunction:options:reflection:error:", pipeline::with_reflection)
        .method("newComputePipelineStateWithDescriptor:options:reflection:error:", Pipeline::with_descriptor)
        .method("newFence", Fence::new)
        .when(os >= (10, 14), |device| {
            device
                .method("newEvent", Event::of_device)
                .method("newSharedEvent", SharedEvent::of_device)
                .method("newSharedEventWithHandle:", SharedEvent::with_handle)
                .method(
                    "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:",
                    IndirectBuffer::with_descriptor,
                )
        })
        .when(os >= (10, 15), |device| {
            device
                .method("counterSets", sets)
                .method("newCounterSampleBufferWithDescriptor:error:", SampleBuffer::with_descriptor)
        })
        .when(os >= (11, 0), |device| {
            device.method("newBinaryArchiveWithDescriptor:error:", Archive::with_descriptor)
        })
        .when(os >= (15, 0), |device| {
            device
                .method("newCommandQueueWithDescriptor:", Queue::with_descriptor)
                .method("newResidencySetWithDescriptor:error:", ResidencySet::with_descriptor)
                .method("newLogStateWithDescriptor:error:", LogState::with_descriptor)
        })
}
