//! Captures: [`MTLCaptureManager`](https://developer.apple.com/documentation/metal/mtlcapturemanager) and
//! [`MTLCaptureScope`](https://developer.apple.com/documentation/metal/mtlcapturescope). As `startCaptureWithDescriptor:error:`
//! says, a capture contains the command buffers of its device or queue that are created after its start and committed before its end; that of a
//! scope, those created while the scope is active. A trace document, which is written only if `METAL_CAPTURE_ENABLED` is 1
//! (`MTL_CAPTURE_ENABLED` in older documentation), is a text here: labels, debug groups and commands, one per line.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_objc::foundation::{NsError, NsString, NsUrl};
use elinvar_objc::{Declaration, Object, Out, Property, Ref};
use parking_lot::Mutex;

use crate::commands::queue::Queue;
use crate::device::Device;
use crate::require;

const DOMAIN: &str = "MTLCaptureError";

/// `MTLCaptureDestination`.
const DEVELOPER_TOOLS: isize = 1;
const DOCUMENT: isize = 2;

/// `MTLCaptureError`.
const NOT_SUPPORTED: isize = 1;
const ALREADY_CAPTURING: isize = 2;
const INVALID_DESCRIPTOR: isize = 3;

elinvar_objc::string_constants! { MTLCaptureErrorDomain = "MTLCaptureError" }

/// `MTLCaptureDescriptor`.
#[derive(Clone)]
struct CaptureDescriptor {
    object: Property<Option<Object>>,
    destination: Property<isize>,
    url: Property<Option<Ref<NsUrl>>>,
}

elinvar_objc::object!(CaptureDescriptor, c"MTLCaptureDescriptor");

impl Default for CaptureDescriptor {
    fn default() -> Self {
        let (object, url) = (Property::default(), Property::default());
        Self { object, destination: Property::new(DEVELOPER_TOOLS), url }
    }
}

/// An active capture.
struct UnderWay {
    number: u64,
    /// The captured object.
    object: Object,
    /// The output path.
    url: Ref<NsUrl>,
    words: String,
}

/// `MTLCaptureManager`.
#[derive(Default)]
struct Captures {
    under_way: Mutex<Option<UnderWay>>,
    last: AtomicU64,
    default_scope: Property<Option<Ref<CaptureScope>>>,
}

elinvar_objc::object!(Captures, c"MTLCaptureManager");

static SHARED: LazyLock<Ref<Captures>> = LazyLock::new(Ref::default);

/// `MTLCaptureScope`.
struct CaptureScope {
    device: Ref<Device>,
    queue: Option<Ref<Queue>>,
    label: Property<Option<Ref<NsString>>>,
    begun: Mutex<bool>,
}

elinvar_objc::object!(CaptureScope, c"ElinvarMTLCaptureScope");

/// The capture that a new command buffer of a queue belongs to.
pub fn under_way(queue: &Ref<Queue>) -> Option<u64> {
    let under_way = SHARED.under_way.lock();
    let capture = under_way.as_ref()?;
    let object = &capture.object;
    let is_device = object.downcast::<Device>().is_some_and(|device| device.is(&queue.device));
    let is_queue = object.downcast::<Queue>().is_some_and(|own| own.is(queue));
    let is_scope = object.downcast::<CaptureScope>().is_some_and(|scope| {
        *scope.begun.lock()
            && scope.device.is(&queue.device)
            && scope.queue.as_ref().is_none_or(|own| own.is(queue))
    });
    (is_device || is_queue || is_scope).then_some(capture.number)
}

/// Adds a committed command buffer to its capture.
pub fn note(number: u64, words: impl FnOnce() -> String) {
    if let Some(capture) = SHARED.under_way.lock().as_mut().filter(|capture| capture.number == number) {
        capture.words += &words();
    }
}

impl Captures {
    fn supports(destination: isize) -> bool {
        let is_one = |name| std::env::var_os(name).is_some_and(|value| value == "1");
        destination == DOCUMENT && (is_one("METAL_CAPTURE_ENABLED") || is_one("MTL_CAPTURE_ENABLED"))
    }

    fn start(this: &Ref<Self>, descriptor: Ref<CaptureDescriptor>, error: Out) -> bool {
        error.catch(this.begin(&descriptor)).is_some()
    }

    fn begin(&self, descriptor: &CaptureDescriptor) -> Result<(), Ref<NsError>> {
        let failure = |code, message: &str| Err(NsError::new(DOMAIN, code, message));
        let mut under_way = self.under_way.lock();
        if under_way.is_some() {
            return failure(ALREADY_CAPTURING, "a capture is under way");
        }
        if !Self::supports(descriptor.destination.get()) {
            return failure(
                NOT_SUPPORTED,
                "the destination is not supported; METAL_CAPTURE_ENABLED=1 allows documents",
            );
        }
        let Some(object) = descriptor.object.get() else {
            return failure(INVALID_DESCRIPTOR, "the descriptor has no capture object");
        };
        match descriptor.url.get() {
            Some(url) if url.path().exists() => failure(INVALID_DESCRIPTOR, "the output URL exists"),
            Some(url) => {
                let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
                *under_way = Some(UnderWay { number, object, url, words: "elinvar-gputrace 1\n".to_owned() });
                Ok(())
            }
            None => failure(INVALID_DESCRIPTOR, "the descriptor has no output URL"),
        }
    }

    fn stop(this: &Ref<Self>) {
        let capture = this.under_way.lock().take();
        require!(capture.is_some(), "-[MTLCaptureManager stopCapture]: no capture is under way");
        if let Some(UnderWay { url, words, .. }) = capture
            && let Err(error) = std::fs::write(url.path(), words)
        {
            elinvar_objc::watch::log(format_args!("{}: {error}", url.path().display()));
        }
    }
}

impl CaptureScope {
    fn new(device: &Ref<Device>, queue: Option<Ref<Queue>>) -> Ref<Self> {
        let begun = Mutex::new(false);
        Ref::new(Self { device: device.clone(), queue, label: Property::default(), begun })
    }

    fn set(this: &Ref<Self>, begins: bool) {
        let was = std::mem::replace(&mut *this.begun.lock(), begins);
        require!(was != begins, "-[MTLCaptureScope]: it is begun or ended twice");
    }
}

pub fn register() {
    register_constants();
    Declaration::<CaptureDescriptor>::new()
        .makes_default()
        .copies()
        .property("captureObject", |d: &CaptureDescriptor| &d.object)
        .property("destination", |d: &CaptureDescriptor| &d.destination)
        .property("outputURL", |d: &CaptureDescriptor| &d.url)
        .register();
    Declaration::<Captures>::new()
        .class_method("sharedCaptureManager", || SHARED.clone())
        .method("supportsDestination:", |_: &Ref<Captures>, to: isize| Captures::supports(to))
        .method("startCaptureWithDescriptor:error:", Captures::start)
        .method("stopCapture", Captures::stop)
        .method("isCapturing", |this: &Ref<Captures>| this.under_way.lock().is_some())
        .method("newCaptureScopeWithDevice:", |_: &Ref<Captures>, device: Ref<Device>| {
            CaptureScope::new(&device, None)
        })
        .method("newCaptureScopeWithCommandQueue:", |_: &Ref<Captures>, queue: Ref<Queue>| {
            CaptureScope::new(&queue.device, Some(queue.clone()))
        })
        .property("defaultCaptureScope", |captures: &Captures| &captures.default_scope)
        .register();
    Declaration::<CaptureScope>::new()
        .follows(c"MTLCaptureScope")
        .property("label", |scope: &CaptureScope| &scope.label)
        .method("device", |this: &Ref<CaptureScope>| this.device.clone())
        .method("commandQueue", |this: &Ref<CaptureScope>| this.queue.clone())
        .method("beginScope", |this: &Ref<CaptureScope>| CaptureScope::set(this, true))
        .method("endScope", |this: &Ref<CaptureScope>| CaptureScope::set(this, false))
        .register();
}
