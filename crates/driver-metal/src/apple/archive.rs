//! On-disk cache of pipelines: the output of Metal's compiler outlives the process.
//!
//! A cache entry is a binary archive with one pipeline. Its key covers the source, the compilation options, the kernel and its constants, the
//! device's name and families, the system's version and the driver's version. The cache verifies its entries, so Metal reads only
//! archives that it has written itself. Metal reads archives from files, so an entry is written to a private file while Metal reads it.
//!
//! The lookup uses the option to fail on a miss, so that a hit is certain. An archive that Metal rejects, or that lacks the pipeline, is
//! rebuilt. Errors here never fail a caller: the pipeline is then compiled as usual, as on a device without archives. Archives are not
//! used with Metal's shader validation, with which they do not work according to Apple.
//!
//! Metal compiles a source to its intermediate representation in each process; there is no archive for that.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use elinvar_cache::{Cache, Key, KeyBuilder};
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::{NSArray, NSError, NSProcessInfo, NSString, NSURL};
use objc2_metal::{
    MTLBinaryArchive, MTLBinaryArchiveDescriptor, MTLComputePipelineDescriptor, MTLComputePipelineReflection,
    MTLDevice, MTLGPUFamily, MTLPipelineOption,
};
use tempfile::TempDir;

use super::kernels::State;
use super::validation;

type Archive = Retained<ProtocolObject<dyn MTLBinaryArchive>>;

/// A pipeline, with Metal's reflection if it was requested.
pub(super) type Made = (State, Option<Retained<MTLComputePipelineReflection>>);

/// GPU families that distinguish generations of devices.
const FAMILIES: [MTLGPUFamily; 12] = [
    MTLGPUFamily::Apple1,
    MTLGPUFamily::Apple2,
    MTLGPUFamily::Apple3,
    MTLGPUFamily::Apple4,
    MTLGPUFamily::Apple5,
    MTLGPUFamily::Apple6,
    MTLGPUFamily::Apple7,
    MTLGPUFamily::Apple8,
    MTLGPUFamily::Apple9,
    MTLGPUFamily::Mac2,
    MTLGPUFamily::Common3,
    MTLGPUFamily::Metal3,
];

/// The first part of a key, which does not depend on the source.
pub(super) fn key(device: &ProtocolObject<dyn MTLDevice>, cache: &Cache) -> KeyBuilder {
    let families = FAMILIES.into_iter().enumerate();
    let families = families.filter(|(_, family)| device.supportsFamily(*family));
    let system = NSProcessInfo::processInfo().operatingSystemVersionString();
    cache
        .key("metal archive")
        .text(&device.name().to_string())
        .number(families.fold(0, |all, (bit, _)| all | 1 << bit))
        .text(&system.to_string())
}

/// The pipeline of a descriptor: from the archive under the key, or compiled and then archived.
///
/// # Errors
/// The error of Metal's compiler.
pub(super) fn pipeline(
    device: &ProtocolObject<dyn MTLDevice>,
    cache: &Cache,
    key: &Key,
    descriptor: &MTLComputePipelineDescriptor,
    options: MTLPipelineOption,
) -> Result<Made, Retained<NSError>> {
    let archived = || {
        let has_archives = device.respondsToSelector(sel!(newBinaryArchiveWithDescriptor:error:));
        if !cache.is_on() || !has_archives || validation::is_on() {
            return None;
        }
        let kept = cache.load(key).and_then(|bytes| open(device, &bytes));
        let found = kept.and_then(|(_file, archive)| only_from(&archive, device, descriptor, options));
        found.or_else(|| archive(device, cache, key, descriptor, options))
    };
    match archived() {
        Some(made) => Ok(made),
        None => make(device, descriptor, options),
    }
}

/// Compiles a pipeline into a new archive, and stores the archive.
fn archive(
    device: &ProtocolObject<dyn MTLDevice>,
    cache: &Cache,
    key: &Key,
    descriptor: &MTLComputePipelineDescriptor,
    options: MTLPipelineOption,
) -> Option<Made> {
    let archive = device.newBinaryArchiveWithDescriptor_error(&MTLBinaryArchiveDescriptor::new());
    let archive = archive.map_err(|error| note("Metal makes no archive", &error)).ok()?;
    // A kernel that does not compile is reported by the compilation that follows.
    archive.addComputePipelineFunctionsWithDescriptor_error(descriptor).ok()?;
    let made = only_from(&archive, device, descriptor, options);
    let made = made.or_else(|| make(device, descriptor, options).ok())?;
    if let Some(bytes) = bytes_of(&archive) {
        cache.store(key, &bytes);
    }
    Some(made)
}

/// The pipeline from the archive; `None` if it is missing or incomplete.
fn only_from(
    archive: &ProtocolObject<dyn MTLBinaryArchive>,
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
    options: MTLPipelineOption,
) -> Option<Made> {
    descriptor.setBinaryArchives(Some(&NSArray::from_slice(&[archive])));
    let made = make(device, descriptor, options | MTLPipelineOption::FailOnBinaryArchiveMiss);
    descriptor.setBinaryArchives(None);
    let made = made.map_err(|error| note("a pipeline is not in its archive", &error)).ok()?;
    let is_whole = options.is_empty() || made.1.is_some();
    is_whole.then_some(made)
}

fn make(
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
    options: MTLPipelineOption,
) -> Result<Made, Retained<NSError>> {
    let mut reflection = None;
    let into = (!options.is_empty()).then_some(&mut reflection);
    let state =
        device.newComputePipelineStateWithDescriptor_options_reflection_error(descriptor, options, into)?;
    Ok((state, reflection))
}

/// An archive with these bytes, and the file that it reads; `None` if Metal rejects it.
fn open(device: &ProtocolObject<dyn MTLDevice>, bytes: &[u8]) -> Option<(TempDir, Archive)> {
    let (folder, path) = private_file()?;
    std::fs::write(&path, bytes).ok()?;
    let descriptor = MTLBinaryArchiveDescriptor::new();
    descriptor.setUrl(Some(&*url(&path)?));
    let archive = device.newBinaryArchiveWithDescriptor_error(&descriptor);
    Some((folder, archive.map_err(|error| note("Metal rejected an archive", &error)).ok()?))
}

fn bytes_of(archive: &ProtocolObject<dyn MTLBinaryArchive>) -> Option<Vec<u8>> {
    let (_folder, path) = private_file()?;
    let written = archive.serializeToURL_error(&*url(&path)?);
    written.map_err(|error| note("cannot write an archive", &error)).ok()?;
    std::fs::read(&path).ok()
}

/// A path in a private folder, deleted on drop.
fn private_file() -> Option<(TempDir, std::path::PathBuf)> {
    let folder =
        tempfile::Builder::new().prefix("elinvar-").permissions(Permissions::from_mode(0o700)).tempdir();
    let folder = folder.ok()?;
    let path = folder.path().join("archive");
    Some((folder, path))
}

fn url(path: &Path) -> Option<Retained<NSURL>> {
    path.to_str().map(|path| NSURL::fileURLWithPath(&NSString::from_str(path)))
}

fn note(what: &str, error: &NSError) {
    tracing::debug!("{what}: {}", error.localizedDescription());
}

#[cfg(test)]
mod tests {
    use objc2_metal::{MTLCreateSystemDefaultDevice, MTLLibrary as _};

    use super::*;

    #[test]
    fn what_is_no_archive_or_lacks_the_pipeline_is_made_anew() {
        if validation::is_on() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path(), 1 << 20, "1");
        let device = MTLCreateSystemDefaultDevice().expect("a device");
        let text = NSString::from_str(
            "kernel void a(device int* x [[buffer(0)]]) { x[0] = 1; }
             kernel void b(device int* x [[buffer(0)]]) { x[0] = 2; }",
        );
        let library = device.newLibraryWithSource_options_error(&text, None).unwrap();
        let made = |name: &str, key: &Key| {
            let descriptor = MTLComputePipelineDescriptor::new();
            descriptor.setComputeFunction(library.newFunctionWithName(&NSString::from_str(name)).as_deref());
            let (_, reflection) =
                pipeline(&device, &cache, key, &descriptor, MTLPipelineOption::BindingInfo).unwrap();
            assert!(reflection.is_some() && descriptor.binaryArchives().is_none());
            cache.load(key).expect("it is archived")
        };
        let [a, b] = ["a", "b"].map(|name| key(&device, &cache).text(name).finish());
        let (of_a, of_b) = (made("a", &a), made("b", &b));
        assert_ne!(of_a, of_b);
        for wrong in [&b"nonsense"[..], b"", &of_b] {
            cache.store(&a, wrong);
            assert_eq!(made("a", &a), of_a);
        }
        let off = Cache::off();
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setComputeFunction(library.newFunctionWithName(&NSString::from_str("a")).as_deref());
        let made = pipeline(&device, &off, &a, &descriptor, MTLPipelineOption::empty()).unwrap();
        assert!(made.1.is_none());
    }
}
