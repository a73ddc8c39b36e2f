//! [`KernelLog`]: log lines of kernels, which Metal formats and passes to a handler of an
//! [`MTLLogState`](https://developer.apple.com/documentation/metal/mtllogstate) (macOS 15).
//!
//! The log state is created for the first source with log calls, and then belongs to all command buffers, since a command buffer is created
//! before its kernels are known. Metal reports neither kernel nor thread.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use block2::RcBlock;
use elinvar_driver::{Error, Log, LogLevel, LogLine, Result};
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_foundation::NSString;
use objc2_metal::{MTLDevice, MTLLogLevel, MTLLogState, MTLLogStateDescriptor};
use parking_lot::Mutex;

use super::core::Descriptors;

/// What a source with log calls contains.
const CALLED: &str = "os_log";

/// The log of a device.
pub(super) struct KernelLog {
    pub(super) log: Arc<Log>,
    descriptors: OnceLock<Descriptors>,
    begins: Mutex<()>,
}

impl KernelLog {
    /// `None` if the system has no log states.
    pub(super) fn of(device: &ProtocolObject<dyn MTLDevice>) -> Option<Self> {
        let has = device.respondsToSelector(sel!(newLogStateWithDescriptor:error:));
        has.then(|| Self { log: Log::new(), descriptors: OnceLock::new(), begins: Mutex::default() })
    }

    /// Whether a source may have log calls.
    pub(super) fn is_for(text: &str) -> bool {
        text.contains(CALLED)
    }

    /// Descriptors of command buffers with the log state, once there is one.
    pub(super) fn descriptors(&self) -> Option<&Descriptors> {
        self.descriptors.get()
    }

    /// Creates the log state, unless there is one.
    pub(super) fn begin(&self, device: &ProtocolObject<dyn MTLDevice>) -> Result<()> {
        let _one_at_a_time = self.begins.lock();
        if self.descriptors.get().is_none() {
            let state = self.state(device)?;
            let _first = self.descriptors.set(Descriptors::new(Some(&state)));
        }
        Ok(())
    }

    #[allow(unsafe_code)] // calls of the bindings
    fn state(
        &self,
        device: &ProtocolObject<dyn MTLDevice>,
    ) -> Result<Retained<ProtocolObject<dyn MTLLogState>>> {
        let descriptor = MTLLogStateDescriptor::new();
        descriptor.setLevel(MTLLogLevel::Debug);
        let bytes = isize::try_from(self.log.fix_size()).unwrap_or(isize::MAX);
        // SAFETY: a positive number.
        unsafe { descriptor.setBufferSize(bytes) };
        let made = device.newLogStateWithDescriptor_error(&descriptor);
        let state = made.map_err(|error| {
            Error::Environment(format!("Metal has no log of {bytes} bytes: {}", error.localizedDescription()))
        })?;
        let log = self.log.clone();
        let handler = RcBlock::new(
            move |subsystem: *mut NSString, category: *mut NSString, level, message: NonNull<NSString>| {
                // SAFETY: Metal passes strings, or null for those that are not given.
                let text = |text: *mut NSString| unsafe { text.as_ref() }.map(ToString::to_string);
                log.deliver(&LogLine {
                    kernel: "".into(),
                    thread: None,
                    level: level_of(level),
                    subsystem: text(subsystem).unwrap_or_default().into(),
                    category: text(category).unwrap_or_default().into(),
                    message: text(message.as_ptr()).unwrap_or_default(),
                    location: None,
                });
            },
        );
        // SAFETY: the handler has these parameters, and may be called on any thread.
        unsafe { state.addLogHandler(&handler) };
        Ok(state)
    }
}

fn level_of(level: MTLLogLevel) -> LogLevel {
    match level {
        MTLLogLevel::Debug => LogLevel::Debug,
        MTLLogLevel::Info => LogLevel::Info,
        MTLLogLevel::Error => LogLevel::Error,
        MTLLogLevel::Fault => LogLevel::Fault,
        _ => LogLevel::Notice,
    }
}
