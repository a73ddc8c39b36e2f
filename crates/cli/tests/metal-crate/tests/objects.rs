//! Heaps, indirect commands, counters, archives, reflection, residency, captures, listeners.
#![cfg(target_os = "macos")]

use std::ptr::NonNull;
use std::sync::mpsc::channel;

use block2::RcBlock;
use metal_crate::*;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString, NSURL};
use objc2_metal::*;

const SHARED: MTLResourceOptions = MTLResourceOptions::StorageModeShared;

fn run(
    queue: &ProtocolObject<dyn MTLCommandQueue>,
    encode: impl FnOnce(&ProtocolObject<dyn MTLCommandBuffer>),
) {
    let commands = queue.commandBuffer().unwrap();
    encode(&commands);
    commands.commit();
    commands.waitUntilCompleted();
    assert_eq!(commands.status(), MTLCommandBufferStatus::Completed);
}

fn fill(commands: &ProtocolObject<dyn MTLCommandBuffer>, buffer: &ProtocolObject<dyn MTLBuffer>, value: u8) {
    let blit = commands.blitCommandEncoder().unwrap();
    blit.fillBuffer_range_value(buffer, NSRange { location: 0, length: buffer.length() }, value);
    blit.endEncoding();
}

#[test]
fn heaps_place_and_alias() {
    autoreleasepool(|_| {
        let device = device();
        let queue = device.newCommandQueue().unwrap();
        let heap = |kind| {
            let descriptor = MTLHeapDescriptor::new();
            assert_eq!(descriptor.storageMode(), MTLStorageMode::Private);
            descriptor.setSize(1 << 16);
            descriptor.setStorageMode(MTLStorageMode::Shared);
            descriptor.setType(kind);
            device.newHeapWithDescriptor(&descriptor).unwrap()
        };
        let automatic = heap(MTLHeapType::Automatic);
        let one = automatic.newBufferWithLength_options(40_000, SHARED).unwrap();
        assert!(automatic.newBufferWithLength_options(40_000, SHARED).is_none());
        assert_eq!((automatic.usedSize(), automatic.maxAvailableSizeWithAlignment(256)), (40_192, 25_344));
        unsafe { one.makeAliasable() };
        let two = automatic.newBufferWithLength_options(40_000, SHARED).unwrap();
        assert_eq!(two.heapOffset(), 0);
        assert_eq!(two.gpuAddress(), one.gpuAddress());

        let placement = heap(MTLHeapType::Placement);
        let at =
            |offset| unsafe { placement.newBufferWithLength_options_offset(512, SHARED, offset) }.unwrap();
        let (low, high) = (at(0), at(256));
        run(&queue, |commands| {
            fill(commands, &low, 0);
            fill(commands, &high, 0x3f);
        });
        let set = f32::from_bits(0x3f3f_3f3f);
        let seen = numbers(&low);
        assert_eq!(seen, [[0.0; 64], [set; 64]].concat());
    });
}

#[test]
fn indirect_commands_run_as_they_are_when_their_turn_comes() {
    autoreleasepool(|_| {
        let device = device();
        let made =
            library(&device, SAXPY).unwrap().newFunctionWithName(&NSString::from_str("saxpy")).unwrap();
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(Some(&made));
        descriptor.setSupportIndirectCommandBuffers(true);
        let pipeline = device
            .newComputePipelineStateWithDescriptor_options_reflection_error(
                &descriptor,
                MTLPipelineOption::empty(),
                None,
            )
            .unwrap();
        let (x, y) = (buffer_of(&device, &[1.0, 2.0, 3.0, 4.0]), buffer_of(&device, &[0.5; 4]));
        let a = buffer_of(&device, &[2.0]);
        let descriptor = MTLIndirectCommandBufferDescriptor::new();
        descriptor.setCommandTypes(MTLIndirectCommandType::ConcurrentDispatchThreads);
        descriptor.setInheritBuffers(false);
        descriptor.setMaxKernelBufferBindCount(3);
        let commands = unsafe {
            device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options(&descriptor, 3, SHARED)
        }
        .unwrap();
        for index in [0, 2] {
            let command = unsafe { commands.indirectComputeCommandAtIndex(index) };
            command.setComputePipelineState(&pipeline);
            for (place, buffer) in [&x, &y, &a].into_iter().enumerate() {
                unsafe { command.setKernelBuffer_offset_atIndex(buffer, 0, place) };
            }
            command.concurrentDispatchThreads_threadsPerThreadgroup(size(4), size(4));
            command.setBarrier();
        }
        let queue = device.newCommandQueue().unwrap();
        let execute = |range| {
            run(&queue, |buffer| {
                let encoder = buffer.computeCommandEncoder().unwrap();
                unsafe { encoder.executeCommandsInBuffer_withRange(&commands, range) };
                encoder.endEncoding();
            });
        };
        execute(NSRange { location: 0, length: 3 });
        assert_eq!(numbers(&y), [4.5, 8.5, 12.5, 16.5]);
        unsafe { commands.resetWithRange(NSRange { location: 0, length: 1 }) };
        execute(NSRange { location: 0, length: 3 });
        assert_eq!(numbers(&y), [6.5, 12.5, 18.5, 24.5]);
    });
}

/// A kernel encodes every second command, over what the host has encoded in some, and copies one.
const ENCODES: &str = "
    #include <metal_stdlib>
    using namespace metal;
    struct Commands { command_buffer commands; compute_pipeline_state add; };
    kernel void encode(device const Commands& c [[buffer(0)]], device float* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
        compute_command command(c.commands, 2 * i);
        command.reset();
        if (i == 5) return;
        command.set_compute_pipeline_state(c.add);
        command.set_kernel_buffer(x + 8 * i, 0);
        command.set_barrier();
        command.concurrent_dispatch_threads(uint3(i + 1, 1, 1), uint3(4, 1, 1));
        if (i == 7) {
            compute_command copy(c.commands, 15);
            copy.copy_command(command);
        }
    }
    kernel void add(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }";

#[test]
fn kernels_encode_indirect_commands() {
    autoreleasepool(|_| {
        let device = device();
        let source = library(&device, ENCODES).unwrap();
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(source.newFunctionWithName(&NSString::from_str("add")).as_deref());
        descriptor.setSupportIndirectCommandBuffers(true);
        let option = MTLPipelineOption::empty();
        let add =
            device.newComputePipelineStateWithDescriptor_options_reflection_error(&descriptor, option, None);
        let (add, encode) = (add.unwrap(), pipeline(&device, ENCODES, "encode"));
        let (x, y) = (buffer_of(&device, &[0.0; 64]), buffer_of(&device, &[0.0; 4]));
        let descriptor = MTLIndirectCommandBufferDescriptor::new();
        descriptor.setCommandTypes(MTLIndirectCommandType::ConcurrentDispatchThreads);
        descriptor.setInheritBuffers(false);
        descriptor.setMaxKernelBufferBindCount(1);
        let commands = unsafe {
            device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options(&descriptor, 16, SHARED)
        };
        let commands = commands.unwrap();
        for index in [1, 2, 10] {
            let command = unsafe { commands.indirectComputeCommandAtIndex(index) };
            command.setComputePipelineState(&add);
            unsafe { command.setKernelBuffer_offset_atIndex(&y, 0, 0) };
            command.concurrentDispatchThreads_threadsPerThreadgroup(size(4), size(4));
        }
        // SAFETY: a resource ID is a number of 64 bits.
        let id = |id: MTLResourceID| unsafe { std::mem::transmute::<MTLResourceID, u64>(id) };
        let handles = [id(commands.gpuResourceID()), id(add.gpuResourceID())];
        let bytes = NonNull::from(&handles).cast();
        let arguments = unsafe { device.newBufferWithBytes_length_options(bytes, 16, SHARED) }.unwrap();
        let queue = device.newCommandQueue().unwrap();
        let execute = |range: NSRange| {
            run(&queue, |buffer| {
                let encoder = buffer.computeCommandEncoder().unwrap();
                unsafe { encoder.executeCommandsInBuffer_withRange(&commands, range) };
                encoder.endEncoding();
            });
        };
        run(&queue, |buffer| {
            let encoder = buffer.computeCommandEncoder().unwrap();
            encoder.setComputePipelineState(&encode);
            unsafe {
                encoder.setBuffer_offset_atIndex(Some(&arguments), 0, 0);
                encoder.setBuffer_offset_atIndex(Some(&x), 0, 1);
            }
            encoder.dispatchThreads_threadsPerThreadgroup(size(8), size(8));
            encoder.endEncoding();
        });
        execute(NSRange { location: 0, length: 16 });
        // Command 1 is the host's still; 2 and 10 were replaced, 10 by nothing; 15 is a copy of 14.
        assert_eq!(numbers(&y), [1.0; 4]);
        let added = |i: usize| {
            if i % 8 > i / 8 || i / 8 == 5 {
                0.0
            } else if i / 8 == 7 {
                2.0
            } else {
                1.0
            }
        };
        assert_eq!(numbers(&x), (0..64).map(added).collect::<Vec<f32>>());
        unsafe { commands.resetWithRange(NSRange { location: 2, length: 14 }) };
        let command = unsafe { commands.indirectComputeCommandAtIndex(0) };
        command.setComputePipelineState(&add);
        unsafe { command.setKernelBuffer_offset_atIndex(&y, 0, 0) };
        command.concurrentDispatchThreads_threadsPerThreadgroup(size(2), size(2));
        execute(NSRange { location: 0, length: 16 });
        assert_eq!(numbers(&y), [3.0, 3.0, 2.0, 2.0]);
        assert_eq!(numbers(&x), (0..64).map(added).collect::<Vec<f32>>());
    });
}

#[test]
fn indirect_commands_inherit_the_state_of_the_encoder() {
    autoreleasepool(|_| {
        let device = device();
        let source = library(&device, ENCODES).unwrap();
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(source.newFunctionWithName(&NSString::from_str("add")).as_deref());
        descriptor.setSupportIndirectCommandBuffers(true);
        let option = MTLPipelineOption::empty();
        let add =
            device.newComputePipelineStateWithDescriptor_options_reflection_error(&descriptor, option, None);
        let add = add.unwrap();
        let only_sizes = "
            #include <metal_stdlib>
            using namespace metal;
            kernel void encode(constant command_buffer* c [[buffer(0)]], uint i [[thread_position_in_grid]]) {
                compute_command command(c[0], i + 1);
                command.concurrent_dispatch_threads(uint3(2 * i + 2, 1, 1), uint3(4, 1, 1));
            }";
        let encode = pipeline(&device, only_sizes, "encode");
        let descriptor = MTLIndirectCommandBufferDescriptor::new();
        descriptor.setCommandTypes(MTLIndirectCommandType::ConcurrentDispatchThreads);
        descriptor.setInheritPipelineState(true);
        assert!(descriptor.inheritBuffers());
        let commands = unsafe {
            device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options(&descriptor, 3, SHARED)
        };
        let commands = commands.unwrap();
        let first = unsafe { commands.indirectComputeCommandAtIndex(0) };
        first.concurrentDispatchThreads_threadsPerThreadgroup(size(7), size(4));
        // SAFETY: a resource ID is a number of 64 bits.
        let handle = unsafe { std::mem::transmute::<MTLResourceID, u64>(commands.gpuResourceID()) };
        let queue = device.newCommandQueue().unwrap();
        run(&queue, |buffer| {
            let encoder = buffer.computeCommandEncoder().unwrap();
            encoder.setComputePipelineState(&encode);
            unsafe { encoder.setBytes_length_atIndex(NonNull::from(&handle).cast(), 8, 0) };
            encoder.dispatchThreads_threadsPerThreadgroup(size(2), size(2));
            encoder.endEncoding();
        });
        let (x, y) = (buffer_of(&device, &[0.0; 8]), buffer_of(&device, &[5.0; 12]));
        run(&queue, |buffer| {
            let encoder = buffer.computeCommandEncoder().unwrap();
            encoder.setComputePipelineState(&add);
            for (buffer, offset, range) in [(&x, 0, 0..3), (&y, 16, 1..3)] {
                unsafe {
                    encoder.setBuffer_offset_atIndex(Some(buffer), offset, 0);
                    let range = NSRange { location: range.start, length: range.len() };
                    encoder.executeCommandsInBuffer_withRange(&commands, range);
                }
            }
            encoder.endEncoding();
        });
        assert_eq!(numbers(&x), [3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(numbers(&y), [5.0, 5.0, 5.0, 5.0, 7.0, 7.0, 6.0, 6.0, 5.0, 5.0, 5.0, 5.0]);
    });
}

#[test]
fn the_size_of_a_grid_can_come_from_a_buffer() {
    autoreleasepool(|_| {
        let device = device();
        let pipeline = pipeline(&device, SAXPY, "saxpy");
        let (x, y) = (buffer_of(&device, &[1.0; 12]), buffer_of(&device, &[0.0; 12]));
        let groups = [2_u32, 1, 1];
        let bytes = NonNull::from(&groups).cast();
        let groups = unsafe { device.newBufferWithBytes_length_options(bytes, 12, SHARED) }.unwrap();
        run(&device.newCommandQueue().unwrap(), |commands| {
            let encoder =
                commands.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent).unwrap();
            encoder.setComputePipelineState(&pipeline);
            let a = 3.0_f32;
            let buffers = [&raw const *x, &raw const *y];
            let offsets = [0_usize, 4];
            unsafe {
                encoder.setBuffers_offsets_withRange(
                    NonNull::from(&buffers).cast(),
                    NonNull::from(&offsets).cast(),
                    NSRange { location: 0, length: 2 },
                );
                encoder.setBytes_length_atIndex(NonNull::from(&a).cast(), 4, 2);
                encoder.dispatchThreadgroupsWithIndirectBuffer_indirectBufferOffset_threadsPerThreadgroup(
                    &groups,
                    0,
                    size(4),
                );
            }
            encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
            encoder.endEncoding();
        });
        assert_eq!(numbers(&y), [[0.0].as_slice(), &[3.0; 8], &[0.0; 3]].concat());
    });
}

#[test]
fn passes_sample_the_time_at_their_ends() {
    autoreleasepool(|_| {
        let device = device();
        assert!(device.supportsCounterSampling(MTLCounterSamplingPoint::AtStageBoundary));
        assert!(!device.supportsCounterSampling(MTLCounterSamplingPoint::AtDispatchBoundary));
        let sets = device.counterSets().unwrap();
        let set = sets.iter().find(|set| &*set.name() == unsafe { MTLCommonCounterSetTimestamp }).unwrap();
        let descriptor = MTLCounterSampleBufferDescriptor::new();
        descriptor.setCounterSet(Some(&set));
        descriptor.setStorageMode(MTLStorageMode::Shared);
        unsafe { descriptor.setSampleCount(4) };
        let samples = device.newCounterSampleBufferWithDescriptor_error(&descriptor).unwrap();
        let buffer = buffer_of(&device, &[0.0; 4]);
        let (mut before, mut after, mut cpu) = (0, 0, 0);
        let now = |gpu: &mut u64, cpu: &mut u64| unsafe {
            device.sampleTimestamps_gpuTimestamp(NonNull::from(cpu), NonNull::from(gpu));
        };
        now(&mut before, &mut cpu);
        run(&device.newCommandQueue().unwrap(), |commands| {
            let pass = MTLBlitPassDescriptor::new();
            let place = unsafe { pass.sampleBufferAttachments().objectAtIndexedSubscript(0) };
            place.setSampleBuffer(Some(&samples));
            unsafe {
                place.setStartOfEncoderSampleIndex(1);
                place.setEndOfEncoderSampleIndex(3);
            }
            let blit = commands.blitCommandEncoderWithDescriptor(&pass).unwrap();
            blit.fillBuffer_range_value(&buffer, NSRange { location: 0, length: 16 }, 0);
            blit.endEncoding();
        });
        now(&mut after, &mut cpu);
        let data = unsafe { samples.resolveCounterRange(NSRange { location: 0, length: 4 }) }.unwrap();
        let times: Vec<u64> =
            data.to_vec().chunks(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!((times[0], times[2]), (u64::MAX, u64::MAX), "not sampled");
        assert!(
            before <= times[1] && times[1] <= times[3] && times[3] <= after,
            "{before} {times:?} {after}"
        );
    });
}

const CONSTANTS: &str = "
constant int factor [[function_constant(3)]];
constant bool add [[function_constant(4)]];
kernel void scale(device const int *in [[buffer(2)]], device int *out [[buffer(0)]],
                  threadgroup float4 *part [[threadgroup(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = in[i] * factor + (add ? 1 : 0);
}";

#[test]
fn constants_reflection_and_archives() {
    autoreleasepool(|_| {
        let device = device();
        let library = library(&device, CONSTANTS).unwrap();
        let names: Vec<String> = library.functionNames().iter().map(|name| name.to_string()).collect();
        assert_eq!(names, ["scale"]);
        let values = MTLFunctionConstantValues::new();
        unsafe {
            values.setConstantValue_type_atIndex(NonNull::from(&5_i32).cast(), MTLDataType::Int, 3);
            values.setConstantValue_type_withName(
                NonNull::from(&true).cast(),
                MTLDataType::Bool,
                &NSString::from_str("add"),
            );
        }
        let name = NSString::from_str("scale");
        let function = library.newFunctionWithName_constantValues_error(&name, &values).unwrap();
        let missing = NSString::from_str("none");
        assert_eq!(
            library.newFunctionWithName_constantValues_error(&missing, &values).unwrap_err().code(),
            5
        );
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(Some(&function));

        let archive =
            device.newBinaryArchiveWithDescriptor_error(&MTLBinaryArchiveDescriptor::new()).unwrap();
        let archives = objc2_foundation::NSArray::from_retained_slice(&[archive.clone()]);
        descriptor.setBinaryArchives(Some(&archives));
        let only = MTLPipelineOption::FailOnBinaryArchiveMiss;
        let make = |options, reflection: Option<&mut Option<Retained<MTLComputePipelineReflection>>>| {
            device.newComputePipelineStateWithDescriptor_options_reflection_error(
                &descriptor,
                options,
                reflection,
            )
        };
        assert!(make(only, None).is_err());
        archive.addComputePipelineFunctionsWithDescriptor_error(&descriptor).unwrap();
        let path = std::env::temp_dir().join(format!("archive-{}", std::process::id()));
        let url = NSURL::fileURLWithPath(&NSString::from_str(path.to_str().unwrap()));
        archive.serializeToURL_error(&url).unwrap();
        let from = MTLBinaryArchiveDescriptor::new();
        from.setUrl(Some(&url));
        let read = device.newBinaryArchiveWithDescriptor_error(&from).unwrap();
        descriptor.setBinaryArchives(Some(&objc2_foundation::NSArray::from_retained_slice(&[read])));
        let mut reflection = None;
        let made = make(only | MTLPipelineOption::BindingInfo, Some(&mut reflection)).unwrap();
        std::fs::write(&path, "nonsense").unwrap();
        assert_eq!(device.newBinaryArchiveWithDescriptor_error(&from).unwrap_err().code(), 1);
        std::fs::remove_file(&path).unwrap();

        let bindings = reflection.unwrap().bindings();
        let found: Vec<_> =
            bindings.iter().map(|b| (b.name().to_string(), b.index(), b.r#type(), b.access())).collect();
        let (buffer, read, write) =
            (MTLBindingType::Buffer, MTLBindingAccess::ReadOnly, MTLBindingAccess::ReadWrite);
        assert_eq!(
            found,
            [
                ("in".to_owned(), 2, buffer, read),
                ("out".to_owned(), 0, buffer, write),
                ("part".to_owned(), 1, MTLBindingType::ThreadgroupMemory, write),
            ]
        );
        let input = [1_i32, -2, 3];
        let bytes = NonNull::from(&input).cast();
        let input = unsafe { device.newBufferWithBytes_length_options(bytes, 12, SHARED) }.unwrap();
        let output = device.newBufferWithLength_options(12, SHARED).unwrap();
        run(&device.newCommandQueue().unwrap(), |commands| {
            let encoder = commands.computeCommandEncoder().unwrap();
            encoder.setComputePipelineState(&made);
            unsafe {
                encoder.setBuffer_offset_atIndex(Some(&input), 0, 2);
                encoder.setBuffer_offset_atIndex(Some(&output), 0, 0);
                encoder.setThreadgroupMemoryLength_atIndex(16, 1);
            }
            encoder.dispatchThreads_threadsPerThreadgroup(size(3), size(32));
            encoder.endEncoding();
        });
        let got = unsafe { std::slice::from_raw_parts(output.contents().as_ptr().cast::<i32>(), 3) };
        assert_eq!(got, [6, -9, 16]);
    });
}

#[test]
fn memory_of_the_program_is_used_in_place() {
    autoreleasepool(|_| {
        let device = device();
        let layout = std::alloc::Layout::from_size_align(1 << 14, 1 << 14).unwrap();
        let memory = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        let (sender, freed) = channel();
        let block = RcBlock::new(move |address: NonNull<std::ffi::c_void>, length: usize| {
            unsafe { std::alloc::dealloc(address.as_ptr().cast(), layout) };
            sender.send(length).unwrap();
        });
        let buffer = unsafe {
            device.newBufferWithBytesNoCopy_length_options_deallocator(
                memory.cast(),
                1 << 14,
                SHARED,
                Some(&block),
            )
        }
        .unwrap();
        assert_eq!(buffer.contents(), memory.cast());
        run(&device.newCommandQueue().unwrap(), |commands| fill(commands, &buffer, 7));
        assert!(
            unsafe { std::slice::from_raw_parts(memory.as_ptr(), 1 << 14) }.iter().all(|byte| *byte == 7)
        );
        drop(buffer);
        assert_eq!(freed.recv().unwrap(), 1 << 14);
    });
}

#[test]
fn residency_sets_count_and_captures_write() {
    autoreleasepool(|_| {
        let device = device();
        let set = device.newResidencySetWithDescriptor_error(&MTLResidencySetDescriptor::new()).unwrap();
        let buffer = buffer_of(&device, &[0.0; 4]);
        set.addAllocation(ProtocolObject::from_ref(&*buffer));
        assert_eq!((set.allocationCount(), set.allocatedSize()), (1, 0), "not committed");
        set.commit();
        assert_eq!(set.allocatedSize(), 16);
        set.requestResidency();
        let queue = device.newCommandQueue().unwrap();
        queue.addResidencySet(&set);
        queue.removeResidencySet(&set);

        let captures = unsafe { MTLCaptureManager::sharedCaptureManager() };
        let path = std::env::temp_dir().join(format!("capture-{}.gputrace", std::process::id()));
        let descriptor = MTLCaptureDescriptor::new();
        unsafe { descriptor.setCaptureObject(Some(queue.as_ref())) };
        descriptor.setDestination(MTLCaptureDestination::GPUTraceDocument);
        descriptor.setOutputURL(Some(&NSURL::fileURLWithPath(&NSString::from_str(path.to_str().unwrap()))));
        assert_eq!(captures.startCaptureWithDescriptor_error(&descriptor).unwrap_err().code(), 1);
        unsafe { std::env::set_var("MTL_CAPTURE_ENABLED", "1") };
        captures.startCaptureWithDescriptor_error(&descriptor).unwrap();
        assert!(captures.isCapturing());
        assert_eq!(captures.startCaptureWithDescriptor_error(&descriptor).unwrap_err().code(), 2);
        captures.stopCapture();
        assert!(path.exists() && !captures.isCapturing());
        std::fs::remove_file(path).unwrap();
    });
}

#[test]
fn listeners_are_told_and_handles_share() {
    autoreleasepool(|_| {
        let device = device();
        let event = device.newSharedEvent().unwrap();
        let other = device.newSharedEventWithHandle(&event.newSharedEventHandle()).unwrap();
        let listener = MTLSharedEventListener::new();
        let (sender, told) = channel();
        let block = RcBlock::new(move |event: NonNull<ProtocolObject<dyn MTLSharedEvent>>, value: u64| {
            sender.send((unsafe { event.as_ref() }.signaledValue(), value)).unwrap();
        });
        unsafe { event.notifyListener_atValue_block(&listener, 3, RcBlock::as_ptr(&block)) };
        run(&device.newCommandQueue().unwrap(), |commands| {
            commands.encodeSignalEvent_value(ProtocolObject::from_ref(&*event), 4);
        });
        assert_eq!(told.recv().unwrap(), (4, 4));
        assert_eq!(other.signaledValue(), 4);
        assert!(!event.waitUntilSignaledValue_timeoutMS(5, 1));
    });
}
