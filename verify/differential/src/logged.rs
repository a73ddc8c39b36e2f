//! Log lines of a kernel, of the interpreter and of compiled code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use elinvar_driver::{Log, LogKernel, LogSite, Signature};
use elinvar_reference::LogRecord;

use crate::compare::Outcome;

/// Size of the log of compiled code in bytes: no line is lost.
const SIZE: u64 = 1 << 24;

/// The lines of each thread, in its order.
#[derive(Default)]
pub(crate) struct Lines(BTreeMap<[u32; 3], Vec<String>>);

impl Lines {
    pub(crate) fn add(&mut self, thread: [u32; 3], line: String) {
        self.0.entry(thread).or_default().push(line);
    }

    /// The first difference from the interpreter's lines.
    pub(crate) fn compare(&self, other: &Self) -> Outcome {
        let threads = self.0.keys().chain(other.0.keys());
        for thread in threads {
            let [expected, actual] = [self, other].map(|lines| lines.0.get(thread));
            if expected != actual {
                return Outcome::Different(format!(
                    "thread {thread:?} logs {actual:?}, and {expected:?} in the interpreter"
                ));
            }
        }
        Outcome::Same
    }
}

/// The message of the interpreter's record. Formats of the generator differ.
pub(crate) fn message(record: &LogRecord, sites: &[LogSite]) -> String {
    let is_it = |site: &&LogSite| site.format == record.format;
    let site = match record.site {
        Some(site) => sites.get(usize::from(site)),
        None => sites.iter().find(is_it),
    };
    site.map_or_else(|| format!("a call without a site: {record:?}"), |site| site.message(&record.words))
}

/// The log of compiled code.
pub(crate) struct Logging {
    pub(crate) log: Arc<Log>,
    pub(crate) kernel: Option<Arc<LogKernel>>,
    lines: Arc<Mutex<Lines>>,
}

impl Logging {
    pub(crate) fn new(sites: &[LogSite]) -> Self {
        let (log, lines) = (Log::new(), Arc::<Mutex<Lines>>::default());
        // Below the limit, and before the ring is made.
        let _set = log.set_size(SIZE);
        let to = lines.clone();
        log.subscribe(Arc::new(move |line| {
            let mut lines = to.lock().unwrap_or_else(PoisonError::into_inner);
            lines.add(line.thread.unwrap_or_default(), line.message.clone());
        }));
        let signature = Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: String::new(),
            line: 0,
            max_threads_per_threadgroup: None,
            code: None,
            logs: sites.to_vec(),
        };
        let kernel = log.kernel(&signature);
        Self { log, kernel, lines }
    }

    /// The lines, after the kernel has ended.
    pub(crate) fn end(self) -> Result<Lines, String> {
        self.log.read(false);
        match self.log.lost() {
            0 => Ok(std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner))),
            lost => Err(format!("{lost} log lines are lost")),
        }
    }
}
