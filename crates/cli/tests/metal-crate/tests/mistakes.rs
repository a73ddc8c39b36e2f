//! Invalid use that Metal's validation reports.
#![cfg(target_os = "macos")]

use std::ptr::NonNull;

use metal_crate::test_hooks::{device_of, mistakes};
use metal_crate::*;
use objc2::rc::autoreleasepool;
use objc2_foundation::NSRange;
use objc2_metal::*;

/// Checks that the reported mistakes contain these words, one line per mistake.
fn expect(words: &[&str], wrong: impl FnOnce()) {
    let found = mistakes(wrong);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), words.len(), "{found}");
    for (line, word) in lines.iter().zip(words) {
        assert!(line.contains(word), "`{line}` has no `{word}`");
    }
}

#[test]
fn command_buffers() {
    autoreleasepool(|_| {
        let device = device();
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        expect(&["is not committed"], || commands.waitUntilCompleted());
        let encoder = commands.computeCommandEncoder().unwrap();
        expect(&["is not ended", "is not ended"], || {
            commands.commit();
            assert!(commands.blitCommandEncoder().is_none());
        });
        encoder.endEncoding();
        expect(&["endEncoding]: the encoder is ended", "useHeap"], || {
            encoder.endEncoding();
            let heap = MTLHeapDescriptor::new();
            heap.setSize(4096);
            encoder.useHeap(&device.newHeapWithDescriptor(&heap).unwrap());
        });
        commands.commit();
        expect(&["is committed", "is committed"], || {
            commands.commit();
            assert!(commands.computeCommandEncoder().is_none());
        });
        commands.waitUntilCompleted();
    });
}

#[test]
fn bindings() {
    autoreleasepool(|_| {
        let device = device();
        let pipeline = pipeline(&device, SAXPY, "saxpy");
        let buffer = buffer_of(&device, &[0.0; 4]);
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        let encoder = commands.computeCommandEncoder().unwrap();
        let a = 1.0_f32;
        let bytes = NonNull::from(&a).cast();
        let dispatch = |group| encoder.dispatchThreads_threadsPerThreadgroup(size(4), size(group));
        expect(&["no compute pipeline state"], || dispatch(4));
        encoder.setComputePipelineState(&pipeline);
        unsafe {
            expect(&["the index 31 is over 30"], || encoder.setBuffer_offset_atIndex(Some(&buffer), 0, 31));
            expect(&["offset 16 is not within 16"], || {
                encoder.setBuffer_offset_atIndex(Some(&buffer), 16, 0)
            });
            expect(&["the length is 0"], || encoder.setBytes_length_atIndex(bytes, 0, 2));
            expect(&["5000 bytes: the limit is 4096"], || encoder.setBytes_length_atIndex(bytes, 5000, 2));
            expect(&["no buffer is set at index 3"], || encoder.setBufferOffset_atIndex(4, 3));
            expect(&["8 is not a multiple of 16"], || encoder.setThreadgroupMemoryLength_atIndex(8, 0));
            encoder.setBuffer_offset_atIndex(Some(&buffer), 0, 0);
            encoder.setBuffer_offset_atIndex(Some(&buffer), 0, 1);
        }
        expect(&["kernel saxpy: missing buffer binding at index 2 for a"], || dispatch(4));
        unsafe {
            encoder.setBytes_length_atIndex(bytes, 2, 2);
            expect(&["2 bytes at index 2, a has 4"], || dispatch(4));
            encoder.setBytes_length_atIndex(bytes, 4, 2);
            encoder.setBufferOffset_atIndex(2, 1);
            expect(&["offset 2 at index 1 is not a multiple of 4"], || dispatch(4));
            encoder.setBufferOffset_atIndex(0, 1);
        }
        expect(&["2048 threads: the limit is 1024", "has no threads"], || {
            dispatch(2048);
            dispatch(0);
        });
        dispatch(4);
        encoder.endEncoding();
        commands.commit();
        commands.waitUntilCompleted();
        assert_eq!(commands.status(), MTLCommandBufferStatus::Completed);
    });
}

#[test]
fn copies() {
    autoreleasepool(|_| {
        let device = device();
        let buffer = buffer_of(&device, &[0.0; 4]);
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        let blit = commands.blitCommandEncoder().unwrap();
        let copy = |from, to, length| unsafe {
            blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                &buffer, from, &buffer, to, length,
            );
        };
        expect(&["the size is 0", "the source's 16", "the destination's 16"], || {
            copy(0, 0, 0);
            copy(8, 0, 12);
            copy(0, 12, 8);
        });
        let range = NSRange { location: 12, length: 8 };
        expect(&["is not within 16"], || blit.fillBuffer_range_value(&buffer, range, 0));
        expect(&["is not managed"], || buffer.didModifyRange(NSRange { location: 0, length: 4 }));
        blit.endEncoding();
    });
}

#[test]
fn limits_of_devices() {
    autoreleasepool(|_| {
        let old = device_of(c"apple3");
        assert!(!old.supportsFamily(MTLGPUFamily::Apple4));
        let pipeline = pipeline(&old, SAXPY, "sum");
        assert_eq!(pipeline.maxTotalThreadsPerThreadgroup(), 512);
        let buffer = buffer_of(&old, &[0.0; 4]);
        let commands = old.newCommandQueue().unwrap().commandBuffer().unwrap();
        let encoder = commands.computeCommandEncoder().unwrap();
        encoder.setComputePipelineState(&pipeline);
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(&buffer), 0, 0);
            encoder.setBuffer_offset_atIndex(Some(&buffer), 0, 1);
        }
        expect(&["no threadgroup memory at index 0 for part"], || {
            encoder.dispatchThreadgroups_threadsPerThreadgroup(size(1), size(4));
        });
        unsafe { encoder.setThreadgroupMemoryLength_atIndex(16, 0) };
        expect(&["no threadgroups of different sizes"], || {
            encoder.dispatchThreads_threadsPerThreadgroup(size(4), size(4));
        });
        encoder.endEncoding();
        expect(&["the limit is 268435456"], || {
            assert!(old.newBufferWithLength_options(1 << 30, MTLResourceOptions::empty()).is_none());
        });
    });
}
