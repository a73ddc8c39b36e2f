//! Other devices and systems, selected by the environment. The test runs itself in child processes with another environment.
#![cfg(target_os = "macos")]

use std::process::Command;

use metal_crate::test_hooks::mistakes;
use metal_crate::*;
use objc2::rc::autoreleasepool;
use objc2::runtime::{AnyClass, NSObjectProtocol};
use objc2::{available, sel};
use objc2_foundation::{NSProcessInfo, NSString};
use objc2_metal::*;

#[test]
fn an_old_system_lacks_what_came_later() {
    if std::env::var_os("ELINVAR_APPLE_OS").is_some() {
        return autoreleasepool(|_| old());
    }
    let device = device();
    assert!(device.respondsToSelector(sel!(newSharedEvent)) && available!(macos = 15.0));
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "an_old_system_lacks_what_came_later"]);
    other.envs([("ELINVAR_APPLE_OS", "10.13"), ("ELINVAR_APPLE_PROFILE", "apple3,small")]);
    let output = other.env("ELINVAR_APPLE_FAULTS", "allocation:2").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn cards_of_a_peer_group_see_each_other() {
    if std::env::var_os("ELINVAR_APPLE_PROFILE").is_none() {
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args(["--exact", "cards_of_a_peer_group_see_each_other"]);
        let output = other.env("ELINVAR_APPLE_PROFILE", "discrete,discrete,apple9").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    autoreleasepool(|_| {
        let devices = MTLCopyAllDevices().to_vec();
        let peers: Vec<_> = devices.iter().map(|d| (d.peerGroupID(), d.peerIndex(), d.peerCount())).collect();
        assert_eq!(peers, [(1, 0, 2), (1, 1, 2), (0, 0, 0)]);
        let options = MTLResourceOptions::StorageModePrivate;
        let own = devices[0].newBufferWithLength_options(16, options).unwrap();
        let view = own.newRemoteBufferViewForDevice(&devices[1]).unwrap();
        assert_eq!((view.device().registryID(), view.length()), (devices[1].registryID(), 16));
        assert!(view.remoteStorageBuffer().is_some() && own.remoteStorageBuffer().is_none());
        let (copy, range) =
            (buffer_of(&devices[1], &[0.0; 4]), objc2_foundation::NSRange { location: 0, length: 16 });
        for (device, fills) in [(&devices[0], true), (&devices[1], false)] {
            let commands = device.newCommandQueue().unwrap().commandBuffer().unwrap();
            let blit = commands.blitCommandEncoder().unwrap();
            if fills {
                blit.fillBuffer_range_value(&own, range, 0x3f);
            } else {
                unsafe {
                    blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(&view, 0, &copy, 0, 16);
                }
            }
            blit.endEncoding();
            commands.commit();
            commands.waitUntilCompleted();
        }
        assert_eq!(numbers(&copy), [f32::from_bits(0x3f3f_3f3f); 4]);
        let commands = devices[1].newCommandQueue().unwrap().commandBuffer().unwrap();
        let blit = commands.blitCommandEncoder().unwrap();
        let found = mistakes(|| {
            blit.fillBuffer_range_value(&view, range, 0);
            unsafe {
                blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(&copy, 0, &view, 0, 16);
                blit.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(&own, 0, &copy, 0, 16);
            }
        });
        blit.endEncoding();
        let lines: Vec<&str> = found.lines().collect();
        let only_source = "a remote view is the source of a blit or nothing";
        assert!(lines[..2].iter().all(|line| line.contains(only_source)), "{found}");
        assert!(lines.len() == 3 && lines[2].contains("a buffer of another device"), "{found}");
    });
}

fn old() {
    let device = device();
    assert!(!device.respondsToSelector(sel!(newSharedEvent)) && device.respondsToSelector(sel!(newFence)));
    assert!(!available!(macos = 10.14) && available!(macos = 10.13));
    let version = NSProcessInfo::processInfo().operatingSystemVersion();
    assert_eq!((version.majorVersion, version.minorVersion), (10, 13));
    assert!(
        AnyClass::get(c"MTLResidencySetDescriptor").is_none()
            && AnyClass::get(c"MTLHeapDescriptor").is_some()
    );

    let names: Vec<String> = MTLCopyAllDevices().iter().map(|device| device.name().to_string()).collect();
    assert_eq!(names, ["Elinvar stand-in (Apple3)", "Elinvar stand-in (small)"]);
    assert_eq!(device.name().to_string(), names[0]);

    let options = MTLCompileOptions::new();
    options.setLanguageVersion(MTLLanguageVersion::Version2_1);
    let source = NSString::from_str(SAXPY);
    let error = device.newLibraryWithSource_options_error(&source, Some(&options)).unwrap_err();
    assert!(error.localizedDescription().to_string().contains("language version 2.1"), "{error}");
    assert!(library(&device, SAXPY).is_ok(), "the default is a version that there is");

    let made = [(); 3].map(|()| device.newBufferWithLength_options(4, MTLResourceOptions::empty()).is_some());
    assert_eq!(made, [true, false, true]);
}
