//! Captures: [`MTLCaptureManager`](https://developer.apple.com/documentation/metal/mtlcapturemanager) and
//! [`MTLCaptureScope`](https://developer.apple.com/documentation/metal/mtlcapturescope). What is captured is nothing: a file of
//! one line stands for the trace. As the documentation says, a document is only written if `MTL_CAPTURE_ENABLED` is 1.

use std::sync::LazyLock;

use elinvar_objc::foundation::{NsError, NsString, NsUrl};
use elinvar_objc::{Declaration, Object, Out, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::queue::Queue;
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

/// What is to be captured, and where to.
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

/// Begins and ends captures.
#[derive(Default)]
struct Captures {
    /// Where the one under way is written to.
    under_way: Mutex<Option<Ref<NsUrl>>>,
    default_scope: Property<Option<Ref<CaptureScope>>>,
}

elinvar_objc::object!(Captures, c"MTLCaptureManager");

static SHARED: LazyLock<Ref<Captures>> = LazyLock::new(Ref::default);

/// Part of the work of a device or queue.
struct CaptureScope {
    device: Ref<Device>,
    queue: Option<Ref<Queue>>,
    label: Property<Option<Ref<NsString>>>,
    begun: Mutex<bool>,
}

elinvar_objc::object!(CaptureScope, c"ElinvarMTLCaptureScope");

impl Captures {
    fn supports(destination: isize) -> bool {
        let enabled = std::env::var_os("MTL_CAPTURE_ENABLED").is_some_and(|value| value == "1");
        destination == DOCUMENT && enabled
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
                "the destination is not supported; MTL_CAPTURE_ENABLED=1 allows documents",
            );
        }
        if descriptor.object.get().is_none() {
            return failure(INVALID_DESCRIPTOR, "the descriptor has no capture object");
        }
        match descriptor.url.get() {
            Some(url) if url.path().exists() => failure(INVALID_DESCRIPTOR, "the output URL exists"),
            Some(url) => {
                *under_way = Some(url);
                Ok(())
            }
            None => failure(INVALID_DESCRIPTOR, "the descriptor has no output URL"),
        }
    }

    fn stop(this: &Ref<Self>) {
        let url = this.under_way.lock().take();
        require!(url.is_some(), "-[MTLCaptureManager stopCapture]: no capture is under way");
        if let Some(url) = url
            && let Err(error) = std::fs::write(url.path(), "elinvar-gputrace 1\n")
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
