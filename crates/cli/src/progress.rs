//! [`Progress`]: how far long work is, on standard error if that is a terminal. And Ctrl-C, which ends the command without leaving parts of files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressStyle};

/// Exit code after Ctrl-C, as of programs that the signal ends.
const INTERRUPTED: i32 = 128 + 2;

/// Files that are written under another name until they are complete.
static PARTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether a bar is shown.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// A bar, which disappears when the work ends. Nothing is shown for a single item, within work that has a bar, or if standard error is not a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(count: usize) -> Self {
        if count < 2 || IS_SHOWN.swap(true, Ordering::Relaxed) {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(count as u64);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {wide_msg}");
        Self(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// An item begins.
    pub fn begin(&self, name: &str) {
        self.0.set_message(crate::report::visible(name));
    }

    /// An item has ended.
    pub fn end(&self) {
        self.0.inc(1);
    }

    /// Prints something while the bar is hidden.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0.length().is_some() {
            self.0.finish_and_clear();
            IS_SHOWN.store(false, Ordering::Relaxed);
        }
    }
}

/// Removes the parts of files and ends the process when it is interrupted. Processes of the compiler receive the signal too.
pub fn handle_interrupts() {
    // Without the handler, the signal ends the process, and a part of a file may remain.
    let _without = ctrlc::set_handler(|| {
        for part in PARTS.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _gone = std::fs::remove_file(part);
        }
        // Destructors would wait for kernels that run.
        std::process::exit(INTERRUPTED);
    });
}

/// A part of a file, which an interrupt removes.
pub struct Part(PathBuf);

impl Part {
    pub fn new(path: &Path) -> Self {
        PARTS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
        Self(path.to_owned())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        PARTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|part| *part != self.0);
    }
}
