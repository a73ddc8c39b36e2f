//! [`Segment`]: the memory that the members of a communicator share.
//!
//! Its content begins as zeros, which is a valid state, so that members may map it in any order. Every value is an atomic integer: another process may write
//! anything at any time, which must not be undefined behavior here, and positions that make no sense are failures.
//!
//! | part | content |
//! |---|---|
//! | head | the first failure with its text, and the result of a vote on who is left |
//! | members | for each rank whether it has joined, has left and votes, and how far it is |
//! | channels | for each pair of ranks a queue of bytes with one writer and one reader |

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use elinvar_driver::{Error, Result};

/// Maximum number of members.
pub(crate) const MAX_SIZE: u32 = 1024;
/// Maximum length of the text of a failure in bytes.
const MAX_TEXT: usize = 1000;
/// Target for the total size of all channels in bytes. Pages are allocated when they are first used.
const CHANNEL_BYTES: u64 = 512 << 20;

/// What all members share.
#[repr(C)]
pub(crate) struct Head {
    /// 1 plus the rank that has failed first; 0 if none has.
    failed: AtomicU32,
    /// Length of the text plus 1, when it is complete.
    text_len: AtomicU32,
    text: [AtomicU8; MAX_TEXT],
    /// 0 before the vote, 1 while it is written, 2 with its result.
    pub(crate) vote: AtomicU32,
    _align: [AtomicU32; 3],
    /// The ranks that are left, a bit each.
    pub(crate) left_over: [AtomicU64; MAX_SIZE as usize / 64],
}

/// What one rank tells the others.
#[repr(C, align(64))]
pub(crate) struct Line {
    /// 1 when it takes part, 2 when it no longer does.
    pub(crate) state: AtomicU32,
    /// Its process.
    pub(crate) pid: AtomicU32,
    /// Whether it wants to go on with who is left.
    pub(crate) votes: AtomicU32,
    /// Number of collectives that it has begun.
    pub(crate) begun: AtomicU64,
    /// Bytes that it has received.
    pub(crate) moved: AtomicU64,
}

/// Positions of a channel, of the writer and of the reader.
#[repr(C, align(64))]
struct Position(AtomicU64);

/// Shared memory, and for processes the file, in which each rank keeps a lock while it lives.
pub(crate) struct Segment {
    size: u32,
    capacity: u64,
    address: NonNull<u8>,
    bytes: usize,
    file: Option<File>,
}

#[allow(unsafe_code)] // the address of a mapping that the value owns
// SAFETY: all content is atomic.
unsafe impl Send for Segment {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Segment {}

const LINES: usize = size_of::<Head>().next_multiple_of(64);

impl Segment {
    /// Memory for members in this process.
    pub(crate) fn anonymous(size: u32) -> Result<Self> {
        Self::map(size, None)
    }

    /// Memory for processes that open the same file, which is created if it does not exist.
    pub(crate) fn open(path: &Path, size: u32) -> Result<Self> {
        let failed = |error: std::io::Error| Error::Environment(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        #[allow(unsafe_code)] // a C function
        // SAFETY: takes nothing.
        let user = unsafe { libc::geteuid() };
        if found.uid() != user || !found.is_file() {
            return Err(Error::Environment(format!("{}: it belongs to another user", path.display())));
        }
        let bytes = Self::layout(size).1;
        if found.len() != 0 && found.len() != bytes {
            return Err(Error::invalid(format!(
                "{}: it is shared memory of another size; all ranks must state the same number of members",
                path.display()
            )));
        }
        file.set_len(bytes).map_err(failed)?;
        Self::map(size, Some(file))
    }

    /// Capacity of a channel, and the size of the whole.
    fn layout(size: u32) -> (u64, u64) {
        let channels = u64::from(size) * u64::from(size);
        let each = (CHANNEL_BYTES / channels.max(1)).clamp(4 << 10, 1 << 20);
        let capacity = 1 << each.ilog2();
        let lines = LINES as u64 + u64::from(size) * size_of::<Line>() as u64;
        (capacity, (lines + channels * (128 + capacity)).next_multiple_of(4096))
    }

    #[allow(unsafe_code)] // a C function
    fn map(size: u32, file: Option<File>) -> Result<Self> {
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(Error::invalid(format!(
                "a communicator of {size} members: 1 to {MAX_SIZE} are allowed"
            )));
        }
        let (capacity, bytes) = Self::layout(size);
        let bytes =
            usize::try_from(bytes).map_err(|_| Error::OutOfMemory { requested: bytes, available: 0 })?;
        let (flags, descriptor): (c_int, c_int) = match &file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which the value owns.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, descriptor, 0) };
        let none = Error::OutOfMemory { requested: bytes as u64, available: 0 };
        let address = NonNull::new(address.cast()).filter(|_| address != libc::MAP_FAILED).ok_or(none)?;
        Ok(Self { size, capacity, address, bytes, file })
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    #[allow(unsafe_code)] // reads the mapping
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: the mapping begins with it; its fields are atomic, and every content is valid.
        unsafe { self.address.cast().as_ref() }
    }

    #[allow(unsafe_code)] // as above
    pub(crate) fn line(&self, rank: u32) -> &Line {
        assert!(rank < self.size, "rank {rank} of {}", self.size);
        let offset = LINES + rank as usize * size_of::<Line>();
        // SAFETY: within the mapping; as above.
        unsafe { self.address.add(offset).cast().as_ref() }
    }

    /// The queue from one rank to another.
    #[allow(unsafe_code)] // as above
    pub(crate) fn channel(&self, from: u32, to: u32) -> Channel<'_> {
        assert!(from < self.size && to < self.size, "ranks {from} and {to} of {}", self.size);
        let number = from as usize * self.size as usize + to as usize;
        let lines = LINES + self.size as usize * size_of::<Line>();
        let offset = lines + number * (128 + self.capacity as usize);
        // SAFETY: within the mapping.
        let begin = unsafe { self.address.add(offset) };
        // SAFETY: as for `head`.
        let (written, read) =
            unsafe { (begin.cast::<Position>().as_ref(), begin.add(64).cast::<Position>().as_ref()) };
        // SAFETY: within the mapping.
        let data = unsafe { begin.add(128) };
        Channel { written: &written.0, read: &read.0, data, capacity: self.capacity, _segment: self }
    }

    /// Records the first failure; later ones have no effect.
    pub(crate) fn fail(&self, rank: u32, reason: &str) {
        let head = self.head();
        if head.failed.compare_exchange(0, rank + 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let mut len = reason.len().min(MAX_TEXT);
        while !reason.is_char_boundary(len) {
            len -= 1;
        }
        for (to, from) in head.text.iter().zip(&reason.as_bytes()[..len]) {
            to.store(*from, Ordering::Relaxed);
        }
        head.text_len.store(len as u32 + 1, Ordering::Release);
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<(u32, String)> {
        let head = self.head();
        let rank = head.failed.load(Ordering::Acquire).checked_sub(1)?;
        let mut len = head.text_len.load(Ordering::Acquire);
        // Whoever writes it may have ended in between.
        for _ in 0..10_000 {
            if len > 0 {
                break;
            }
            std::thread::yield_now();
            len = head.text_len.load(Ordering::Acquire);
        }
        let len = (len as usize).saturating_sub(1).min(MAX_TEXT);
        let bytes: Vec<u8> = head.text[..len].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        let text =
            if len == 0 { "no reason is known".into() } else { String::from_utf8_lossy(&bytes).into_owned() };
        Some((rank, text))
    }

    /// Keeps the lock of a rank until the file is closed, which the system does when the process ends, however it ends.
    ///
    /// # Errors
    /// `InvalidArgument` if another process has the rank.
    pub(crate) fn take_rank(&self, rank: u32) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        match lock(file, rank, LockCall::Set) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(Error::invalid(format!("rank {rank} is that of another process as well ({error})")))
            }
        }
    }

    /// Whether the process of a rank that has joined has ended.
    pub(crate) fn has_ended(&self, rank: u32) -> bool {
        let Some(file) = &self.file else { return false };
        matches!(lock(file, rank, LockCall::Get), Ok(false))
    }
}

impl Drop for Segment {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's, and nothing refers to it.
        let _unmapped = unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

enum LockCall {
    /// Takes the lock without waiting.
    Set,
    /// Asks whether another file has it.
    Get,
}

/// Uses the lock of one byte, which belongs to the open file: a forked child that runs another program does not inherit it.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // C functions
fn lock(file: &File, rank: u32, call: LockCall) -> std::io::Result<bool> {
    // SAFETY: plain numbers, for which zero is valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = libc::F_WRLCK as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (i64::from(rank), 1);
    let command = match call {
        LockCall::Set => libc::F_OFD_SETLK,
        LockCall::Get => libc::F_OFD_GETLK,
    };
    // SAFETY: reads and writes the structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &mut range) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

#[cfg(not(target_os = "linux"))]
fn lock(_file: &File, _rank: u32, _call: LockCall) -> std::io::Result<bool> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// A queue of bytes with one writer and one reader.
pub(crate) struct Channel<'s> {
    written: &'s AtomicU64,
    read: &'s AtomicU64,
    data: NonNull<u8>,
    capacity: u64,
    _segment: &'s Segment,
}

impl Channel<'_> {
    /// Bytes that wait for the reader; `None` if the positions make no sense.
    fn filled(&self) -> Option<u64> {
        let (written, read) = (self.written.load(Ordering::Acquire), self.read.load(Ordering::Acquire));
        written.checked_sub(read).filter(|filled| *filled <= self.capacity)
    }

    /// Writes as many bytes as there is room for. Returns their number; `None` if the positions make no sense.
    #[allow(unsafe_code)] // writes the mapping
    pub(crate) fn write(&self, bytes: &[u8]) -> Option<usize> {
        let room = self.capacity - self.filled()?;
        let at = self.written.load(Ordering::Relaxed);
        let count = (room as usize).min(bytes.len());
        let offset = (at % self.capacity) as usize;
        let first = count.min(self.capacity as usize - offset);
        // SAFETY: both parts are within the data, and the reader does not read them before the position tells it to. A process that does not keep to this
        // can read wrong bytes, which have no invariants.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data.add(offset).as_ptr(), first);
            std::ptr::copy_nonoverlapping(bytes[first..].as_ptr(), self.data.as_ptr(), count - first);
        }
        self.written.store(at + count as u64, Ordering::Release);
        Some(count)
    }

    /// Reads as many bytes as there are, in multiples of `unit`, into the begin of `bytes`. Returns their number; `None` if the positions make no sense.
    #[allow(unsafe_code)] // reads the mapping
    pub(crate) fn read(&self, bytes: &mut [u8], unit: usize) -> Option<usize> {
        let count = (self.filled()? as usize).min(bytes.len()) / unit * unit;
        let at = self.read.load(Ordering::Relaxed);
        let offset = (at % self.capacity) as usize;
        let first = count.min(self.capacity as usize - offset);
        // SAFETY: as for `write`.
        unsafe {
            std::ptr::copy_nonoverlapping(self.data.add(offset).as_ptr(), bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(self.data.as_ptr(), bytes[first..].as_mut_ptr(), count - first);
        }
        self.read.store(at + count as u64, Ordering::Release);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_keeps_the_bytes_in_order() {
        let segment = Segment::anonymous(3).unwrap();
        let channel = segment.channel(2, 1);
        let capacity = segment.capacity as usize;
        let data: Vec<u8> = (0..3 * capacity + 17).map(|i| (i * 7 + i / 251) as u8).collect();
        let (mut sent, mut received) = (0, Vec::new());
        let mut step = 1;
        while received.len() < data.len() {
            sent += channel.write(&data[sent..data.len().min(sent + step)]).unwrap();
            let mut part = vec![0; step / 2 + 1];
            let count = channel.read(&mut part, 1).unwrap();
            received.extend_from_slice(&part[..count]);
            step = step * 3 % 100_003 + 1;
        }
        assert!(received == data);
        assert_eq!(channel.read(&mut [0; 4], 1), Some(0));
        assert_eq!(channel.write(&vec![1; 2 * capacity]), Some(capacity), "it is full");
        assert_eq!(channel.read(&mut [0; 7], 4), Some(4), "whole units");
        channel.read.store(u64::MAX, Ordering::Relaxed);
        assert_eq!((channel.write(&[1]), channel.read(&mut [0], 1)), (None, None), "nonsense is a failure");
    }

    #[test]
    fn the_first_failure_is_kept() {
        let segment = Segment::anonymous(2).unwrap();
        assert_eq!(segment.failure(), None);
        segment.fail(1, &"é".repeat(MAX_TEXT));
        segment.fail(0, "later");
        let (rank, text) = segment.failure().unwrap();
        assert_eq!((rank, text.len()), (1, MAX_TEXT));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_rank_is_held_by_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("segment");
        let (one, two) = (Segment::open(&path, 4).unwrap(), Segment::open(&path, 4).unwrap());
        one.take_rank(2).unwrap();
        assert!(two.take_rank(2).unwrap_err().to_string().contains("rank 2"));
        assert!(!two.has_ended(2) && two.has_ended(3));
        one.line(2).begun.store(7, Ordering::Release);
        assert_eq!(two.line(2).begun.load(Ordering::Acquire), 7);
        drop(one);
        assert!(two.has_ended(2));
        assert!(Segment::open(&path, 5).is_err_and(|error| error.to_string().contains("another size")));
        assert!(Segment::anonymous(0).is_err() && Segment::anonymous(MAX_SIZE + 1).is_err());
    }
}
