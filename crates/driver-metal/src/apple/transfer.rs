//! [`Transfer`]: blits on behalf of the host, through a staging buffer, synchronous.

use elinvar_driver::Result;
use objc2::rc::autoreleasepool;
use objc2_metal::{MTLCommandBuffer as _, MTLResourceOptions};

use super::buffer::Buffer;
use super::core::{self, Core};
use super::encoding::{BufferInfo, Encoding, Place};
use super::failure;

/// Size of the staging buffer in bytes.
const STAGING: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Transfer {
    /// Created on first use.
    staging: Option<Buffer>,
}

impl Transfer {
    fn staging(&mut self, core: &Core) -> Result<Buffer> {
        if let Some(staging) = &self.staging {
            return Ok(staging.clone());
        }
        let made = core.buffer(STAGING as u64, MTLResourceOptions::StorageModeShared)?;
        Ok(self.staging.insert(made).clone())
    }

    /// Copies bytes from `offset` to the host.
    #[allow(unsafe_code)] // reads what the device wrote
    pub(super) fn read(
        &mut self,
        core: &Core,
        buffer: &Buffer,
        offset: u64,
        target: &mut [u8],
    ) -> Result<()> {
        let staging = self.staging(core)?;
        let mut from = offset as usize;
        for chunk in target.chunks_mut(STAGING) {
            self.run(core, |encoding| {
                let (source, to) = (Place { buffer, offset: from }, Place { buffer: &staging, offset: 0 });
                encoding.copy(source, to, chunk.len())
            })?;
            // SAFETY: the staging buffer has that many bytes, and no other code uses it while `self` is borrowed.
            unsafe { core::contents(&staging).copy_to_nonoverlapping(chunk_pointer(chunk), chunk.len()) };
            from += chunk.len();
        }
        Ok(())
    }

    /// Copies bytes from the host to `offset`.
    #[allow(unsafe_code)] // writes what the device reads
    pub(super) fn write(&mut self, core: &Core, buffer: &Buffer, offset: u64, source: &[u8]) -> Result<()> {
        let staging = self.staging(core)?;
        let mut to = offset as usize;
        for chunk in source.chunks(STAGING) {
            // SAFETY: the staging buffer has that many bytes, and no other code uses it while `self` is borrowed.
            unsafe {
                core::contents(&staging).as_ptr().copy_from_nonoverlapping(chunk.as_ptr(), chunk.len())
            };
            self.run(core, |encoding| {
                let (from, target) = (Place { buffer: &staging, offset: 0 }, Place { buffer, offset: to });
                encoding.copy(from, target, chunk.len())
            })?;
            to += chunk.len();
        }
        Ok(())
    }

    /// Zeroes the first bytes.
    pub(super) fn clear(&mut self, core: &Core, buffer: &Buffer, len: u64) -> Result<()> {
        self.run(core, |encoding| encoding.fill(Place { buffer, offset: 0 }, len as usize, &[0]))
    }

    /// Encodes a command buffer, and waits until it has ended.
    fn run(&self, core: &Core, encode: impl FnOnce(&mut Encoding<'_>) -> Result<()>) -> Result<()> {
        core.expect_present()?;
        autoreleasepool(|_| {
            let mut info = BufferInfo::default();
            let mut encoding = Encoding::new(core, &core.queue, &mut info, false);
            encode(&mut encoding).map_err(|error| core.explained(error))?;
            let Some(buffer) = encoding.finish() else { return Ok(()) };
            buffer.commit();
            buffer.waitUntilCompleted();
            match buffer.error() {
                None => Ok(()),
                Some(error) => {
                    let error = failure::error(core, &error, &[], &info);
                    core.note(&error);
                    Err(error)
                }
            }
        })
    }
}

fn chunk_pointer(chunk: &mut [u8]) -> std::ptr::NonNull<u8> {
    std::ptr::NonNull::from(chunk).cast()
}
