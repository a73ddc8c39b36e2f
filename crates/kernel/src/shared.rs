//! [`Shared`]: memory that the threads of a threadgroup share on the host.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// A slice or array that several threads of a kernel write. Copies refer to the same memory.
///
/// Only code that `#[elinvar::kernel]` writes uses it: one thread of the host runs at a time, and a kernel keeps no reference to an element
/// when it waits, so references of two threads never exist at once.
pub struct Shared<'a, S: ?Sized> {
    address: *mut S,
    memory: PhantomData<&'a mut S>,
}

impl<'a, S: ?Sized> Shared<'a, S> {
    #[doc(hidden)]
    pub fn new(memory: &'a mut S) -> Self {
        Self { address: memory, memory: PhantomData }
    }
}

impl<S: ?Sized> Clone for Shared<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ?Sized> Copy for Shared<'_, S> {}

// SAFETY: `host::run_groups` lets one thread run at a time and orders them by a lock.
unsafe impl<S: ?Sized + Send> Send for Shared<'_, S> {}
// SAFETY: as above.
unsafe impl<S: ?Sized + Send> Sync for Shared<'_, S> {}

impl<S: ?Sized> Deref for Shared<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: the memory is borrowed for `'a`; no other thread runs, and none keeps a reference while it waits.
        unsafe { &*self.address }
    }
}

impl<S: ?Sized> DerefMut for Shared<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.address }
    }
}

/// Memory of a threadgroup, which its threads share.
#[doc(hidden)]
pub struct Owned<S: ?Sized> {
    address: *mut S,
}

impl<S: ?Sized> Owned<S> {
    #[doc(hidden)]
    pub fn new(memory: Box<S>) -> Self {
        Self { address: Box::into_raw(memory) }
    }

    #[doc(hidden)]
    pub fn shared(&self) -> Shared<'_, S> {
        Shared { address: self.address, memory: PhantomData }
    }
}

impl<S: ?Sized> Drop for Owned<S> {
    fn drop(&mut self) {
        // SAFETY: from a box, and freed once; what `shared` returned has ended.
        drop(unsafe { Box::from_raw(self.address) });
    }
}

// SAFETY: as for `Shared`.
unsafe impl<S: ?Sized + Send> Send for Owned<S> {}
// SAFETY: as for `Shared`.
unsafe impl<S: ?Sized + Send> Sync for Owned<S> {}
