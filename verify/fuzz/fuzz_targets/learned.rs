//! A file of what was learned is taken or refused, and the device is then as it was or as the file says.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use elinvar::{Device, PoolLimits};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

struct Place {
    device: Device,
    file: PathBuf,
    /// Format, version and device, which a file must name to be read.
    head: Value,
    _folder: tempfile::TempDir,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Device::cpu().expect("a device");
    device.pool().set_limits(PoolLimits { idle_bytes: 1 << 20, ..device.pool().limits() });
    let file = folder.path().join("learned");
    device.save_tuning(&file).expect("saved");
    let text = std::fs::read_to_string(&file).expect("read");
    let head = serde_json::from_str(text.lines().next().expect("a head")).expect("JSON");
    Place { device, file, head, _folder: folder }
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    let Place { device, file, .. } = &*PLACE;
    let text = if kind % 8 == 0 { rest.to_vec() } else { sealed(rest) };
    std::fs::write(file, &text).expect("written");
    if device.restore_tuning(file).is_ok() {
        assert!(device.pool().stats().idle_bytes <= 1 << 20);
        // What was taken from a file can be saved and taken again.
        device.save_tuning(file).expect("saved");
        device.restore_tuning(file).expect("restored");
        device.pool().trim(0);
    } else {
        assert_eq!(std::fs::read(file).expect("read"), text, "the file stays as it is");
    }
});

/// The body under a head with its checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut head = PLACE.head.clone();
    let field = |name: &str| head[name].as_str().unwrap_or_default().as_bytes().to_vec();
    let mut hash = blake3::Hasher::new();
    hash.update(&(head["format"].as_u64().unwrap_or_default() as u32).to_le_bytes());
    for text in [&field("version")[..], &field("device"), body] {
        hash.update(&(text.len() as u64).to_le_bytes()).update(text);
    }
    head["checksum"] = hash.finalize().to_hex().to_string().into();
    [head.to_string().as_bytes(), b"\n", body, b"\n"].concat()
}
