//! Live objects, and who releases them. A single test, because objects are counted for the whole process.
#![cfg(target_os = "macos")]

use std::process::Command;
use std::ptr::NonNull;

use block2::RcBlock;
use metal_crate::test_hooks::{live, live_blocks, without_pool};
use metal_crate::*;
use objc2::rc::autoreleasepool;
use objc2::runtime::{AnyObject, ProtocolObject, Sel};
use objc2::sel;
use objc2_metal::*;

unsafe extern "C" {
    fn objc_release(object: *mut AnyObject);
    fn objc_msgSend();
}

#[test]
fn everything_goes() {
    match std::env::var("CRIME").as_deref() {
        Ok("over-release") => unsafe { objc_release(&raw const *buffer_of(&device(), &[1.0]) as *mut _) },
        Ok("unknown selector") => unsafe {
            // Without objc2, which would detect it first.
            let send: unsafe extern "C" fn(*const AnyObject, Sel) =
                std::mem::transmute(objc_msgSend as *const ());
            send((&raw const *device()).cast(), sel!(frobnicate));
        },
        Ok("unended encoder") => {
            let commands = device().newCommandQueue().unwrap().commandBuffer().unwrap();
            drop(commands.computeCommandEncoder());
        }
        Ok("freed too early") => {
            let (device, range) = (device(), objc2_foundation::NSRange { location: 0, length: 4 });
            let (buffer, event) = (buffer_of(&device, &[1.0]), device.newSharedEvent().unwrap());
            let commands = device.newCommandQueue().unwrap().commandBufferWithUnretainedReferences().unwrap();
            commands.encodeWaitForEvent_value(ProtocolObject::from_ref(&*event), 1);
            let blit = commands.blitCommandEncoder().unwrap();
            blit.fillBuffer_range_value(&buffer, range, 0);
            blit.endEncoding();
            commands.commit();
            drop(buffer);
            event.setSignaledValue(1);
            commands.waitUntilCompleted();
        }
        Ok("none") => autoreleasepool(|_| drop(device().newCommandQueue().unwrap().commandBuffer())),
        Ok("leak") => std::mem::forget(buffer_of(&device(), &[1.0])),
        _ => counted(),
    }
}

fn counted() {
    // The device lives as long as the process.
    let device = device();
    autoreleasepool(|_| {
        let queue = device.newCommandQueue().unwrap();
        let buffer = buffer_of(&device, &[1.0; 8]);
        assert_eq!((live(c"MTLBuffer"), live(c"MTLCommandQueue")), (1, 1));
        for _ in 0..3 {
            let commands = queue.commandBuffer().unwrap();
            let blit = commands.blitCommandEncoder().unwrap();
            let range = objc2_foundation::NSRange { location: 0, length: 4 };
            blit.fillBuffer_range_value(&buffer, range, 0);
            blit.endEncoding();
            let kept = buffer.clone();
            let block = RcBlock::new(move |_: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
                assert_eq!(kept.length(), 32);
            });
            unsafe { commands.addCompletedHandler(RcBlock::as_ptr(&block)) };
            commands.commit();
        }
        drop(buffer);
    });
    for name in [c"MTLBuffer", c"MTLCommandQueue", c"MTLCommandBuffer", c"MTLBlitCommandEncoder"] {
        assert_eq!(live(name), 0, "{name:?}");
    }
    assert_eq!((live_blocks(), without_pool()), (0, 0));
    std::thread::spawn(|| drop(metal_crate::device().newCommandQueue().unwrap().commandBuffer()))
        .join()
        .unwrap();
    assert_eq!(without_pool(), 1, "a command buffer on a thread without a pool");

    // Mistakes that end the process are tested in a child process.
    for (crime, words) in [
        ("over-release", "an object of class ElinvarMTLBuffer was released more often than retained"),
        ("unknown selector", "-[ElinvarMTLDevice frobnicate]: unrecognized selector"),
        ("unended encoder", "MTLComputeCommandEncoder: it was released before -endEncoding"),
        ("none", ""),
        ("freed too early", "a buffer was freed before the command buffer that uses it had run"),
        ("leak", "at the end 1 of ElinvarMTLBuffer were not freed"),
    ] {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "everything_goes"]).env("CRIME", crime);
        if matches!(crime, "leak" | "none") {
            other.env("ELINVAR_APPLE_EXIT", "strict");
        }
        let output = other.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() == (crime == "none") && said.contains(words), "{crime}: {said}");
    }
}
