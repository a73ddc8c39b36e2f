//! [`Constant`]: a parameter in Metal's constant memory.

use std::ops::Deref;

/// Elements of a buffer that a kernel only reads, in constant memory: fast where all threads of a simdgroup read the same element.
///
/// It is a slice, `[T]`; a function gets it as `&table`.
#[derive(Clone, Copy, Debug)]
pub struct Constant<'a, T>(&'a [T]);

impl<'a, T> Constant<'a, T> {
    /// The elements, for a call of the kernel's function on the host.
    pub fn new(elements: &'a [T]) -> Self {
        Self(elements)
    }
}

impl<T> Deref for Constant<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0
    }
}
