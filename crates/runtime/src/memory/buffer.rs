//! [`Buffer`]: elements in a device's memory.
//!
//! A buffer is a typed handle on an allocation; a clone is a second handle on the same one. Host access
//! waits for the work in flight that conflicts with it, and only for that. The element type is the
//! host's view: that it fits a kernel's argument is checked at the launch.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use elinvar_driver::{Result, Storage};

use crate::memory::span::Span;
use crate::{BufferSlice, BufferSliceMut, Device, Map, MapMut};

/// Elements of type `T` in the memory of a device. Freed when the last handle is gone and the device has
/// finished all work that uses it.
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

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> u64 {
        self.span.len
    }

    /// The address at which kernels see the first element, for a pointer in an argument buffer. It stays the same
    /// as long as the buffer lives; a launch that uses it names the buffer with [`crate::Arg::use_resource`].
    ///
    /// # Errors
    /// `Unsupported` on a device whose memory has no such address.
    pub fn gpu_address(&self) -> Result<u64> {
        self.span.gpu_address()
    }

    /// The storage mode of its memory.
    pub fn storage(&self) -> Storage {
        self.span.storage.block.memory.storage()
    }

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.span.storage.device
    }

    /// Copy all elements to `target`, which has the buffer's length. Waits for work that writes the buffer.
    ///
    /// # Errors
    /// `InvalidArgument` for another length or while the buffer is mapped for writing; `Poisoned` with the
    /// cause when the work that should have written the content has failed and it has not been written in
    /// full since.
    pub fn read(&self, target: &mut [T]) -> Result<()> {
        self.span.read(bytemuck::cast_slice_mut(target))
    }

    /// All elements. Waits for work that writes the buffer.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut target = vec![T::zeroed(); self.len()];
        self.read(&mut target)?;
        Ok(target)
    }

    /// Set all elements from `source`, which has the buffer's length. Waits for all work on the buffer.
    ///
    /// # Errors
    /// `InvalidArgument` for another length or while the buffer is mapped.
    pub fn write(&mut self, source: &[T]) -> Result<()> {
        self.span.write(bytemuck::cast_slice(source))
    }

    /// Set all elements to `value`, from the host. Waits for all work on the buffer;
    /// [`crate::Stream::fill`] does not.
    ///
    /// # Errors
    /// `InvalidArgument` while the buffer is mapped.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.span.fill(bytemuck::bytes_of(&value))
    }

    /// Set all elements from those of another buffer or slice of the same length, of any device, through
    /// the host. Waits for the work on both; [`crate::Stream::copy`] does not.
    ///
    /// # Errors
    /// As [`Buffer::read`] for the source and [`Buffer::write`] for `self`.
    pub fn copy_from<'s>(&mut self, source: impl Into<BufferSlice<'s, T>>) -> Result<()> {
        self.slice_mut(0..self.len())?.copy_from(source)
    }

    /// The elements as a slice of the host, without a copy. Waits for work that writes the buffer. While the
    /// guard lives, work and host access that would write the memory are refused, through any handle.
    ///
    /// # Errors
    /// `Unsupported` for memory that the host does not see; else as [`Buffer::read`].
    pub fn map(&self) -> Result<Map<'_, T>> {
        Map::new(&self.span)
    }

    /// The elements as a mutable slice of the host, without a copy. Waits for all work on the buffer. While
    /// the guard lives, all other work and host access is refused, through any handle.
    ///
    /// # Errors
    /// As [`Buffer::map`]; `InvalidArgument` while any other map of the memory lives.
    pub fn map_mut(&mut self) -> Result<MapMut<'_, T>> {
        MapMut::new(&self.span)
    }

    /// The elements of `range`, for reading.
    ///
    /// # Errors
    /// `InvalidArgument` when the range is not within the buffer.
    pub fn slice(&self, range: Range<usize>) -> Result<BufferSlice<'_, T>> {
        Ok(BufferSlice::new(self.span.slice(&range, size_of::<T>())?))
    }

    /// The elements of `range`, for reading and writing.
    ///
    /// # Errors
    /// As [`Buffer::slice`].
    pub fn slice_mut(&mut self, range: Range<usize>) -> Result<BufferSliceMut<'_, T>> {
        Ok(BufferSliceMut::new(self.span.slice(&range, size_of::<T>())?))
    }
}

impl<T> Clone for Buffer<T> {
    /// A second handle on the same memory.
    fn clone(&self) -> Self {
        Self { span: self.span.clone(), elements: PhantomData }
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements)", std::any::type_name::<T>(), self.len())
    }
}
