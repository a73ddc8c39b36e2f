//! [`Map`] and [`MapMut`]: mapped host views of buffers.
//!
//! A guard dereferences to a slice of the elements, without a copy. While it exists, conflicting work and host access to the
//! allocation are rejected, through any handle. Managed memory is synchronized when a map begins, and when a map for writing
//! ends. Memory that the host cannot access is `Unsupported`; it is read and written by copies.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use crate::memory::span::Span;
use crate::memory::usage::Access;

/// Elements of a buffer mapped for reading; see [`crate::Buffer::map`].
pub struct Map<'a, T> {
    span: Mapped,
    elements: PhantomData<&'a [T]>,
}

/// Elements of a buffer mapped for reading and writing; see [`crate::Buffer::map_mut`].
pub struct MapMut<'a, T> {
    span: Mapped,
    elements: PhantomData<&'a mut [T]>,
}

/// A span whose allocation is recorded as mapped.
struct Mapped {
    span: Span,
    access: Access,
}

impl Mapped {
    #[allow(unsafe_code)] // moves bytes of memory that the device may use, under the record's lock
    fn new(span: &Span, access: Access) -> Result<Self> {
        let operation = if access == Access::Read { "map" } else { "map_mut" };
        if span.storage.block.memory.host_ptr().is_none() {
            let mode = span.storage.block.memory.storage();
            return Err(Error::unsupported(format!("{operation}: the host cannot access {mode:?} memory")));
        }
        let mut record = span.storage.host(access, operation)?;
        record.expect_written()?;
        if !record.is_mapped() {
            // SAFETY: the span is within the memory. No conflicting work is in flight and none can begin, nor can other
            // host access, while the record's lock is held; and no guard looks at the bytes.
            unsafe { span.storage.block.memory.pull(span.offset, span.len) }?;
            span.storage.expect_content()?;
        }
        record.map(access);
        Ok(Self { span: span.clone(), access })
    }

    fn len<T>(&self) -> usize {
        (self.span.len / size_of::<T>() as u64) as usize
    }

    #[allow(unsafe_code)] // an offset within an allocation
    fn ptr<T>(&self) -> *mut T {
        match self.span.storage.block.memory.host_ptr() {
            // SAFETY: the span is within the memory, which the host sees from this address on.
            Some(base) if self.span.len > 0 => unsafe { base.as_ptr().add(self.span.offset as usize) }.cast(),
            _ => std::ptr::dangling_mut(),
        }
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)] // moves bytes of memory that is mapped
    fn drop(&mut self) {
        let Span { storage, offset, len } = &self.span;
        let pushed = match self.access {
            Access::Read | Access::ReadAnew => Ok(()),
            // SAFETY: the span is within the memory, and as long as it is mapped for writing, which ends below,
            // nobody else uses it.
            Access::Write => unsafe { storage.block.memory.push(*offset, *len) },
        };
        storage.unmap(self.access, pushed.err());
    }
}

impl<T: Pod> Map<'_, T> {
    pub(crate) fn new(span: &Span) -> Result<Self> {
        Ok(Self { span: Mapped::new(span, Access::Read)?, elements: PhantomData })
    }
}

impl<T: Pod> MapMut<'_, T> {
    pub(crate) fn new(span: &Span) -> Result<Self> {
        Ok(Self { span: Mapped::new(span, Access::Write)?, elements: PhantomData })
    }
}

impl<T: Pod> Deref for Map<'_, T> {
    type Target = [T];

    #[allow(unsafe_code)] // a view of shared memory
    fn deref(&self) -> &[T] {
        // SAFETY: the span lies within live memory, its address is aligned to `T` (allocations to 256 bytes,
        // slices to whole elements) and any bytes are a `T: Pod`. Nobody writes while the map is counted.
        unsafe { std::slice::from_raw_parts(self.span.ptr(), self.span.len::<T>()) }
    }
}

impl<T: Pod> Deref for MapMut<'_, T> {
    type Target = [T];

    #[allow(unsafe_code)] // a view of shared memory
    fn deref(&self) -> &[T] {
        // SAFETY: as for `Map`; nobody else reads or writes while the memory is mapped for writing.
        unsafe { std::slice::from_raw_parts(self.span.ptr(), self.span.len::<T>()) }
    }
}

impl<T: Pod> DerefMut for MapMut<'_, T> {
    #[allow(unsafe_code)] // a view of shared memory
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `Map`; nobody else reads or writes while the memory is mapped for writing, and
        // `&mut self` makes this the only slice.
        unsafe { std::slice::from_raw_parts_mut(self.span.ptr(), self.span.len::<T>()) }
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Map<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for MapMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
