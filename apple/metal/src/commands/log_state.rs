//! [`LogState`]: [`MTLLogState`](https://developer.apple.com/documentation/metal/mtllogstate): log lines of the kernels of command buffers
//! that have it, as far as their library was compiled with `enableLogging`.
//!
//! Guesses, because they are not documented: handlers are called before the command buffer completes, and a level below that of the
//! descriptor is left out.

use std::collections::HashSet;
use std::sync::Arc;

use elinvar_driver::{LogLevel, LogLine};
use elinvar_objc::foundation::{NsError, NsString};
use elinvar_objc::{Block, Declaration, Id, Out, Property, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::require;

/// The smallest buffer, which the documentation names.
const MIN_BYTES: isize = 1024;

/// `MTLLogStateErrorInvalidSize`.
const INVALID_SIZE: isize = 1;

/// `MTLLogStateDescriptor`.
#[derive(Clone)]
pub struct LogStateDescriptor {
    level: Property<isize>,
    bytes: Property<isize>,
}

elinvar_objc::object!(LogStateDescriptor, c"MTLLogStateDescriptor");

impl Default for LogStateDescriptor {
    fn default() -> Self {
        Self { level: Property::new(0), bytes: Property::new(1 << 20) }
    }
}

/// Subsystem, category, level and message.
type LineBlock = Block<(Id, Id, isize, Id)>;

/// Receives log lines.
pub struct LogState {
    level: isize,
    handlers: Mutex<Vec<LineBlock>>,
}

elinvar_objc::object!(LogState, c"ElinvarMTLLogState");

/// An `MTLLogLevel`.
fn number(level: LogLevel) -> isize {
    match level {
        LogLevel::Debug => 1,
        LogLevel::Info => 2,
        LogLevel::Notice => 3,
        LogLevel::Error => 4,
        LogLevel::Fault => 5,
    }
}

impl LogState {
    /// `newLogStateWithDescriptor:error:`.
    pub fn with_descriptor(
        _device: &Ref<Device>,
        descriptor: Option<Ref<LogStateDescriptor>>,
        error: Out,
    ) -> Option<Ref<Self>> {
        require!(descriptor.is_some(), "newLogStateWithDescriptor:error: the descriptor is nil");
        let descriptor = descriptor.map(|descriptor| (descriptor.level.get(), descriptor.bytes.get()));
        let made = match descriptor {
            Some((level, bytes)) if bytes >= MIN_BYTES => {
                Ok(Ref::new(Self { level, handlers: Mutex::default() }))
            }
            _ => Err(NsError::new(
                "MTLLogStateErrorDomain",
                INVALID_SIZE,
                "the buffer size is below 1024 bytes",
            )),
        };
        error.catch(made)
    }

    fn add(this: &Ref<Self>, handler: Option<LineBlock>) {
        require!(handler.is_some(), "addLogHandler: the handler is nil");
        this.handlers.lock().extend(handler);
    }

    fn deliver(&self, line: &LogLine) {
        let level = number(line.level);
        if level < self.level {
            return;
        }
        let text = |text: &str| (!text.is_empty()).then(|| NsString::new(text));
        let (subsystem, category) = (text(&line.subsystem), text(&line.category));
        let message = NsString::new(&line.message);
        let id = |text: &Option<Ref<NsString>>| text.as_ref().map_or(std::ptr::null_mut(), |text| text.id());
        for handler in &*self.handlers.lock() {
            handler.call(id(&subsystem), id(&category), level, message.id());
        }
    }
}

/// The log of a device.
#[derive(Default)]
pub struct DeviceLog {
    /// The log states of command buffers that are being executed.
    running: Mutex<Vec<Ref<LogState>>>,
    /// Names of the kernels of libraries that were compiled with `enableLogging`.
    kernels: Mutex<HashSet<String>>,
}

impl DeviceLog {
    /// The log of a CPU device.
    pub fn of(cpu: &dyn elinvar_driver::Device) -> Arc<Self> {
        let log = Arc::new(Self::default());
        let receiver = log.clone();
        if let Some(lines) = cpu.log() {
            lines.subscribe(Arc::new(move |line: &LogLine| receiver.receive(line)));
        }
        log
    }

    /// A library was compiled with `enableLogging`.
    pub fn enable(&self, kernels: impl Iterator<Item = String>) {
        self.kernels.lock().extend(kernels);
    }

    /// Begins or ends the execution of a command buffer with this log state.
    pub fn run(&self, state: &Ref<LogState>, begins: bool) {
        let mut running = self.running.lock();
        match (begins, running.iter().position(|other| other.is(state))) {
            (true, _) => running.push(state.clone()),
            (false, Some(at)) => drop(running.swap_remove(at)),
            (false, None) => {}
        }
    }

    fn receive(&self, line: &LogLine) {
        if !self.kernels.lock().contains(&*line.kernel) {
            return;
        }
        let mut states: Vec<Ref<LogState>> = Vec::new();
        for state in &*self.running.lock() {
            if !states.iter().any(|other| other.is(state)) {
                states.push(state.clone());
            }
        }
        elinvar_objc::with_pool(|| states.iter().for_each(|state| state.deliver(line)));
    }
}

pub fn register() {
    Declaration::<LogStateDescriptor>::new()
        .makes_default()
        .copies()
        .property("level", |d: &LogStateDescriptor| &d.level)
        .property("bufferSize", |d: &LogStateDescriptor| &d.bytes)
        .register();
    Declaration::<LogState>::new().follows(c"MTLLogState").method("addLogHandler:", LogState::add).register();
}
