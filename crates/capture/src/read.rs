//! [`Capture`]: a file of captured launches.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use elinvar_cache::decode;
use elinvar_driver::{Error, Label, PipelineOptions, Result};

use crate::format::{Argument, BlobId, GridRecord, HEAD, LONGEST, Launch, MAGIC, Record, SourceRecord};
use crate::write::CaptureFile;

/// Captured launches.
pub struct Capture {
    pub(crate) devices: Vec<(String, String)>,
    pub(crate) sources: Vec<SourceRecord>,
    pub(crate) kernels: Vec<(u32, String, PipelineOptions)>,
    /// Length and compressed contents.
    blobs: HashMap<BlobId, (u64, Vec<u8>)>,
    pub(crate) launches: Vec<Launch>,
    not_captured: Vec<NotCaptured>,
    is_complete: bool,
}

/// A launch in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Name of the kernel.
    pub kernel: String,
    /// Label of the launch.
    pub label: Option<Label>,
    /// The device's name.
    pub device: String,
    /// Bytes of the memory that it uses.
    pub bytes: u64,
    /// The error of its submission.
    pub error: Option<String>,
}

/// Work of the program that is not in the capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCaptured {
    /// Which.
    pub what: String,
    /// Why.
    pub reason: String,
}

impl Capture {
    /// Reads a file. One that ends within a record, because the program was killed, is read up to there.
    ///
    /// # Errors
    /// `Environment` if it cannot be read; `InvalidArgument` if it is no capture, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Environment(format!("`{}`: {error}", path.display())))?;
        Self::from_bytes(&bytes).map_err(|why| Error::invalid(format!("`{}`: {why}", path.display())))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = bytes.strip_prefix(MAGIC).ok_or("it is no capture of this version")?;
        let mut capture = Self {
            devices: Vec::new(),
            sources: Vec::new(),
            kernels: Vec::new(),
            blobs: HashMap::new(),
            launches: Vec::new(),
            not_captured: Vec::new(),
            is_complete: true,
        };
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let Some((head, behind)) = rest.split_at_checked(HEAD) else {
                capture.is_complete = false;
                break;
            };
            let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if len > LONGEST {
                return Err(format!("a record of {len} bytes at byte {at}"));
            }
            let Some((body, behind)) = behind.split_at_checked(len) else {
                capture.is_complete = false;
                break;
            };
            if blake3::hash(body).as_bytes()[..8] != head[4..] {
                return Err(format!("the record at byte {at} is damaged"));
            }
            let record = decode(body).ok_or_else(|| format!("the record at byte {at} cannot be read"))?;
            capture.add(record).map_err(|why| format!("the record at byte {at}: {why}"))?;
            rest = behind;
        }
        Ok(capture)
    }

    fn add(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Device { kind, name } => self.devices.push((kind, name)),
            Record::Source(source) => self.sources.push(source),
            Record::Kernel { source, name, options } => {
                self.sources.get(source as usize).ok_or("a source that is absent")?;
                self.kernels.push((source, name, options));
            }
            Record::Blob { id, bytes, compressed } => {
                self.blobs.insert(id, (bytes, compressed.into_vec()));
            }
            Record::Launch(launch) => {
                self.check(&launch)?;
                self.launches.push(launch);
            }
            Record::NotCaptured { what, reason } => self.not_captured.push(NotCaptured { what, reason }),
        }
        Ok(())
    }

    /// Rejects a launch that names what is absent.
    fn check(&self, launch: &Launch) -> Result<(), String> {
        self.devices.get(launch.device as usize).ok_or("a device that is absent")?;
        self.kernels.get(launch.kernel as usize).ok_or("a kernel that is absent")?;
        for slice in &launch.slices {
            for id in [Some(slice.before), slice.after].iter().flatten() {
                let (bytes, _) = self.blobs.get(id).ok_or("contents that are absent")?;
                if *bytes != slice.bytes || slice.offset.checked_add(slice.bytes).is_none() {
                    return Err("contents of another length".into());
                }
            }
            if slice.memory as usize >= launch.slices.len() {
                return Err("a memory that is absent".into());
            }
        }
        let named = launch.arguments.iter().filter_map(|argument| match argument {
            Argument::Slice(slice) => Some(*slice),
            _ => None,
        });
        let counts = match launch.grid {
            GridRecord::Indirect(slice) => Some(slice),
            GridRecord::Threads(_) => None,
        };
        let used = launch.uses.iter().map(|used| used.slice);
        match named.chain(counts).chain(used).find(|slice| *slice as usize >= launch.slices.len()) {
            Some(slice) => Err(format!("slice {slice} is absent")),
            None => Ok(()),
        }
    }

    /// The launches, in the order in which they have ended.
    pub fn launches(&self) -> Vec<Captured> {
        let captured = self.launches.iter().map(|launch| Captured {
            kernel: self.kernels[launch.kernel as usize].1.clone(),
            label: launch.label.clone(),
            device: self.devices[launch.device as usize].1.clone(),
            bytes: launch.slices.iter().map(|slice| slice.bytes).sum(),
            error: launch.error.clone(),
        });
        captured.collect()
    }

    /// Work that is not in the file.
    pub fn not_captured(&self) -> &[NotCaptured] {
        &self.not_captured
    }

    /// Whether the file ends with a whole record. If not, the program was killed, and its last launch is missing.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Writes the launch of this number to a file of its own, with its kernel and contents.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such launch, the file exists, or contents are damaged; `Environment` if it cannot be written.
    pub fn save_one(&self, launch: usize, path: impl AsRef<Path>) -> Result<()> {
        let count = self.launches.len();
        let found = self.launches.get(launch).cloned();
        let mut launch = found.ok_or_else(|| Error::invalid(format!("launch {launch} of {count}")))?;
        let file: Arc<CaptureFile> = CaptureFile::create(path)?;
        let (kind, name) = &self.devices[launch.device as usize];
        launch.device = file.device(kind, name);
        let (source, name, options) = &self.kernels[launch.kernel as usize];
        launch.kernel = file.kernel(&self.sources[*source as usize], name, options);
        for slice in &launch.slices {
            file.blob(&self.contents(&slice.before)?);
            slice.after.map_or(Ok(()), |after| self.contents(&after).map(|bytes| _ = file.blob(&bytes)))?;
        }
        file.launch(launch);
        file.flush()
    }

    /// Contents of memory.
    ///
    /// # Errors
    /// `InvalidArgument` if they are damaged.
    pub(crate) fn contents(&self, id: &BlobId) -> Result<Vec<u8>> {
        let damaged = || Error::invalid("contents in the capture are damaged");
        let (bytes, compressed) = self.blobs.get(id).ok_or_else(damaged)?;
        let len = usize::try_from(*bytes).map_err(|_| damaged())?;
        // A block of LZ4 is at most 255 times as long as its compressed form.
        if len > compressed.len().saturating_mul(256) {
            return Err(damaged());
        }
        let contents = lz4_flex::block::decompress(compressed, len).map_err(|_| damaged())?;
        match contents.len() == len && blake3::hash(&contents).as_bytes() == id {
            true => Ok(contents),
            false => Err(damaged()),
        }
    }
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Capture({} launches, {} not captured)", self.launches.len(), self.not_captured.len())
    }
}
