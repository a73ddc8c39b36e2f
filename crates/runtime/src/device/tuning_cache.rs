//! The tuning cache: a file that passes measurements of a device to other processes. It holds measured threadgroup sizes, the
//! buffers' memory use, and the state of the circuit breaker.
//!
//! The file has two lines: a header with version, device and checksum, and the content. It is replaced atomically. A file that is
//! damaged, or belongs to another version or device, is rejected before any of it is used.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use elinvar_driver::{Dim3, Error, Result, Storage};
use serde::{Deserialize, Serialize};

use crate::Device;
use crate::launch::tune::Measured;
use crate::recovery::BreakerMemory;

/// Version of the file format.
const FORMAT: u32 = 1;

/// Summary of a restored tuning cache; see [`Device::restore_tuning`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuningCache {
    /// Number of restored threadgroup sizes.
    pub sizes: usize,
    /// Number of memory blocks that were allocated in advance.
    pub blocks: u64,
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    version: String,
    device: String,
    /// Checksum of the other fields and the body.
    checksum: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Body {
    sizes: Vec<Size>,
    blocks: Vec<Blocks>,
    breaker: Kept,
}

/// State of the circuit breaker.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    failures: u32,
    trips: u32,
    /// Milliseconds since the Unix epoch; 0 if it is not open.
    open_until: u64,
}

impl Kept {
    fn new(memory: BreakerMemory, now: Duration) -> Self {
        let BreakerMemory { failures, trips, open_for } = memory;
        let open_until = if open_for.is_zero() { 0 } else { (now + open_for).as_millis() as u64 };
        Self { failures, trips, open_until }
    }

    fn memory(&self, now: Duration) -> BreakerMemory {
        let open_for = Duration::from_millis(self.open_until).saturating_sub(now);
        BreakerMemory { failures: self.failures, trips: self.trips, open_for }
    }
}

/// Time since the Unix epoch, which processes share.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[derive(Serialize, Deserialize)]
struct Size {
    kernel: String,
    grid: [u32; 3],
    group: [u32; 3],
    ns: u64,
}

#[derive(Serialize, Deserialize)]
struct Blocks {
    storage: Mode,
    bytes: u64,
    count: u64,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum Mode {
    Shared,
    Private,
    Managed,
}

impl Device {
    /// Writes the tuning cache of this device to a file, replacing it atomically: the sizes found by [`crate::Kernel::tune`], the
    /// maximum number of memory blocks in use by size, and the state of the circuit breaker.
    ///
    /// # Errors
    /// `Environment` if the file cannot be written; an existing file is then unchanged.
    pub fn save_tuning(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let failed = |error: &dyn fmt::Display| {
            Error::Environment(format!("cannot write the tuning cache {}: {error}", path.display()))
        };
        let body = serde_json::to_string(&self.learned()).map_err(|error| failed(&error))?;
        let (version, device) = (env!("CARGO_PKG_VERSION").to_owned(), self.identity());
        let checksum = checksum(FORMAT, &version, &device, &body);
        let head = Head { format: FORMAT, version, device, checksum };
        let head = serde_json::to_string(&head).map_err(|error| failed(&error))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| failed(&error))?;
        let written = write!(file, "{head}\n{body}\n").and_then(|()| file.as_file().sync_all());
        written.map_err(|error| failed(&error))?;
        file.persist(path).map_err(|error| failed(&error.error))?;
        Ok(())
    }

    /// Restores a tuning cache of this device, written by any process. Launches without a threadgroup size then use the measured
    /// one, the pool preallocates blocks within its limits, and the circuit breaker stays open for as long as it would have in
    /// the other process.
    ///
    /// # Errors
    /// `Environment` if the file cannot be read or is damaged; `Unsupported` if it belongs to another version or device;
    /// `OutOfMemory` for the blocks. In the first two cases nothing is restored. The file is never changed.
    pub fn restore_tuning(&self, path: impl AsRef<Path>) -> Result<TuningCache> {
        let body = self.read_learned(path.as_ref())?;
        for size in &body.sizes {
            let measured = Measured { group: Dim3::from(size.group), ns: size.ns };
            self.tuned().insert(size.kernel.as_str().into(), size.grid, measured);
        }
        self.breaker().remember(body.breaker.memory(since_1970()), Instant::now());
        let mut learned = TuningCache { sizes: body.sizes.len(), blocks: 0 };
        for Blocks { storage, bytes, count } in &body.blocks {
            learned.blocks += self.pool().warm((*storage).into(), *bytes, *count)?;
        }
        Ok(learned)
    }

    fn read_learned(&self, path: &Path) -> Result<Body> {
        let shown = path.display();
        let text = std::fs::read(path)
            .map_err(|error| Error::Environment(format!("cannot read the tuning cache {shown}: {error}")))?;
        let damaged = |why: &dyn fmt::Display| Error::Environment(format!("{shown} is damaged: {why}"));
        let text = String::from_utf8(text).map_err(|error| damaged(&error))?;
        let (head, body) = text.split_once('\n').ok_or_else(|| damaged(&"it ends in its first line"))?;
        let body = body.strip_suffix('\n').ok_or_else(|| damaged(&"its end is missing"))?;
        let head: Head = serde_json::from_str(head).map_err(|error| damaged(&error))?;
        if checksum(head.format, &head.version, &head.device, body) != head.checksum {
            return Err(damaged(&"its checksum is wrong"));
        }
        let version = env!("CARGO_PKG_VERSION");
        if head.format != FORMAT || head.version != version {
            let (format, theirs) = (head.format, head.version);
            return Err(Error::unsupported(format!(
                "{shown}: written by version {theirs} in format {format}; this build is version {version} and reads format {FORMAT}"
            )));
        }
        if head.device != self.identity() {
            let (theirs, ours) = (head.device, self.identity());
            return Err(Error::unsupported(format!(
                "{shown}: written for device `{theirs}`; this device is `{ours}`"
            )));
        }
        serde_json::from_str(body).map_err(|error| damaged(&error))
    }

    fn learned(&self) -> Body {
        let size = |(kernel, grid, measured): (std::sync::Arc<str>, [u32; 3], Measured)| Size {
            kernel: kernel.to_string(),
            grid,
            group: measured.group.to_array(),
            ns: measured.ns,
        };
        let blocks = |(storage, bytes, count)| Some(Blocks { storage: Mode::of(storage)?, bytes, count });
        Body {
            sizes: self.tuned().list().into_iter().map(size).collect(),
            blocks: self.pool().most_given().into_iter().filter_map(blocks).collect(),
            breaker: Kept::new(self.breaker().memory(Instant::now()), since_1970()),
        }
    }

    /// Identity of the device: measurements of another identity are not used.
    pub(crate) fn identity(&self) -> String {
        let caps = self.caps();
        let bits = caps.limits.vector_bits.map_or_else(String::new, |bits| format!(", {bits} bits"));
        format!(
            "{} {}, {} units of {} threads{bits}",
            caps.kind.name(),
            caps.name,
            caps.limits.compute_units,
            caps.limits.simdgroup_width
        )
    }
}

fn checksum(format: u32, version: &str, device: &str, body: &str) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(&format.to_le_bytes());
    for text in [version, device, body] {
        hash.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    hash.finalize().to_hex().to_string()
}

impl Mode {
    /// `None` for a mode that this version of the format lacks.
    fn of(storage: Storage) -> Option<Self> {
        match storage {
            Storage::Shared => Some(Self::Shared),
            Storage::Private => Some(Self::Private),
            Storage::Managed => Some(Self::Managed),
            _ => None,
        }
    }
}

impl From<Mode> for Storage {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Shared => Self::Shared,
            Mode::Private => Self::Private,
            Mode::Managed => Self::Managed,
        }
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    fn file(format: u32, version: &str, device: &str, body: &str) -> String {
        let checksum = checksum(format, version, device, body);
        let head = Head { format, version: version.into(), device: device.into(), checksum };
        format!("{}\n{body}\n", serde_json::to_string(&head).unwrap())
    }

    #[test]
    fn other_versions_formats_and_devices_are_refused() {
        let cpu = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let device = Device::new(cpu);
        let (folder, own, version) =
            (tempfile::tempdir().unwrap(), device.identity(), env!("CARGO_PKG_VERSION"));
        let path = folder.path().join("learned");
        let read = |text: String| {
            std::fs::write(&path, &text).unwrap();
            let result = device.restore_tuning(&path);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it stays");
            result
        };
        let body = r#"{"sizes":[{"kernel":"k","grid":[1,1,1],"group":[2,1,1],"ns":1}],"blocks":[],"breaker":{"failures":0,"trips":0,"open_until":0}}"#;
        for (text, reason) in [
            (
                file(FORMAT, "0.0.9", &own, body),
                "written by version 0.0.9 in format 1; this build is version",
            ),
            (file(FORMAT + 1, version, &own, body), "in format 2; this build is version"),
            (
                file(FORMAT, version, "cpu another, 7 units", body),
                "written for device `cpu another, 7 units`; this device is",
            ),
        ] {
            let refused = read(text);
            assert!(
                matches!(&refused, Err(Error::Unsupported(text)) if text.contains(reason)),
                "{refused:?}"
            );
        }
        let refused = read(file(FORMAT, version, &own, r#"{"sizes":1}"#));
        assert!(
            matches!(&refused, Err(Error::Environment(text)) if text.contains("is damaged")),
            "{refused:?}"
        );
        assert!(device.tuned().list().is_empty());
        assert_eq!(read(file(FORMAT, version, &own, body)).unwrap(), TuningCache { sizes: 1, blocks: 0 });
        assert_eq!(device.tuned().list().len(), 1);
    }
    #[test]
    fn a_file_takes_no_more_memory_than_the_pool_keeps() {
        let cpu = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let device = Device::new(cpu);
        let limits = crate::PoolLimits { idle_bytes: 1 << 20, ..device.pool().limits() };
        device.pool().set_limits(limits);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learned");
        for bytes in [0, 1, 1 << 19] {
            let body = format!(
                r#"{{"sizes":[],"blocks":[{{"storage":"Shared","bytes":{bytes},"count":{}}}],"breaker":{{"failures":0,"trips":0,"open_until":0}}}}"#,
                u64::MAX
            );
            std::fs::write(&path, file(FORMAT, env!("CARGO_PKG_VERSION"), &device.identity(), &body))
                .unwrap();
            let learned = device.restore_tuning(&path).unwrap();
            let idle = device.pool().stats().idle_bytes;
            assert!(learned.blocks > 0 && idle > 1 << 18 && idle <= 1 << 20, "{learned:?}, {idle} bytes");
            device.pool().trim(0);
        }
    }
}
