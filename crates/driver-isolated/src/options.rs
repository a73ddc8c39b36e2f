//! [`Options`]: how an isolated device is made.

use std::path::PathBuf;
use std::time::Duration;

use elinvar_driver::DeviceKind;

/// How an isolated device is made. The default suits most programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The device in the worker process: [`DeviceKind::Cpu`] or [`DeviceKind::Cuda`]; every other kind is `Unsupported`.
    pub kind: DeviceKind,
    /// Which of the devices of that kind, from 0, in the order in which its driver lists them. There is one processor.
    pub index: usize,
    /// Threads that run kernels on the processor; `None` is one for each.
    pub threads: Option<usize>,
    /// Bytes of buffers that the device may have; `None` is the machine's memory.
    pub memory: Option<u64>,
    /// Bytes of private memory that the worker process may take (`RLIMIT_DATA`), for threads, code and what kernels keep;
    /// `None` sets no limit. `Unsupported` for a GPU, whose driver maps as much as it likes.
    pub private_memory: Option<u64>,
    /// Time that work has to end after it was told to stop, before the worker process is ended.
    pub grace: Duration,
    /// Whether the worker process is confined once it serves: it can open no files, make no connections, start no programs and send
    /// no signals. That of a GPU can open files, and start threads, which its driver does.
    pub confined: bool,
    /// The program that serves; `None` is found as the crate's documentation says.
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
