//! Injected failures, each on a separate device.
#![cfg(target_os = "macos")]

use metal_crate::test_hooks::{Site, device_of, inject};
use metal_crate::*;
use objc2::rc::autoreleasepool;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSRange, NSString};
use objc2_metal::*;

/// Runs a command buffer with `count` blit passes over a buffer; pass `k` sets word `k` to ones.
fn passes(device: &ProtocolObject<dyn MTLDevice>, count: usize) -> (Object<dyn MTLCommandBuffer>, Vec<f32>) {
    let buffer = buffer_of(device, &[0.0; 4]);
    let queue = device.newCommandQueue().unwrap();
    let descriptor = MTLCommandBufferDescriptor::new();
    descriptor.setErrorOptions(MTLCommandBufferErrorOption::EncoderExecutionStatus);
    let commands = queue.commandBufferWithDescriptor(&descriptor).unwrap();
    for pass in 0..count {
        let blit = commands.blitCommandEncoder().unwrap();
        blit.setLabel(Some(&NSString::from_str(&format!("pass {pass}"))));
        blit.fillBuffer_range_value(&buffer, NSRange { location: 4 * pass, length: 4 }, 0x3f);
        blit.endEncoding();
    }
    commands.commit();
    commands.waitUntilCompleted();
    (commands, numbers(&buffer))
}

const SET: f32 = f32::from_bits(0x3f3f_3f3f);

#[test]
fn every_error_code_reaches_the_command_buffer() {
    autoreleasepool(|_| {
        for code in [1, 2, 3, 4, 7, 8, 9, 10, 12] {
            let device = device_of(c"apple9");
            inject(&device, Site::Execution, 2, code, -1);
            assert!(passes(&device, 1).0.error().is_none(), "the first goes well");
            let (commands, numbers) = passes(&device, 1);
            let error = commands.error().unwrap();
            assert_eq!((commands.status(), error.code()), (MTLCommandBufferStatus::Error, code));
            assert_eq!(&*error.domain(), unsafe { MTLCommandBufferErrorDomain });
            assert_eq!(numbers, [0.0; 4], "nothing has run");
            assert!(passes(&device, 1).0.error().is_none(), "a failure is one command buffer's");
        }
    });
}

#[test]
fn the_encoder_that_failed_is_known() {
    autoreleasepool(|_| {
        let device = device_of(c"apple9");
        inject(&device, Site::Execution, 1, 3, 1);
        let (commands, numbers) = passes(&device, 3);
        assert_eq!(numbers, [SET, 0.0, 0.0, 0.0]);
        let error = commands.error().unwrap();
        let infos = error.userInfo().objectForKey(unsafe { MTLCommandBufferEncoderInfoErrorKey }).unwrap();
        let infos: &NSArray<ProtocolObject<dyn MTLCommandBufferEncoderInfo>> =
            unsafe { &*(&*infos as *const _ as *const _) };
        let states: Vec<_> = infos.iter().map(|info| (info.label().to_string(), info.errorState())).collect();
        assert_eq!(
            states,
            [
                ("pass 0".to_owned(), MTLCommandEncoderErrorState::Completed),
                ("pass 1".to_owned(), MTLCommandEncoderErrorState::Faulted),
                ("pass 2".to_owned(), MTLCommandEncoderErrorState::Pending),
            ]
        );
    });
}

#[test]
fn a_removed_device_stays_away() {
    autoreleasepool(|_| {
        let device = device_of(c"apple9");
        inject(&device, Site::Execution, 1, 11, -1);
        let queue = device.newCommandQueue().unwrap();
        for _ in 0..2 {
            let commands = queue.commandBuffer().unwrap();
            commands.commit();
            commands.waitUntilCompleted();
            assert_eq!(commands.error().unwrap().code(), 11);
        }
        assert!(device.newBufferWithLength_options(4, MTLResourceOptions::empty()).is_none());
        assert!(device.newCommandQueue().is_none());
    });
}

#[test]
fn events_behind_a_failure_are_not_raised() {
    autoreleasepool(|_| {
        let device = device_of(c"apple9");
        let event = device.newSharedEvent().unwrap();
        inject(&device, Site::Execution, 1, 2, -1);
        let queue = device.newCommandQueue().unwrap();
        let commands = queue.commandBuffer().unwrap();
        commands.encodeSignalEvent_value(ProtocolObject::from_ref(&*event), 1);
        commands.commit();
        commands.waitUntilCompleted();
        assert_eq!((commands.error().unwrap().code(), event.signaledValue()), (2, 0));
    });
}

#[test]
fn what_is_made_can_fail() {
    autoreleasepool(|_| {
        let device = device_of(c"apple9");
        let none = MTLResourceOptions::empty();
        for (site, name) in [(Site::Library, "library"), (Site::Pipeline, "pipeline")] {
            inject(&device, site, 1, 0, 0);
            let made = library(&device, SAXPY).and_then(|library| {
                let function = library.newFunctionWithName(&NSString::from_str("saxpy")).unwrap();
                let made = device.newComputePipelineStateWithFunction_error(&function);
                made.map_err(|error| error.localizedDescription().to_string())
            });
            assert!(made.unwrap_err().contains("injected by a test"), "{name}");
        }
        inject(&device, Site::Allocation, 2, 0, 0);
        let made: Vec<bool> = (0..3).map(|_| device.newBufferWithLength_options(4, none).is_some()).collect();
        assert_eq!(made, [true, false, true]);
        inject(&device, Site::Queue, 1, 0, 0);
        assert!(device.newCommandQueue().is_none());
        let queue = device.newCommandQueue().unwrap();
        inject(&device, Site::CommandBuffer, 1, 0, 0);
        assert!(queue.commandBuffer().is_none());
        let commands = queue.commandBuffer().unwrap();
        inject(&device, Site::Encoder, 1, 0, 0);
        assert!(commands.computeCommandEncoder().is_none());
        commands.blitCommandEncoder().unwrap().endEncoding();
        inject(&device, Site::Object, 1, 0, 0);
        assert!(device.newFence().is_none() && device.newFence().is_some());
    });
}

#[test]
fn a_small_device_has_an_end() {
    autoreleasepool(|_| {
        let device = device_of(c"small");
        let options = MTLResourceOptions::StorageModePrivate;
        let buffers: Vec<_> =
            std::iter::from_fn(|| device.newBufferWithLength_options(16 << 20, options)).collect();
        assert_eq!(buffers.len(), 4);
        assert_eq!(device.currentAllocatedSize(), 64 << 20);
        drop(buffers);
        assert_eq!(device.currentAllocatedSize(), 0);
    });
}

#[test]
fn a_card_has_two_copies_of_a_managed_buffer() {
    autoreleasepool(|_| {
        let device = device_of(c"discrete");
        assert!(!device.hasUnifiedMemory());
        let buffer = device.newBufferWithLength_options(8, MTLResourceOptions::StorageModeManaged).unwrap();
        let queue = device.newCommandQueue().unwrap();
        let fill = |synchronize: bool| {
            let commands = queue.commandBuffer().unwrap();
            let blit = commands.blitCommandEncoder().unwrap();
            blit.fillBuffer_range_value(&buffer, NSRange { location: 0, length: 4 }, 0x3f);
            if synchronize {
                blit.synchronizeResource(ProtocolObject::from_ref(&*buffer));
            }
            blit.endEncoding();
            commands.commit();
            commands.waitUntilCompleted();
        };
        fill(false);
        assert_eq!(numbers(&buffer), [0.0, 0.0]);
        unsafe { buffer.contents().cast::<f32>().add(1).write(2.0) };
        buffer.didModifyRange(NSRange { location: 4, length: 4 });
        fill(true);
        assert_eq!(numbers(&buffer), [SET, 2.0]);
    });
}
