//! Memory: allocations of bytes, and addresses into them.
//!
//! An address has 64 bits: slot and generation of the allocation in the upper ones, the offset in the lower ones, biased by
//! [`BASE`] so that an offset just before the allocation still belongs to it. To the program, addresses are integers: they can be
//! computed with, stored, and converted. Each access is checked against its allocation. Each byte has a flag whether it has been
//! written.

use crate::fault::{Problem, Result};

/// The low half of the address of an allocation's first byte.
const BASE: u64 = 1 << 31;

const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 32 - SLOT_BITS;

/// Kind of an allocation, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Argument(usize),
    Threadgroup(String),
    Private(String),
    Constant(String),
    /// The function with this index, as the target of a pointer.
    Function(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Argument(index) => write!(f, "argument {index}"),
            Place::Threadgroup(name) => write!(f, "the threadgroup variable `{name}`"),
            Place::Private(name) if name.is_empty() => f.write_str("a private variable"),
            Place::Private(name) => write!(f, "the private variable `{name}`"),
            Place::Constant(name) => write!(f, "the constant `{name}`"),
            Place::Function(_) => write!(f, "a function"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Allocation {
    pub place: Place,
    pub bytes: Vec<u8>,
    /// For each byte, whether it was written.
    pub written: Vec<bool>,
    pub align: u64,
    pub writable: bool,
    /// Address space of an argument, if the entry says it: a number of `__elinvar_argument_space`.
    pub space: Option<u128>,
}

impl Allocation {
    /// Zeroed bytes, marked as unwritten.
    pub(crate) fn fresh(place: Place, len: usize, align: u64) -> Allocation {
        Allocation {
            place,
            bytes: vec![0; len],
            written: vec![false; len],
            align,
            writable: true,
            space: None,
        }
    }

    pub(crate) fn filled(place: Place, bytes: Vec<u8>, align: u64) -> Allocation {
        let written = vec![true; bytes.len()];
        Allocation { place, bytes, written, align, writable: true, space: None }
    }
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    allocation: Option<Allocation>,
}

/// All allocations.
#[derive(Debug)]
pub(crate) struct Memory {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        // Slot 0 is unused, because null points to it.
        Memory { slots: vec![Slot::default()], free: Vec::new() }
    }

    /// Allocates memory and returns its address.
    pub(crate) fn allocate(&mut self, allocation: Allocation) -> Result<u64> {
        if allocation.bytes.len() as u64 >= BASE {
            return Err(Problem::Unsupported(format!("{} of 2 GiB or more", allocation.place)));
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < 1 << SLOT_BITS => {
                self.slots.push(Slot::default());
                (self.slots.len() - 1) as u32
            }
            None => return Err(Problem::Unsupported(format!("more than {} allocations", 1 << SLOT_BITS))),
        };
        let slot = &mut self.slots[index as usize];
        slot.allocation = Some(allocation);
        Ok(u64::from(index << GENERATION_BITS | slot.generation) << 32 | BASE)
    }

    /// Frees an allocation; its addresses become invalid.
    pub(crate) fn release(&mut self, address: u64) -> Option<Allocation> {
        let index = self.index(address)?;
        let slot = &mut self.slots[index];
        slot.generation = (slot.generation + 1) % (1 << GENERATION_BITS);
        self.free.push(index as u32);
        slot.allocation.take()
    }

    fn index(&self, address: u64) -> Option<usize> {
        let name = (address >> 32) as u32;
        let index = (name >> GENERATION_BITS) as usize;
        let slot = self.slots.get(index)?;
        (slot.generation == name & ((1 << GENERATION_BITS) - 1) && slot.allocation.is_some()).then_some(index)
    }

    /// The allocation of an address, whatever its offset.
    pub(crate) fn named(&self, address: u64) -> Option<&Allocation> {
        self.slots[self.index(address)?].allocation.as_ref()
    }

    /// The place of an address, and the offset there.
    pub(crate) fn locate(&self, address: u64) -> Option<(&Place, i64)> {
        Some((&self.named(address)?.place, (address & 0xffff_ffff) as i64 - BASE as i64))
    }

    /// The allocation and the byte range of an access.
    fn check(&self, address: u64, len: u64, align: u64) -> Result<(usize, std::ops::Range<usize>)> {
        let index = self.index(address).ok_or(Problem::Wild { address, len })?;
        let Some(allocation) = &self.slots[index].allocation else {
            return Err(Problem::Wild { address, len });
        };
        let offset = (address & 0xffff_ffff) as i64 - BASE as i64;
        let size = allocation.bytes.len() as u64;
        if offset < 0 || offset as u64 > size || size - (offset as u64) < len {
            return Err(Problem::OutOfBounds { what: allocation.place.to_string(), offset, len, size });
        }
        if !(offset as u64).is_multiple_of(align.max(1)) || align > allocation.align {
            return Err(Problem::Misaligned { what: allocation.place.to_string(), offset, align });
        }
        Ok((index, offset as usize..offset as usize + len as usize))
    }

    /// Bytes, and which of them were written.
    pub(crate) fn read(&self, address: u64, len: u64, align: u64) -> Result<(&[u8], &[bool])> {
        let (index, range) = self.check(address, len, align)?;
        let Some(allocation) = &self.slots[index].allocation else {
            return Err(Problem::Wild { address, len });
        };
        Ok((&allocation.bytes[range.clone()], &allocation.written[range]))
    }

    /// The bytes to write, and their written flags.
    pub(crate) fn write(&mut self, address: u64, len: u64, align: u64) -> Result<(&mut [u8], &mut [bool])> {
        let (index, range) = self.check(address, len, align)?;
        let Some(allocation) = &mut self.slots[index].allocation else {
            return Err(Problem::Wild { address, len });
        };
        if !allocation.writable && len > 0 {
            return Err(Problem::ReadOnly { what: allocation.place.to_string() });
        }
        Ok((&mut allocation.bytes[range.clone()], &mut allocation.written[range]))
    }

    /// Copies as `memmove`, including written flags.
    pub(crate) fn copy(&mut self, to: u64, from: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (bytes, written) = self.read(from, len, 1)?;
        let (bytes, written) = (bytes.to_vec(), written.to_vec());
        let (to_bytes, to_written) = self.write(to, len, 1)?;
        to_bytes.copy_from_slice(&bytes);
        to_written.copy_from_slice(&written);
        Ok(())
    }

    /// Make an allocation constant.
    pub(crate) fn seal(&mut self, address: u64) {
        if let Some(index) = self.index(address)
            && let Some(allocation) = &mut self.slots[index].allocation
        {
            allocation.writable = false;
        }
    }

    /// Notes the address space of an argument.
    pub(crate) fn set_space(&mut self, address: u64, space: u128) {
        if let Some(index) = self.index(address)
            && let Some(allocation) = &mut self.slots[index].allocation
        {
            allocation.space = Some(space);
        }
    }

    /// Marks an allocation as unwritten, as at the start of a variable's lifetime.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Some(index) = self.index(address)
            && let Some(allocation) = &mut self.slots[index].allocation
        {
            allocation.written.fill(false);
            allocation.bytes.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> (Memory, u64) {
        let mut memory = Memory::new();
        let at = memory.allocate(Allocation::fresh(Place::Argument(2), 8, 8)).unwrap();
        (memory, at)
    }

    #[test]
    fn accesses_stay_within_their_allocation() {
        let (mut memory, at) = memory();
        let other = memory.allocate(Allocation::filled(Place::Argument(3), vec![7; 64], 8)).unwrap();
        assert!(memory.write(at + 4, 4, 4).is_ok());
        let fault = memory.read(at + 8, 1, 1).unwrap_err();
        assert_eq!(fault.to_string(), "access of 1 bytes at offset 8 of argument 2, which has 8 bytes");
        assert!(matches!(memory.read(at - 4, 4, 4), Err(Problem::OutOfBounds { offset: -4, .. })));
        assert!(matches!(memory.read(at + 2, 4, 4), Err(Problem::Misaligned { offset: 2, .. })));
        assert!(matches!(memory.read(0, 4, 4), Err(Problem::Wild { .. })));
        assert_eq!(memory.read(other, 2, 2).unwrap().0, [7, 7]);
    }

    #[test]
    fn what_is_released_is_gone_even_when_its_slot_is_used_again() {
        let (mut memory, at) = memory();
        memory.release(at);
        let next = memory.allocate(Allocation::fresh(Place::Argument(0), 8, 8)).unwrap();
        assert_ne!(at, next);
        assert!(matches!(memory.read(at, 1, 1), Err(Problem::Wild { .. })));
    }

    #[test]
    fn copies_carry_what_was_written() {
        let (mut memory, at) = memory();
        let (bytes, written) = memory.write(at, 2, 1).unwrap();
        bytes.fill(9);
        written.fill(true);
        memory.copy(at + 1, at, 4).unwrap();
        let (bytes, written) = memory.read(at, 8, 1).unwrap();
        assert_eq!(bytes, [9, 9, 9, 0, 0, 0, 0, 0]);
        assert_eq!(written, [true, true, true, false, false, false, false, false]);
    }
}
