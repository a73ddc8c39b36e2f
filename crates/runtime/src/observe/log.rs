//! Log lines of kernels: callbacks, `tracing` events, and the number of lost lines.

use std::fmt;
use std::sync::Arc;

use elinvar_driver::{Error, Log, LogLevel, LogLine, Result};

use crate::Device;

/// A callback for log lines. Dropping it removes the callback.
#[must_use = "dropping it removes the callback"]
pub struct LogSubscription {
    log: Arc<Log>,
    number: u64,
}

impl fmt::Debug for LogSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogSubscription").finish_non_exhaustive()
    }
}

impl Drop for LogSubscription {
    fn drop(&mut self) {
        self.log.unsubscribe(self.number);
    }
}

impl Device {
    /// Calls `callback` with each line that a kernel of this device logs with `os_log` or `printf`, while the kernel runs, and before the
    /// completion of its submission. Lines of one thread are in its order. They come one at a time, on threads of the driver, where
    /// waits for the device are [`Error::WouldDeadlock`]; a slow callback loses lines.
    ///
    /// Lines are `tracing` events with the target `elinvar::kernel`, too.
    ///
    /// # Errors
    /// `Unsupported` if kernels of this device cannot log.
    pub fn on_log(&self, callback: impl Fn(&LogLine) + Send + Sync + 'static) -> Result<LogSubscription> {
        let log = self.kernel_log()?;
        Ok(LogSubscription { log: log.clone(), number: log.subscribe(Arc::new(callback)) })
    }

    /// Number of lines that kernels have logged and that the program has received, with or without a callback. [`Device::health`] has it.
    pub fn delivered_log_lines(&self) -> u64 {
        self.driver().log().map_or(0, |log| log.delivered())
    }

    /// Number of lines that kernels have logged and that were lost, because the host did not read the log as fast as they were written.
    pub fn lost_log_lines(&self) -> u64 {
        self.driver().log().map_or(0, |log| log.lost())
    }

    /// Sets the size of the device's log in bytes; 1 MiB by default. A line takes 64 bytes; one with more than five values, counting the
    /// components of vectors, 64 more for each seven.
    ///
    /// # Errors
    /// `InvalidArgument` below 1024 bytes, above 1 GiB, and after a kernel with log calls was created; `Unsupported` if kernels of this
    /// device cannot log.
    pub fn set_log_size(&self, bytes: u64) -> Result<()> {
        self.kernel_log()?.set_size(bytes)
    }

    fn kernel_log(&self) -> Result<&Arc<Log>> {
        let none = || Error::unsupported(format!("log calls on device `{}`", self.name()));
        self.driver().log().ok_or_else(none)
    }
}

/// Makes a device's lines `tracing` events.
pub(crate) fn trace(driver: &dyn elinvar_driver::Device) -> Option<LogSubscription> {
    let log = driver.log()?;
    Some(LogSubscription { log: log.clone(), number: log.subscribe(Arc::new(event)) })
}

fn event(line: &LogLine) {
    const TARGET: &str = "elinvar::kernel";
    let LogLine { kernel, thread, subsystem, category, message, .. } = line;
    let message = message.strip_suffix('\n').unwrap_or(message);
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                tracing::Level::$level,
                kernel = &**kernel,
                thread = ?thread,
                subsystem = &**subsystem,
                category = &**category,
                "{message}"
            )
        };
    }
    match line.level {
        LogLevel::Debug => event!(DEBUG),
        LogLevel::Info | LogLevel::Notice => event!(INFO),
        LogLevel::Error | LogLevel::Fault => event!(ERROR),
    }
}
