//! Kernels, copies, events.
#![cfg(target_os = "macos")]

use std::ptr::NonNull;
use std::sync::mpsc::channel;

use block2::RcBlock;
use metal_crate::*;
use objc2::rc::autoreleasepool;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSRange;
use objc2_metal::*;

#[test]
fn a_kernel_runs_over_the_whole_grid() {
    autoreleasepool(|_| {
        let device = device();
        let pipeline = pipeline(&device, SAXPY, "saxpy");
        let count = 1000;
        let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let (bx, by) = (buffer_of(&device, &x), buffer_of(&device, &vec![1.0; count]));
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        let encoder = commands.computeCommandEncoder().unwrap();
        encoder.setComputePipelineState(&pipeline);
        let a = 3.0_f32;
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(&bx), 0, 0);
            encoder.setBuffer_offset_atIndex(Some(&by), 0, 1);
            encoder.setBytes_length_atIndex(NonNull::from(&a).cast(), 4, 2);
        }
        encoder.dispatchThreads_threadsPerThreadgroup(size(count), size(64));
        encoder.endEncoding();
        let (sender, ended) = channel();
        let block = RcBlock::new(move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
            let thread = std::thread::current().id();
            sender.send((unsafe { buffer.as_ref() }.status(), thread)).unwrap();
        });
        unsafe { commands.addCompletedHandler(RcBlock::as_ptr(&block)) };
        commands.commit();
        commands.waitUntilCompleted();
        let (status, thread) = ended.recv().unwrap();
        assert_eq!(status, MTLCommandBufferStatus::Completed);
        assert_ne!(thread, std::thread::current().id());
        assert!(commands.error().is_none());
        assert!(commands.GPUEndTime() >= commands.GPUStartTime() && commands.GPUStartTime() > 0.0);
        let expected: Vec<f32> = x.iter().map(|x| 3.0 * x + 1.0).collect();
        assert_eq!(numbers(&by), expected);
    });
}

#[test]
fn threadgroup_memory_and_barriers() {
    autoreleasepool(|_| {
        let device = device();
        let pipeline = pipeline(&device, SAXPY, "sum");
        let x: Vec<f32> = (0..512).map(|i| (i % 7) as f32).collect();
        let (bx, by) = (buffer_of(&device, &x), buffer_of(&device, &[0.0; 4]));
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        let encoder = commands.computeCommandEncoder().unwrap();
        encoder.setComputePipelineState(&pipeline);
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(&bx), 0, 0);
            encoder.setBuffer_offset_atIndex(Some(&by), 0, 1);
            encoder.setThreadgroupMemoryLength_atIndex(128 * 4, 0);
        }
        encoder.dispatchThreadgroups_threadsPerThreadgroup(size(4), size(128));
        encoder.endEncoding();
        commands.commit();
        commands.waitUntilCompleted();
        let expected: Vec<f32> = x.chunks(128).map(|part| part.iter().sum()).collect();
        assert_eq!(numbers(&by), expected);
    });
}

#[test]
fn copies_fills_and_events() {
    autoreleasepool(|_| {
        let device = device();
        let (from, to) = (buffer_of(&device, &[1.0, 2.0, 3.0, 4.0]), buffer_of(&device, &[9.0; 6]));
        let queue = device.newCommandQueue().unwrap();
        let event = device.newSharedEvent().unwrap();
        let commands = queue.commandBuffer().unwrap();
        commands.encodeWaitForEvent_value(ProtocolObject::from_ref(&*event), 5);
        let blit = commands.blitCommandEncoder().unwrap();
        unsafe {
            blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(&from, 4, &to, 8, 12);
            blit.fillBuffer_range_value(&to, NSRange { location: 0, length: 4 }, 0);
        }
        blit.endEncoding();
        commands.encodeSignalEvent_value(ProtocolObject::from_ref(&*event), 7);
        commands.commit();
        assert_eq!(numbers(&to), [9.0; 6], "the event has not come");
        event.setSignaledValue(5);
        assert!(event.waitUntilSignaledValue_timeoutMS(7, 60_000));
        assert_eq!(numbers(&to), [0.0, 9.0, 2.0, 3.0, 4.0, 9.0]);
        assert_eq!(event.signaledValue(), 7);
        commands.waitUntilCompleted();
    });
}

#[test]
fn a_missing_barrier_shows() {
    autoreleasepool(|_| {
        let device = device();
        let pipeline = pipeline(&device, SAXPY, "saxpy");
        let queue = device.newCommandQueue().unwrap();
        // y = 2 x + y, then x = 1 y + x.
        let twice = |barrier: bool| {
            let (x, y) = (buffer_of(&device, &[1.0, 2.0]), buffer_of(&device, &[10.0, 20.0]));
            let commands = queue.commandBuffer().unwrap();
            let encoder =
                commands.computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent).unwrap();
            encoder.setComputePipelineState(&pipeline);
            for (from, to, factor) in [(&x, &y, 2.0_f32), (&y, &x, 1.0)] {
                unsafe {
                    encoder.setBuffer_offset_atIndex(Some(from), 0, 0);
                    encoder.setBuffer_offset_atIndex(Some(to), 0, 1);
                    encoder.setBytes_length_atIndex(NonNull::from(&factor).cast(), 4, 2);
                }
                encoder.dispatchThreads_threadsPerThreadgroup(size(2), size(2));
                if barrier {
                    encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
                }
            }
            encoder.endEncoding();
            commands.commit();
            commands.waitUntilCompleted();
            (numbers(&x), numbers(&y))
        };
        assert_eq!(twice(true), (vec![13.0, 26.0], vec![12.0, 24.0]));
        assert_eq!(twice(false), (vec![11.0, 22.0], vec![32.0, 64.0]), "the last first");
    });
}

#[test]
fn errors_of_the_compiler_have_a_place() {
    autoreleasepool(|_| {
        let error = library(&device(), "kernel void k(device float *x) {\n  y = 1;\n}").unwrap_err();
        assert!(error.contains("program_source:2:3: error:") && error.contains("'y'"), "{error}");
    });
}
