//! Shader validation: [Validating your app's Metal shader usage](https://developer.apple.com/documentation/xcode/validating-your-apps-metal-shader-usage),
//! `man MetalValidation`, and what a command buffer logs of it:
//! [`MTLFunctionLog`](https://developer.apple.com/documentation/metal/mtlfunctionlog),
//! [Debug GPU-side errors in Metal](https://developer.apple.com/videos/play/wwdc2020/10616/).
//!
//! It is a layer of the process. `MTL_SHADER_VALIDATION`, read when the first device is created, enables it, and
//! `MTL_SHADER_VALIDATION_DEFAULT_STATE` selects whether it applies to pipelines whose descriptors do not specify it. Invalid reads return zero,
//! invalid writes are dropped, and the command buffer has no error: faults are in its logs.
//!
//! Implemented with the CPU compiler's bounds checks, which cover more than Apple's documentation mentions (threadgroup memory, private
//! arrays), and report the first fault of each dispatch. Guesses: a kernel that cannot be checked runs unchecked; the state of
//! a pipeline that is not validated; a log has no function object, and its column is 0. The other environment variables are not
//! read.

use std::sync::LazyLock;

use elinvar_driver::Fault;
use elinvar_objc::foundation::{NsString, NsUrl};
use elinvar_objc::{Declaration, Object, Ref};

/// `MTLShaderValidation`.
pub const ENABLED: isize = 1;
pub const DISABLED: isize = 2;

/// Whether the process has the layer, and the default state of pipelines.
static LAYER: LazyLock<(bool, bool)> = LazyLock::new(|| {
    let value = |name: &str| std::env::var(name).unwrap_or_default();
    let on = !matches!(value("MTL_SHADER_VALIDATION").as_str(), "" | "0");
    (on, on && value("MTL_SHADER_VALIDATION_DEFAULT_STATE") != "none")
});

/// Reads the environment, once.
pub fn begin() {
    LazyLock::force(&LAYER);
}

/// Whether a pipeline with this value in its descriptor is validated.
pub fn is_for(property: isize) -> bool {
    let (on, default) = *LAYER;
    match property {
        ENABLED => on,
        DISABLED => false,
        _ => default,
    }
}

/// A fault that was found.
pub struct Log {
    encoder: String,
    kernel: String,
    /// File and line.
    place: Option<(String, usize)>,
}

elinvar_objc::object!(Log, c"ElinvarMTLFunctionLog");

struct Place {
    function: String,
    file: String,
    line: usize,
}

elinvar_objc::object!(Place, c"ElinvarMTLFunctionLogDebugLocation");

impl Log {
    /// A fault of a dispatch in an encoder.
    pub fn of(fault: &Fault, encoder: &str) -> Ref<Self> {
        let place = fault.location.as_ref().and_then(|place| {
            let (file, line) = place.rsplit_once(':')?;
            Some((file.to_owned(), line.parse().ok()?))
        });
        Ref::new(Self { encoder: encoder.to_owned(), kernel: fault.kernel.clone(), place })
    }

    fn location(this: &Ref<Self>) -> Option<Ref<Place>> {
        let (file, line) = this.place.clone()?;
        Some(Ref::new(Place { function: this.kernel.clone(), file, line }))
    }
}

pub fn register() {
    Declaration::<Log>::new()
        .follows(c"MTLFunctionLog")
        // `MTLFunctionLogTypeValidation`
        .method("type", |_: &Ref<Log>| 0_usize)
        .method("encoderLabel", |this: &Ref<Log>| {
            (!this.encoder.is_empty()).then(|| NsString::new(&this.encoder))
        })
        .method("function", |_: &Ref<Log>| None::<Object>)
        .method("debugLocation", Log::location)
        .register();
    Declaration::<Place>::new()
        .follows(c"MTLFunctionLogDebugLocation")
        .method("functionName", |this: &Ref<Place>| NsString::new(&this.function))
        .method("URL", |this: &Ref<Place>| Ref::new(NsUrl::of_path(NsString::new(&this.file))))
        .method("line", |this: &Ref<Place>| this.line)
        .method("column", |_: &Ref<Place>| 0_usize)
        .register();
}
