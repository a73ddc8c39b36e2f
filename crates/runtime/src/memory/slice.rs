//! [`BufferSlice`] and [`BufferSliceMut`]: ranges of a buffer.
//!
//! Slices borrow the buffer, as Rust's slices do. They can be used wherever a buffer can: in launches, copies and fills. Pending
//! work is recorded for whole allocations, so host access to a slice waits for work on any part of its buffer.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_driver::Result;

use crate::Buffer;
use crate::memory::span::Span;

/// A range of a buffer, for reading.
#[derive(Clone)]
pub struct BufferSlice<'a, T> {
    pub(crate) span: Span,
    buffer: PhantomData<&'a Buffer<T>>,
}

/// A range of a buffer, for reading and writing.
pub struct BufferSliceMut<'a, T> {
    pub(crate) span: Span,
    buffer: PhantomData<&'a mut Buffer<T>>,
}

impl<T: Pod> BufferSlice<'_, T> {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, buffer: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        (self.span.len / size_of::<T>() as u64) as usize
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Device address of the first element; see [`Buffer::gpu_address`].
    ///
    /// # Errors
    /// As [`Buffer::gpu_address`].
    pub fn gpu_address(&self) -> Result<u64> {
        self.span.gpu_address()
    }

    /// Copies the elements to `target`, which must have the same length.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn read(&self, target: &mut [T]) -> Result<()> {
        self.span.read(bytemuck::cast_slice_mut(target))
    }

    /// Returns a copy of the elements.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut target = vec![T::zeroed(); self.len()];
        self.read(&mut target)?;
        Ok(target)
    }
}

impl<T: Pod> BufferSliceMut<'_, T> {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, buffer: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        (self.span.len / size_of::<T>() as u64) as usize
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Device address of the first element; see [`Buffer::gpu_address`].
    ///
    /// # Errors
    /// As [`Buffer::gpu_address`].
    pub fn gpu_address(&self) -> Result<u64> {
        self.span.gpu_address()
    }

    /// Copies `source`, which must have the same length, to the elements.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn write(&mut self, source: &[T]) -> Result<()> {
        self.span.write(bytemuck::cast_slice(source))
    }

    /// Sets all elements to `value`, from the host.
    ///
    /// # Errors
    /// As [`Buffer::fill`].
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.span.fill(bytemuck::bytes_of(&value))
    }

    /// Copies a buffer or slice of the same length, through the host.
    ///
    /// # Errors
    /// As [`Buffer::copy_from`].
    pub fn copy_from<'s>(&mut self, source: impl Into<BufferSlice<'s, T>>) -> Result<()> {
        // All bytes are read before any is written, so the ranges may overlap.
        self.write(&source.into().to_vec()?)
    }
}

impl<'a, T> From<&'a Buffer<T>> for BufferSlice<'a, T> {
    /// The whole buffer.
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self { span: buffer.span.clone(), buffer: PhantomData }
    }
}

impl<'a, T> From<&'a BufferSlice<'_, T>> for BufferSlice<'a, T> {
    fn from(slice: &'a BufferSlice<'_, T>) -> Self {
        Self { span: slice.span.clone(), buffer: PhantomData }
    }
}

impl<'a, T> From<&'a BufferSliceMut<'_, T>> for BufferSlice<'a, T> {
    fn from(slice: &'a BufferSliceMut<'_, T>) -> Self {
        Self { span: slice.span.clone(), buffer: PhantomData }
    }
}

impl<'a, T> From<&'a mut Buffer<T>> for BufferSliceMut<'a, T> {
    /// The whole buffer.
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self { span: buffer.span.clone(), buffer: PhantomData }
    }
}

impl<'a, T> From<&'a mut BufferSliceMut<'_, T>> for BufferSliceMut<'a, T> {
    fn from(slice: &'a mut BufferSliceMut<'_, T>) -> Self {
        Self { span: slice.span.clone(), buffer: PhantomData }
    }
}

impl<T: Pod> fmt::Debug for BufferSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferSlice<{}>({} elements)", std::any::type_name::<T>(), self.len())
    }
}

impl<T: Pod> fmt::Debug for BufferSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferSliceMut<{}>({} elements)", std::any::type_name::<T>(), self.len())
    }
}
