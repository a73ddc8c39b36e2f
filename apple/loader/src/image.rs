//! A mapped Mach-O program: its segments and load commands.
//!
//! All offsets and sizes are checked against the file before use; addresses in the program's own tables are not.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

const MAGIC: u32 = 0xfeed_facf;
const X86_64: u32 = 0x0100_0007;
const HEADER: usize = 32;

const SEGMENT: u32 = 0x19;
const DYLD_INFO: u32 = 0x22;
const DYLD_INFO_ONLY: u32 = 0x8000_0022;
const MAIN: u32 = 0x8000_0028;

const SECTION: usize = 80;
const INITIALIZERS: u32 = 0x09;
const THREAD_LOCAL_DATA: u32 = 0x11;
const THREAD_LOCAL_ZEROES: u32 = 0x12;

/// Protection flag of executable segments.
const EXECUTE: u32 = 4;

/// A mapped program. It is never unmapped.
pub struct Image {
    file: Vec<u8>,
    /// Slide: the offset that is added to the program's addresses.
    pub slide: u64,
    /// Unslid addresses of the segments.
    pub segments: Vec<u64>,
    /// Offset of the entry point from the start of the file's first segment.
    entry: u64,
    text: u64,
    /// Initializers.
    pub initializers: Range<u64>,
    /// Template of thread-local variables.
    pub thread_locals: Range<u64>,
    tables: Vec<Range<usize>>,
}

/// A mapping and its file range.
struct Segment {
    address: u64,
    size: u64,
    file: Range<usize>,
    executable: bool,
}

impl Image {
    /// Reads and maps a program.
    pub fn load(path: &Path) -> Result<Self> {
        let file = std::fs::read(path).with_context(|| path.display().to_string())?;
        let mut image = Self {
            file,
            slide: 0,
            segments: Vec::new(),
            entry: 0,
            text: 0,
            initializers: 0..0,
            thread_locals: 0..0,
            tables: Vec::new(),
        };
        ensure!(image.number(0)? == MAGIC && image.number(4)? == X86_64, "not a Mach-O program for x86-64");
        let mut mapped = Vec::new();
        let (mut at, commands) = (HEADER, image.number(16)?);
        for _ in 0..commands {
            let (kind, size) = (image.number(at)?, image.number(at + 4)? as usize);
            match kind {
                SEGMENT => mapped.extend(image.segment(at)?),
                DYLD_INFO | DYLD_INFO_ONLY => image.tables(at)?,
                MAIN => image.entry = image.long(at + 8)?,
                _ => {}
            }
            at += size.max(8);
        }
        ensure!(
            !image.tables.is_empty(),
            "the program has no tables of what it binds; link it with -no_fixup_chains"
        );
        image.map(&mapped)?;
        Ok(image)
    }

    /// Rebase, bind, weak bind and lazy bind tables.
    pub fn table(&self, index: usize) -> &[u8] {
        self.tables.get(index).and_then(|range| self.file.get(range.clone())).unwrap_or_default()
    }

    /// The entry point.
    pub fn entry(&self) -> u64 {
        self.text + self.slide + self.entry
    }

    fn number(&self, at: usize) -> Result<u32> {
        let bytes = self.file.get(at..at + 4).context("the program's file is truncated")?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    }

    fn long(&self, at: usize) -> Result<u64> {
        Ok(u64::from(self.number(at)?) | u64::from(self.number(at + 4)?) << 32)
    }

    fn tables(&mut self, at: usize) -> Result<()> {
        for table in 0..4 {
            let begin = self.number(at + 8 + table * 8)? as usize;
            let size = self.number(at + 12 + table * 8)? as usize;
            self.tables.push(begin..begin + size);
        }
        Ok(())
    }

    fn segment(&mut self, at: usize) -> Result<Option<Segment>> {
        let (address, size) = (self.long(at + 24)?, self.long(at + 32)?);
        let (offset, length) = (self.long(at + 40)? as usize, self.long(at + 48)? as usize);
        self.segments.push(address);
        for index in 0..self.number(at + 64)? as usize {
            let section = at + 72 + index * SECTION;
            let begin = self.long(section + 32)?;
            let range = begin..begin + self.long(section + 40)?;
            match self.number(section + 64)? & 0xff {
                INITIALIZERS => self.initializers = range,
                // Zero-fill follows the data.
                THREAD_LOCAL_DATA | THREAD_LOCAL_ZEROES => {
                    let known = &mut self.thread_locals;
                    *known = if known.is_empty() {
                        range
                    } else {
                        known.start.min(range.start)..known.end.max(range.end)
                    };
                }
                _ => {}
            }
        }
        if length == 0 && offset == 0 && address == 0 {
            // `__PAGEZERO`, which stays inaccessible.
            return Ok(None);
        }
        if offset == 0 && length > 0 {
            self.text = address;
        }
        ensure!(
            offset.checked_add(length).is_some_and(|end| end <= self.file.len()),
            "a segment extends past the end of the file"
        );
        ensure!(length as u64 <= size, "a segment is larger in the file than in memory");
        let executable = self.number(at + 60)? & EXECUTE != 0;
        Ok(Some(Segment { address, size, file: offset..offset + length, executable }))
    }

    #[allow(unsafe_code)] // maps memory and fills it
    fn map(&mut self, segments: &[Segment]) -> Result<()> {
        let begin =
            segments.iter().map(|segment| segment.address).min().context("the program has no segments")?;
        let end = segments.iter().map(|segment| segment.address + segment.size).max().unwrap_or(begin);
        let size = usize::try_from(end - begin)?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping where the system likes it changes no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            bail!("no room for a program of {size} bytes");
        }
        self.slide = (base as u64).wrapping_sub(begin);
        for segment in segments {
            let source = &self.file[segment.file.clone()];
            let target = (segment.address.wrapping_add(self.slide)) as *mut u8;
            // SAFETY: the segment is within the mapping, which has room for all of them, and larger than what is in it.
            unsafe { target.copy_from_nonoverlapping(source.as_ptr(), source.len()) };
            if segment.executable {
                let access = libc::PROT_READ | libc::PROT_EXEC;
                // SAFETY: as above; Rust code does not write there any more.
                let status = unsafe { libc::mprotect(target.cast(), segment.size as usize, access) };
                ensure!(status == 0, "the system does not allow code here");
            }
        }
        Ok(())
    }
}
