//! [`Options`] of an isolated device.

use std::path::PathBuf;
use std::time::Duration;

use elinvar_driver::DeviceKind;

/// Options of an isolated device. The defaults suit most programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Kind of the device in the worker process: [`DeviceKind::Cpu`] or [`DeviceKind::Cuda`]; others are `Unsupported`.
    pub kind: DeviceKind,
    /// Index of the device among those of its kind, from 0, in the order of its driver's list. There is one CPU.
    pub index: usize,
    /// Number of CPU worker threads; `None` is one per processor.
    pub threads: Option<usize>,
    /// Limit of buffer memory in bytes; `None` is the machine's memory.
    pub memory: Option<u64>,
    /// Limit of the worker's private memory in bytes (`RLIMIT_DATA`), which holds threads, code and kernel data. `None` sets no limit.
    /// `Unsupported` for a GPU, whose driver maps arbitrary amounts.
    pub private_memory: Option<u64>,
    /// Time that work may take to end after it was told to stop, before the worker process is ended.
    pub grace: Duration,
    /// Whether the worker process is confined: it cannot open files, connect to networks, start programs or send signals. The worker
    /// of a GPU can open files and start threads, because its driver does.
    pub confined: bool,
    /// The worker program; `None` is located as described in the crate documentation.
    pub program: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        let (threads, memory, private_memory, program) = (None, None, None, None);
        let (kind, index) = (DeviceKind::Cpu, 0);
        Self {
            kind,
            index,
            threads,
            memory,
            private_memory,
            grace: Duration::from_secs(2),
            confined: true,
            program,
        }
    }
}
