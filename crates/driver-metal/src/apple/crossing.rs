//! Copies between two devices: the route, and its command buffers.
//!
//! A device reads private memory of another device of its peer group as the source of a blit, through a *remote view*. Devices without a common
//! group share host pages. If neither applies directly, the source's device first copies to an *intermediate* buffer, which the target's
//! device then copies from. Each half is a command buffer of the respective device, and the second starts when the first has succeeded: a copy
//! on a queue of either device is one or two operations of that queue.
//!
//! The intermediate memory is allocated for each copy, with its size, and freed with it.

use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{Error, HostBlock, MemorySlice, Reach, Result, Storage};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer as _, MTLCommandQueue, MTLDevice as _, MTLResourceOptions};

use super::buffer::Buffer;
use super::core::Core;
use super::encoding::{BufferInfo, CommandBuffer, Encoding, Place, WORD};
use super::host;
use super::memory::{MetalMemory, located};

/// The route between two devices.
pub(super) fn reach(one: &Core, other: &Core) -> Reach {
    // iOS, which lacks `peerGroupID`, has one device.
    match std::ptr::eq(one, other) || are_peers(one, other) {
        true => Reach::Peer,
        false => Reach::Staged,
    }
}

/// Whether the two are in one peer group; 0 means none.
fn are_peers(one: &Core, other: &Core) -> bool {
    let group = one.device.peerGroupID();
    group != 0 && group == other.device.peerGroupID()
}

/// Whether a copy is between two devices of this driver.
pub(super) fn crosses(source: &MemorySlice, target: &MemorySlice) -> bool {
    let ends = memory(source).zip(memory(target));
    ends.is_some_and(|(source, target)| !Arc::ptr_eq(source.core(), target.core()))
}

fn memory(slice: &MemorySlice) -> Option<&MetalMemory> {
    let memory: &dyn Any = &*slice.memory;
    memory.downcast_ref()
}

/// Intermediate memory, filled by the source's device.
pub(super) struct Between {
    /// View of the target's device.
    window: Buffer,
    /// View of the source's device.
    own: Buffer,
}

/// The command buffer of the next half of a copy, as command `command` of its submission, on a queue of `core`; and whether it is the last
/// half. Both slices have the same length.
pub(super) fn half(
    (core, queue): (&Core, &ProtocolObject<dyn MTLCommandQueue>),
    (source, target): (&MemorySlice, &MemorySlice),
    command: usize,
    info: &mut BufferInfo,
) -> Result<(CommandBuffer, bool)> {
    let none = || Error::invalid("the memory belongs to another driver");
    let (from, to) = (memory(source).ok_or_else(none)?.core(), memory(target).ok_or_else(none)?.core());
    if ![from, to].into_iter().any(|end| std::ptr::eq(&raw const **end, core)) {
        let name = &core.caps.name;
        return Err(Error::invalid(format!("neither side of the copy belongs to Metal device `{name}`")));
    }
    let (first, source_at) = located(from, source)?;
    let (last, target_at) = located(to, target)?;
    let copy = Copy {
        from,
        source: Place { buffer: first, offset: source_at },
        to,
        target: Place { buffer: last, offset: target_at },
        len: source.len as usize,
    };
    let direct =
        are_peers(from, to) && source.memory.storage() == Storage::Private && source_at.is_multiple_of(WORD);
    let between = info.between.take();
    let is_last = between.is_some() || direct;
    let doer = if is_last { to } else { from };
    doer.expect_present()?;
    let is_own = std::ptr::eq(&raw const **doer, core);
    let queue = if is_own { queue } else { &*doer.queue };
    let mut encoding = Encoding::new(doer, queue, info, false);
    encoding.command = command;
    let between = match is_last {
        true => copy.fetch(&mut encoding, between).map(|()| None)?,
        false => Some(copy.bring(&mut encoding)?),
    };
    let buffer = encoding.finish();
    (info.between, info.other) = (between, (!is_own).then(|| doer.clone()));
    let buffer = buffer.ok_or_else(|| Error::Environment("a copy of no bytes between devices".into()))?;
    Ok((buffer, is_last))
}

/// A copy between two devices, of at least one byte.
struct Copy<'a> {
    from: &'a Arc<Core>,
    source: Place<'a>,
    to: &'a Arc<Core>,
    target: Place<'a>,
    len: usize,
}

impl Copy<'_> {
    /// The first half: to memory that the target's device can access.
    fn bring(&self, encoding: &mut Encoding<'_>) -> Result<Between> {
        let between = match are_peers(self.from, self.to) {
            true => {
                let own = self.from.buffer(self.len as u64, MTLResourceOptions::StorageModePrivate)?;
                Between { window: self.view(&own)?, own }
            }
            false => Pages::between(self.from, self.to, self.len as u64)?,
        };
        encoding.copy(self.source, Place { buffer: &between.own, offset: 0 }, self.len)?;
        Ok(between)
    }

    /// The second half: from there, or from the source directly.
    fn fetch(&self, encoding: &mut Encoding<'_>, between: Option<Between>) -> Result<()> {
        let (window, offset) = match between {
            Some(Between { window, own }) => {
                encoding.keep(own);
                (window, 0)
            }
            None => (self.view(self.source.buffer)?, self.source.offset),
        };
        encoding.keep(window.clone());
        let window = Place { buffer: &window, offset };
        let words = [self.target.offset, self.len].iter().all(|bytes| bytes.is_multiple_of(WORD));
        if words || !are_peers(self.from, self.to) {
            return encoding.copy(window, self.target, self.len);
        }
        // Kernels cannot access a remote view: copy whole words to a buffer, and single bytes from there.
        let whole = self.len.next_multiple_of(WORD);
        let near = encoding.transient(whole, MTLResourceOptions::StorageModePrivate)?;
        let near = Place { buffer: &near, offset: 0 };
        encoding.copy(window, near, whole)?;
        encoding.copy(near, self.target, self.len)
    }

    fn view(&self, buffer: &Buffer) -> Result<Buffer> {
        let view = buffer.newRemoteBufferViewForDevice(&self.to.device).map(Buffer);
        view.ok_or_else(|| {
            let (from, to) = (&self.from.caps.name, &self.to.caps.name);
            Error::Environment(format!(
                "Metal cannot create a view for device `{to}` of memory of device `{from}`"
            ))
        })
    }
}

/// Host pages from the system: Metal does not accept memory of an allocator.
struct Pages {
    first: NonNull<c_void>,
    bytes: usize,
}

#[allow(unsafe_code)] // memory by its address
// SAFETY: it owns the pages; only devices access the contents.
unsafe impl Send for Pages {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Pages {}

#[allow(unsafe_code)] // as above
impl Pages {
    fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes.max(1).checked_next_multiple_of(host::page_size())?).ok()?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
        // SAFETY: maps new pages at an address chosen by the system.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        let first = NonNull::new(first).filter(|first| first.as_ptr() != libc::MAP_FAILED)?;
        Some(Self { first, bytes })
    }

    /// The same pages for both devices.
    fn between(from: &Arc<Core>, to: &Arc<Core>, bytes: u64) -> Result<Between> {
        let none = || from.out_of_memory(bytes);
        let pages = Arc::new(Self::new(bytes).ok_or_else(none)?);
        let on = |core| -> Result<Buffer> {
            let (address, bytes) = (pages.first.cast(), pages.bytes as u64);
            let block = HostBlock { address, bytes, owner: Box::new(pages.clone()) };
            // SAFETY: the pages live as long as their owner. Only the halves of the copy use them, one after the other.
            Ok(unsafe { MetalMemory::wrap(core, block) }?.into_buffer())
        };
        Ok(Between { own: on(from)?, window: on(to)? })
    }
}

impl Drop for Pages {
    #[allow(unsafe_code)] // as above
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; no other code has the address.
        unsafe { libc::munmap(self.first.as_ptr(), self.bytes) };
    }
}
