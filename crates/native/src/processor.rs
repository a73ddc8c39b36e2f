//! This machine's processor: name, identity for cache keys, and vector width.
//!
//! Everything is read from the system or the processor; what cannot be read is absent, never guessed.

use std::fs::File;
use std::io::Read as _;

use elinvar_driver::PerProcess;

/// Identity of the target of `-march=native`: model and features of the processor, as reported by the system.
pub(crate) fn identity() -> &'static str {
    static IDENTITY: PerProcess<String> = PerProcess::new(|| {
        // All processors are alike, and reading each takes time.
        let mut start = Vec::new();
        let read = File::open("/proc/cpuinfo").and_then(|file| file.take(16 << 10).read_to_end(&mut start));
        match read {
            Ok(_) => identity_lines(&String::from_utf8_lossy(&start)),
            Err(_) => name().unwrap_or_default(),
        }
    });
    IDENTITY.get()
}

/// The lines about the first processor that do not change at run time.
fn identity_lines(cpuinfo: &str) -> String {
    const NAMES: [&str; 10] = [
        "vendor_id",
        "cpu family",
        "model",
        "model name",
        "stepping",
        "flags",
        "Features",
        "CPU implementer",
        "CPU part",
        "CPU variant",
    ];
    let first = cpuinfo.lines().take_while(|line| !line.is_empty());
    let kept = first.filter(|line| NAMES.contains(&line.split(':').next().unwrap_or_default().trim()));
    kept.collect::<Vec<_>>().join("\n")
}

/// Model name of the processor, as reported by the system.
#[cfg(target_os = "linux")]
pub fn name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Model name of the processor, as reported by the system.
#[cfg(target_vendor = "apple")]
#[allow(unsafe_code)] // a C function
pub fn name() -> Option<String> {
    let mut text = [0_u8; 256];
    let mut len = text.len();
    // SAFETY: the name is a C string, `text` has room for `len` bytes, and nothing new is set.
    let status = unsafe {
        libc::sysctlbyname(
            c"machdep.cpu.brand_string".as_ptr(),
            text.as_mut_ptr().cast(),
            &raw mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    if status != 0 {
        return None;
    }
    let name = std::ffi::CStr::from_bytes_until_nul(&text).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Model name of the processor, as reported by the system.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn name() -> Option<String> {
    None
}

/// Width of the widest vector registers in bits; `None` on an unknown architecture.
#[cfg(target_arch = "x86_64")]
pub fn vector_bits() -> Option<u32> {
    let bits = if std::arch::is_x86_feature_detected!("avx512f") {
        512
    } else if std::arch::is_x86_feature_detected!("avx") {
        256
    } else {
        128
    };
    Some(bits)
}

/// Width of the widest vector registers in bits; `None` on an unknown architecture.
#[cfg(target_arch = "aarch64")]
pub fn vector_bits() -> Option<u32> {
    Some(128)
}

/// Width of the widest vector registers in bits; `None` on an unknown architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn vector_bits() -> Option<u32> {
    None
}

/// Whether this processor has AVX512-FP16.
#[cfg(target_arch = "x86_64")]
pub fn has_half_arithmetic() -> bool {
    std::arch::is_x86_feature_detected!("avx512fp16")
}

/// Whether this processor has AVX512-FP16.
#[cfg(not(target_arch = "x86_64"))]
pub fn has_half_arithmetic() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_identity_is_what_does_not_change() {
        let text = "processor : 0\nmodel name\t: A\ncpu MHz\t: 1.5\nflags\t: x y\n\nmodel name\t: B\n";
        assert_eq!(identity_lines(text), "model name\t: A\nflags\t: x y");
        assert_ne!(identity_lines(&text.replace("x y", "x y z")), identity_lines(text));
        assert!(!identity().is_empty());
    }
}
