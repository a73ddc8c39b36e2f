//! Memory of a checked launch: buffers with exactly the bytes of its arguments, filled before the launch and copied back after it, because
//! Metal checks the bounds of a buffer and not those of a part of one.
//!
//! An argument of no bytes gets a buffer of one byte, because Metal has no empty buffers: an access to that byte is not detected; it reads
//! zero, and writes have no effect.

use elinvar_driver::{Access, Arg, ArgKind, Binding, Dispatch, Error, MemorySlice, Result};

use super::buffer::Buffer;
use super::encoding::{Encoding, Place};
use super::memory::located;
use crate::hazards::Touch;

/// A buffer for each buffer argument.
pub(super) struct Copies(Vec<Option<Buffer>>);

impl Copies {
    /// Fills the buffers for a launch.
    ///
    /// # Errors
    /// `Unsupported` if arguments alias memory that is written, because each would have a separate copy.
    pub(super) fn fill(encoding: &mut Encoding<'_>, dispatch: &Dispatch) -> Result<Self> {
        expect_apart(dispatch)?;
        let copies = arguments(dispatch).map(|(arg, binding)| match binding {
            Binding::Memory(slice) => {
                let copy = encoding.exact(slice.len)?;
                let (buffer, offset) = located(encoding.core, slice)?;
                let whole = Place { buffer: &copy, offset: 0 };
                encoding.copy(Place { buffer, offset }, whole, slice.len as usize)?;
                Ok(Some(copy))
            }
            Binding::Bytes(bytes) if arg.kind == ArgKind::Pointer => encoding.buffer_with(bytes).map(Some),
            Binding::Unbound => encoding.exact(0).map(Some),
            Binding::Bytes(_) | Binding::Threadgroup(_) => Ok(None),
        });
        copies.collect::<Result<_>>().map(Self)
    }

    /// The buffer of the argument at this position.
    pub(super) fn of(&self, position: usize) -> Option<&Buffer> {
        self.0.get(position)?.as_ref()
    }

    /// Copies back what the launch may have written.
    pub(super) fn write_back(&self, encoding: &mut Encoding<'_>, dispatch: &Dispatch) -> Result<()> {
        for ((arg, binding), copy) in arguments(dispatch).zip(&self.0) {
            if let (Binding::Memory(slice), Some(copy), Access::ReadWrite) = (binding, copy, arg.access) {
                let (buffer, offset) = located(encoding.core, slice)?;
                let whole = Place { buffer: copy, offset: 0 };
                encoding.copy(whole, Place { buffer, offset }, slice.len as usize)?;
            }
        }
        Ok(())
    }
}

fn arguments(dispatch: &Dispatch) -> impl Iterator<Item = (&Arg, &Binding)> {
    dispatch.pipeline.signature().args.iter().zip(&dispatch.bindings)
}

fn expect_apart(dispatch: &Dispatch) -> Result<()> {
    let memory = arguments(dispatch).filter_map(|(arg, binding)| match binding {
        Binding::Memory(slice) => Some((arg, slice)),
        _ => None,
    });
    let all: Vec<(&Arg, &MemorySlice)> = memory.collect();
    for (at, (arg, slice)) in all.iter().enumerate() {
        let own = Touch::new(slice, arg.access);
        let meets = |(other, slice): &&(&Arg, &MemorySlice)| own.conflicts(&Touch::new(slice, other.access));
        if let Some((other, _)) = all[..at].iter().find(meets) {
            let (kernel, a, b) = (&dispatch.pipeline.signature().name, &other.name, &arg.name);
            return Err(Error::unsupported(format!(
                "kernel `{kernel}`: arguments `{a}` and `{b}` share memory, and a checked launch on Metal works on a copy \
                 of each"
            )));
        }
    }
    Ok(())
}
