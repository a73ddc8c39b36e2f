//! The ring of slots that the host shares with a resident kernel. `resident.h` has the device's side.
//!
//! A slot has two words, the item, and the result. Words are `number << 2 | kind`, with numbers of items from 1. The host writes the first
//! word when it has written the item; the kernel takes the number from a counter in device memory, and writes the second word when it has
//! taken the item and when it has completed it. A slot is used again when its item is complete. There are at least twice as many slots as
//! items under way, so the slot behind the last item is free for the word that stops the kernel.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::{Error, Result};

use crate::Buffer;

/// Offset of the first slot. Before it is a word that is not 0 when the kernel stops.
const SLOTS: usize = 128;
/// Offset of an item in its slot.
const ITEM: usize = 16;
/// Kinds of the first word.
const ITEM_KIND: u64 = 1;
const DISCARDED_KIND: u64 = 2;
const STOP_KIND: u64 = 3;

/// State of an item, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not taken.
    Queued,
    /// Taken and not completed.
    Taken,
    Completed,
    /// Not executed, because the kernel was stopped.
    Discarded,
    /// Completed, and its slot has a later item.
    Replaced,
}

impl State {
    /// Whether the item is not complete, and was not discarded.
    pub(super) fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Taken)
    }
}

/// The memory of the slots.
pub(super) struct Ring {
    /// Keeps the memory.
    pub(super) memory: Buffer<u8>,
    first: NonNull<u8>,
    pub(super) slots: u64,
    pub(super) stride: usize,
    pub(super) results: usize,
    item: usize,
    result: usize,
}

#[allow(unsafe_code)] // addresses of shared memory
// SAFETY: the memory belongs to the ring; words are atomic, and items and results are accessed by one side at a time, as the words say.
unsafe impl Send for Ring {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; the host's accesses to items and results are under a lock.
unsafe impl Sync for Ring {}

#[allow(unsafe_code)] // reads and writes memory that the device uses
impl Ring {
    /// Offset of the result, and the distance of slots, for items and results of these sizes.
    pub(super) fn layout(item: usize, result: usize) -> (usize, usize) {
        let results = (ITEM + item).next_multiple_of(16);
        (results, (results + result).next_multiple_of(64))
    }

    /// Size of the memory in bytes.
    pub(super) fn bytes(slots: u64, stride: usize) -> usize {
        SLOTS + slots as usize * stride
    }

    /// A ring in zeroed memory of [`Ring::bytes`] bytes.
    pub(super) fn new(memory: Buffer<u8>, slots: u64, (item, result): (usize, usize)) -> Result<Self> {
        let (results, stride) = Self::layout(item, result);
        let first = memory.span.storage.block.memory.host_ptr();
        let first =
            first.ok_or_else(|| Error::unsupported("resident kernels on a device without shared memory"))?;
        // SAFETY: the span is within the memory.
        let first = unsafe { first.add(memory.span.offset as usize) };
        Ok(Self { memory, first, slots, stride, results, item, result })
    }

    fn at(&self, number: u64) -> NonNull<u8> {
        // SAFETY: `bytes` has this much for each slot.
        unsafe { self.first.add(SLOTS + (number % self.slots) as usize * self.stride) }
    }

    fn word(&self, number: u64, index: usize) -> &AtomicU64 {
        // SAFETY: aligned, within the slot, and only accessed atomically while the kernel may run.
        unsafe { self.at(number).cast::<AtomicU64>().add(index).as_ref() }
    }

    /// Publishes an item, whose slot is free.
    pub(super) fn publish(&self, number: u64, item: &[u8]) {
        let bytes = item.len().min(self.item);
        // SAFETY: within the slot; the device reads it after it has seen the word.
        unsafe { self.at(number).add(ITEM).copy_from_nonoverlapping(NonNull::from(item).cast(), bytes) };
        self.word(number, 0).store((number + 1) << 2 | ITEM_KIND, Ordering::Release);
    }

    /// Discards an item unless it is taken, which the device may have done already.
    pub(super) fn discard(&self, number: u64) {
        self.word(number, 0).store((number + 1) << 2 | DISCARDED_KIND, Ordering::Release);
    }

    /// Stops the kernel where it receives, behind the item before this number, whose slot is free.
    pub(super) fn stop(&self, number: u64) {
        self.word(number, 0).store((number + 1) << 2 | STOP_KIND, Ordering::Release);
    }

    /// Stops the kernel where it waits for a queue.
    pub(super) fn stop_waits(&self) {
        // SAFETY: the first word of the memory, only accessed atomically.
        unsafe { self.first.cast::<AtomicU64>().as_ref() }.store(1, Ordering::Release);
    }

    /// The state of an item that was published.
    pub(super) fn state(&self, number: u64) -> State {
        let word = self.word(number, 1).load(Ordering::Acquire);
        match (word >> 2).cmp(&(number + 1)) {
            std::cmp::Ordering::Less => State::Queued,
            std::cmp::Ordering::Greater => State::Replaced,
            std::cmp::Ordering::Equal => match word & 3 {
                0 => State::Taken,
                DISCARDED_KIND => State::Discarded,
                _ => State::Completed,
            },
        }
    }

    /// The result of a completed item.
    pub(super) fn result(&self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.result];
        // SAFETY: within the slot; the device does not write it any more, and the host's lock is held.
        unsafe {
            NonNull::from(&mut bytes[..])
                .cast::<u8>()
                .copy_from_nonoverlapping(self.at(number).add(self.results), self.result)
        };
        bytes
    }
}
