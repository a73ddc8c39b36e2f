//! [`Archive`]: [`MTLBinaryArchive`](https://developer.apple.com/documentation/metal/mtlbinaryarchive). It holds the names of pipelines as
//! text; the compiled code is in the CPU driver's cache.
//!
//! Pipelines compiled for another device or system version are not found, as documented. A guess: pipelines that were added to an archive
//! are found before it is serialized.

use std::collections::BTreeSet;

use elinvar_objc::foundation::{NsError, NsString, NsUrl, os_version};
use elinvar_objc::{Declaration, Out, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::library::function::Function;
use crate::library::pipeline::Descriptor;
use crate::validation::fault_injection::Site;

const DOMAIN: &str = "MTLBinaryArchiveDomain";

/// `MTLBinaryArchiveError`.
const INVALID_FILE: isize = 1;
const UNEXPECTED_ELEMENT: isize = 2;
const INTERNAL: isize = 4;

/// The first line of a file.
const MAGIC: &str = "elinvar-archive 1";

/// The file that an archive is read from.
#[derive(Clone, Default)]
pub struct ArchiveDescriptor(Property<Option<Ref<NsUrl>>>);

elinvar_objc::object!(ArchiveDescriptor, c"MTLBinaryArchiveDescriptor");

/// Pipelines by name.
pub struct Archive {
    device: Ref<Device>,
    keys: Mutex<BTreeSet<String>>,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Archive, c"ElinvarMTLBinaryArchive");

/// The name of a function's pipeline: its name, and hashes of the source and the compilation options.
pub fn key(function: &Function) -> String {
    use std::hash::{Hash as _, Hasher as _};
    let mut hasher = std::hash::DefaultHasher::new();
    function.options.hash(&mut hasher);
    function.library.device.profile.architecture.hash(&mut hasher);
    os_version().hash(&mut hasher);
    format!("{} {:016x} {:016x}", function.name, function.library.fingerprint, hasher.finish())
}

impl Archive {
    /// `newBinaryArchiveWithDescriptor:error:`: empty, or from a file.
    pub fn with_descriptor(
        device: &Ref<Device>,
        descriptor: Ref<ArchiveDescriptor>,
        error: Out,
    ) -> Option<Ref<Self>> {
        error.catch(Self::open(device, descriptor.0.get()))
    }

    fn open(device: &Ref<Device>, url: Option<Ref<NsUrl>>) -> Result<Ref<Self>, Ref<NsError>> {
        if device.faults.now(Site::Object).is_some() {
            return Err(NsError::new(DOMAIN, INTERNAL, "no archive (injected by a test)"));
        }
        let keys = match url {
            Some(url) => Self::read(&url)?,
            None => BTreeSet::new(),
        };
        Ok(Ref::new(Self { device: device.clone(), keys: Mutex::new(keys), label: Property::default() }))
    }

    fn read(url: &NsUrl) -> Result<BTreeSet<String>, Ref<NsError>> {
        let path = url.path().display();
        let failure = |message: String| NsError::new(DOMAIN, INVALID_FILE, &message);
        let text =
            std::fs::read_to_string(url.path()).map_err(|error| failure(format!("{path}: {error}")))?;
        let mut lines = text.lines();
        if lines.next() != Some(MAGIC) {
            return Err(failure(format!("{path} is not an archive")));
        }
        Ok(lines.map(str::to_owned).collect())
    }

    /// Whether it has a pipeline with that name.
    pub fn has(&self, key: &str) -> bool {
        self.keys.lock().contains(key)
    }

    fn add(this: &Ref<Self>, descriptor: Ref<Descriptor>, error: Out) -> bool {
        let missing = || NsError::new(DOMAIN, UNEXPECTED_ELEMENT, "the descriptor has no compute function");
        let added = descriptor.key().ok_or_else(missing).and_then(|key| {
            if !this.has(&key) {
                descriptor.compile(&this.device)?;
                this.keys.lock().insert(key);
            }
            Ok(())
        });
        error.catch(added).is_some()
    }

    fn serialize(this: &Ref<Self>, url: Ref<NsUrl>, error: Out) -> bool {
        let keys = this.keys.lock();
        let lines: Vec<&str> = std::iter::once(MAGIC).chain(keys.iter().map(String::as_str)).collect();
        let written = std::fs::write(url.path(), lines.join("\n"));
        let failure = |error| NsError::new(DOMAIN, INTERNAL, &format!("{}: {error}", url.path().display()));
        error.catch(written.map_err(failure)).is_some()
    }
}

pub fn register() {
    Declaration::<ArchiveDescriptor>::new()
        .makes_default()
        .copies()
        .property("url", |d: &ArchiveDescriptor| &d.0)
        .register();
    Declaration::<Archive>::new()
        .follows(c"MTLBinaryArchive")
        .property("label", |archive: &Archive| &archive.label)
        .method("device", |this: &Ref<Archive>| this.device.clone())
        .method("addComputePipelineFunctionsWithDescriptor:error:", Archive::add)
        .method("serializeToURL:error:", Archive::serialize)
        .register();
}
