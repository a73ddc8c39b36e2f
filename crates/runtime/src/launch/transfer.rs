//! Uploads and downloads: host data to and from a buffer in the order of a stream, through staging memory.
//!
//! The bytes go through a block of the pool that host and device both reach (pinned, on a device with memory of its own),
//! so that neither waits for the other: an upload returns when its data has been copied out of the caller's slice, and the
//! block goes back to the pool when the device has copied it on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use crate::{Buffer, BufferSlice, BufferSliceMut, CommandBuffer, Completion, Device, HostAccess, Stream};

/// A staging buffer.
#[allow(unsafe_code)] // each use writes it in full before it reads it
pub(crate) fn stage<T: Pod>(device: &Device, len: usize) -> Result<Buffer<T>> {
    // SAFETY: an upload writes all of it before the copy from it is recorded; for a download the copy to it writes all
    // of it, and what a failed copy leaves cannot be read.
    unsafe { device.buffer_uninit(len, HostAccess::Staging) }
}

impl CommandBuffer {
    /// Add a copy of `source` to a buffer or slice of the same length. The data is taken now.
    ///
    /// # Errors
    /// `InvalidArgument` for different lengths or a buffer of another device; `OutOfMemory` for the staging memory.
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
    /// Copy `source` to a buffer or slice of the same length, behind the work that the stream has. The data is taken now:
    /// the slice is free when this returns, and nothing is waited for. [`Buffer::write`] waits instead.
    ///
    /// # Errors
    /// As [`CommandBuffer::upload`].
    pub fn upload<'t, T: Pod>(
        &self,
        source: &[T],
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.upload(source, target)?;
        command_buffer.submit()
    }

    /// Copy a buffer or slice to the host, behind the work that the stream has. Nothing is waited for;
    /// [`Buffer::to_vec`] waits instead.
    ///
    /// # Errors
    /// As [`CommandBuffer::copy`]; `OutOfMemory` for the staging memory.
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

/// Data on its way to the host; see [`Stream::download`]. A future of the elements, on any executor.
pub struct Download<T> {
    done: Completion,
    stage: Buffer<T>,
}

impl<T: Pod> Download<T> {
    /// Block until the data is there.
    ///
    /// # Errors
    /// How the copy failed, as [`Completion::wait`].
    pub fn wait(&self) -> Result<Vec<T>> {
        self.done.wait()?;
        self.stage.to_vec()
    }

    /// Block until the data is there, at most for `timeout`; `None` when it is not by then.
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
