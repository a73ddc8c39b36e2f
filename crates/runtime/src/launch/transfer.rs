//! Uploads and downloads: stream-ordered copies between host slices and buffers, through staging memory.
//!
//! The bytes pass through a pool block that host and device can both access (pinned, if the device has its own memory), so
//! neither waits for the other: an upload returns when its data has been copied from the caller's slice, and the block returns to
//! the pool when the device has copied it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use crate::{Buffer, BufferSlice, BufferSliceMut, CommandBuffer, Completion, Device, HostAccess, Stream};

/// Allocates a staging buffer.
#[allow(unsafe_code)] // each use writes it in full before it reads it
pub(crate) fn stage<T: Pod>(device: &Device, len: usize) -> Result<Buffer<T>> {
    // SAFETY: an upload writes it in full before the copy from it is recorded; for a download the copy writes it in
    // full, and it cannot be read after a failed copy.
    unsafe { device.buffer_uninit(len, HostAccess::Staging) }
}

impl CommandBuffer {
    /// Adds a copy of `source` to a buffer or slice of the same length. The data is copied from `source` before this returns.
    ///
    /// # Errors
    /// `InvalidArgument` for different lengths, or a buffer of another device; `OutOfMemory` for the staging memory.
    pub fn upload<'t, T: Pod>(
        &mut self,
        source: &[T],
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<()> {
        let target = target.into();
        expect_same("upload", source.len(), target.len())?;
        let mut stage = stage(self.device(), source.len())?;
        stage.write(source)?;
        self.copy(&stage, target)
    }
}

impl Stream {
    /// Copies `source` to a buffer or slice of the same length, behind the stream's pending work. The data is copied from
    /// `source` before this returns; it does not wait for the device. [`Buffer::write`] does.
    ///
    /// # Errors
    /// As [`CommandBuffer::upload`] and [`CommandBuffer::submit`].
    pub fn upload<'t, T: Pod>(
        &self,
        source: &[T],
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.upload(source, target)?;
        command_buffer.submit()
    }

    /// Copies a buffer or slice to the host, behind the stream's pending work. Does not block; [`Buffer::to_vec`] does.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy`] and [`CommandBuffer::submit`]; `OutOfMemory` for the staging memory.
    pub fn download<'s, T: Pod>(&self, source: impl Into<BufferSlice<'s, T>>) -> Result<Download<T>> {
        let source = source.into();
        let mut stage = stage(self.device(), source.len())?;
        let done = self.copy(source, &mut stage)?;
        Ok(Download { done, stage })
    }
}

fn expect_same(operation: &str, source: usize, target: usize) -> Result<()> {
    if source == target {
        return Ok(());
    }
    Err(Error::invalid(format!("{operation}: the source has {source} elements, the target {target}")))
}

/// A pending copy to the host; see [`Stream::download`]. A future of the elements, for any async executor.
pub struct Download<T> {
    done: Completion,
    stage: Buffer<T>,
}

impl<T: Pod> Download<T> {
    /// Blocks until the copy has ended, and returns the elements.
    ///
    /// # Errors
    /// The copy's error, as [`Completion::wait`].
    pub fn wait(&self) -> Result<Vec<T>> {
        self.done.wait()?;
        self.stage.to_vec()
    }

    /// Blocks until the copy has ended, and copies the elements to `target`, without an allocation.
    ///
    /// # Errors
    /// `InvalidArgument` if `target` has another length than the source; the copy's error, as [`Completion::wait`].
    pub fn read(&self, target: &mut [T]) -> Result<()> {
        expect_same("download", self.stage.len(), target.len())?;
        self.done.wait()?;
        self.stage.read(target)
    }

    /// Blocks until the copy has ended, for at most `timeout`. Returns `None` on a timeout.
    ///
    /// # Errors
    /// As [`Download::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<Vec<T>>> {
        self.done.wait_timeout(timeout)?.map(|_| self.stage.to_vec()).transpose()
    }
}

impl<T: Pod> Future for Download<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.done).poll(context) {
            Poll::Ready(result) => Poll::Ready(result.and_then(|_| self.stage.to_vec())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Download<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Download({:?})", self.done)
    }
}
