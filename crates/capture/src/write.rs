//! [`CaptureFile`]: a file that captures are appended to.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use elinvar_cache::encode;
use elinvar_driver::{Error, PipelineOptions, Result};
use serde_bytes::ByteBuf;

use crate::format::{BlobId, Launch, MAGIC, Record, SourceRecord};

/// A file that captured launches are appended to, by any number of devices.
pub struct CaptureFile {
    path: PathBuf,
    queues: AtomicU32,
    state: Mutex<State>,
}

struct State {
    file: BufWriter<File>,
    devices: u32,
    sources: HashMap<SourceRecord, u32>,
    kernels: HashMap<(u32, String, PipelineOptions), u32>,
    blobs: HashSet<BlobId>,
    launches: u64,
    /// The first error; nothing is written after it.
    failed: Option<String>,
}

impl CaptureFile {
    /// Creates a file.
    ///
    /// # Errors
    /// `InvalidArgument` if it exists; `Environment` if it cannot be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref().to_owned();
        let file = File::options().write(true).create_new(true).open(&path).map_err(|error| {
            let text = format!("capture to `{}`: {error}", path.display());
            match error.kind() {
                std::io::ErrorKind::AlreadyExists => Error::invalid(text),
                _ => Error::Environment(text),
            }
        })?;
        let state = State {
            file: BufWriter::new(file),
            devices: 0,
            sources: HashMap::new(),
            kernels: HashMap::new(),
            blobs: HashSet::new(),
            launches: 0,
            failed: None,
        };
        let created = Self { path, queues: AtomicU32::new(0), state: Mutex::new(state) };
        created.with(|state| state.raw(MAGIC));
        created.flush()?;
        Ok(Arc::new(created))
    }

    /// Number of launches in the file.
    pub fn launches(&self) -> u64 {
        self.with(|state| state.launches)
    }

    /// Passes everything to the operating system.
    ///
    /// # Errors
    /// `Environment` if anything could not be written since the file was created.
    pub fn flush(&self) -> Result<()> {
        let failed = self.with(|state| {
            state.flush();
            state.failed.clone()
        });
        let text = |why: String| Error::Environment(format!("capture to `{}`: {why}", self.path.display()));
        failed.map_or(Ok(()), |why| Err(text(why)))
    }

    pub(crate) fn device(&self, kind: &str, name: &str) -> u32 {
        self.with(|state| {
            state.append(&Record::Device { kind: kind.into(), name: name.into() });
            state.devices += 1;
            state.devices - 1
        })
    }

    pub(crate) fn queue(&self) -> u32 {
        self.queues.fetch_add(1, Ordering::Relaxed)
    }

    /// Number of a kernel, which is written if it is new.
    pub(crate) fn kernel(&self, source: &SourceRecord, name: &str, options: &PipelineOptions) -> u32 {
        self.with(|state| {
            let number = match state.sources.get(source) {
                Some(number) => *number,
                None => {
                    state.append(&Record::Source(source.clone()));
                    let number = state.sources.len() as u32;
                    state.sources.insert(source.clone(), number);
                    number
                }
            };
            let key = (number, name.to_owned(), options.clone());
            if let Some(kernel) = state.kernels.get(&key) {
                return *kernel;
            }
            state.append(&Record::Kernel { source: number, name: name.into(), options: options.clone() });
            let kernel = state.kernels.len() as u32;
            state.kernels.insert(key, kernel);
            kernel
        })
    }

    /// Writes contents that are new.
    pub(crate) fn blob(&self, bytes: &[u8]) -> BlobId {
        let id = *blake3::hash(bytes).as_bytes();
        if self.with(|state| state.blobs.insert(id)) {
            // Without the lock: this takes long.
            let compressed = ByteBuf::from(lz4_flex::block::compress(bytes));
            self.with(|state| state.append(&Record::Blob { id, bytes: bytes.len() as u64, compressed }));
        }
        id
    }

    /// Writes a launch. A program can crash at any time, so it is flushed.
    pub(crate) fn launch(&self, launch: Launch) {
        self.with(|state| {
            state.append(&Record::Launch(launch));
            state.launches += 1;
            state.flush();
        });
    }

    pub(crate) fn not_captured(&self, what: impl Into<String>, reason: impl Into<String>) {
        self.with(|state| {
            state.append(&Record::NotCaptured { what: what.into(), reason: reason.into() });
            state.flush();
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn append(&mut self, record: &Record) {
        let body = encode(record);
        let Ok(len) = u32::try_from(body.len()) else {
            self.failed.get_or_insert_with(|| "a record has more than 4 GiB".into());
            return;
        };
        self.raw(&len.to_le_bytes());
        self.raw(&blake3::hash(&body).as_bytes()[..8]);
        self.raw(&body);
    }

    fn raw(&mut self, bytes: &[u8]) {
        if self.failed.is_none()
            && let Err(error) = self.file.write_all(bytes)
        {
            self.failed = Some(error.to_string());
        }
    }

    fn flush(&mut self) {
        if self.failed.is_none()
            && let Err(error) = self.file.flush()
        {
            self.failed = Some(error.to_string());
        }
    }
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CaptureFile({}, {} launches)", self.path.display(), self.launches())
    }
}
