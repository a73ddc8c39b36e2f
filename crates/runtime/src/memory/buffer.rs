//! [`Buffer`]: typed device memory.
//!
//! A buffer is a typed handle on an allocation; a clone is another handle on it. Host access waits for conflicting pending work.
//! The element type is the host's view; launches check it against the kernel's argument.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use elinvar_driver::{Result, Storage};

use crate::memory::span::Span;
use crate::{BufferSlice, BufferSliceMut, Device, Map, MapMut};

/// Elements of type `T` in device memory. Freed when the last handle is gone and the device has finished all work that uses it.
pub struct Buffer<T> {
    pub(crate) span: Span,
    elements: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, elements: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        (self.span.len / size_of::<T>() as u64) as usize
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> u64 {
        self.span.len
    }

    /// Device address of the first element, for pointers in argument buffers (`gpuAddress` in Metal). Constant for the lifetime
    /// of the buffer. A launch that accesses the buffer through its address must declare it with [`crate::Arg::use_resource`].
    ///
    /// # Errors
    /// `Unsupported` if the device has no such addresses.
    pub fn gpu_address(&self) -> Result<u64> {
        self.span.gpu_address()
    }

    /// Storage mode.
    pub fn storage(&self) -> Storage {
        self.span.storage.block.memory.storage()
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.span.storage.device
    }

    /// Copies all elements to `target`. Waits for pending work that writes the buffer.
    ///
    /// # Errors
    /// `InvalidArgument` if `target` has another length, or while the buffer is mapped for writing; `Poisoned` with the first
    /// cause if the work that should have written the content failed, and the content has not been overwritten in full since.
    pub fn read(&self, target: &mut [T]) -> Result<()> {
        self.span.read(bytemuck::cast_slice_mut(target))
    }

    /// Returns a copy of all elements. Waits for pending work that writes the buffer.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut target = vec![T::zeroed(); self.len()];
        self.read(&mut target)?;
        Ok(target)
    }

    /// Copies `source` to the buffer. Waits for all pending work on the buffer.
    ///
    /// # Errors
    /// `InvalidArgument` if `source` has another length, or while the buffer is mapped.
    pub fn write(&mut self, source: &[T]) -> Result<()> {
        self.span.write(bytemuck::cast_slice(source))
    }

    /// Sets all elements to `value`, from the host. Waits for all pending work on the buffer; [`crate::Stream::fill`] does not.
    ///
    /// # Errors
    /// `InvalidArgument` while the buffer is mapped.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.span.fill(bytemuck::bytes_of(&value))
    }

    /// Copies a buffer or slice of the same length, of any device, through the host. Waits for pending work on both;
    /// [`crate::Stream::copy`] does not.
    ///
    /// # Errors
    /// As [`Buffer::read`] for the source and [`Buffer::write`] for `self`.
    pub fn copy_from<'s>(&mut self, source: impl Into<BufferSlice<'s, T>>) -> Result<()> {
        self.slice_mut(0..self.len())?.copy_from(source)
    }

    /// Maps the elements for reading, without a copy. Waits for pending work that writes the buffer. While the guard exists, work
    /// and host access that would write the memory are rejected, through any handle.
    ///
    /// # Errors
    /// `Unsupported` for memory that the host cannot access; otherwise as [`Buffer::read`].
    pub fn map(&self) -> Result<Map<'_, T>> {
        Map::new(&self.span)
    }

    /// Maps the elements for reading and writing, without a copy. Waits for all pending work on the buffer. While the guard
    /// exists, all other work and host access is rejected, through any handle.
    ///
    /// # Errors
    /// As [`Buffer::map`]; `InvalidArgument` while the memory is mapped.
    pub fn map_mut(&mut self) -> Result<MapMut<'_, T>> {
        MapMut::new(&self.span)
    }

    /// A view of the elements of `range`, for reading.
    ///
    /// # Errors
    /// `InvalidArgument` if the range is not within the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<BufferSlice<'_, T>> {
        Ok(BufferSlice::new(self.span.slice(&range, size_of::<T>())?))
    }

    /// A view of the elements of `range`, for reading and writing.
    ///
    /// # Errors
    /// As [`Buffer::slice`].
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<BufferSliceMut<'_, T>> {
        Ok(BufferSliceMut::new(self.span.slice(&range, size_of::<T>())?))
    }
}

impl<T> Clone for Buffer<T> {
    /// Another handle on the same memory.
    fn clone(&self) -> Self {
        Self { span: self.span.clone(), elements: PhantomData }
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements)", std::any::type_name::<T>(), self.len())
    }
}
