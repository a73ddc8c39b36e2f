//! The log ring: a bounded queue of records, written by threads of kernels and read by the host while they run.
//!
//! It consists of 64-byte *slots*. A record is one slot, or several consecutive ones, modulo their number:
//!
//! | word | first slot | further slots |
//! |---|---|---|
//! | 0 | tag: kernel (32 bits), site (16 bits), number of slots (16 bits) | [`CONTINUATION`] |
//! | 1 | thread's x and y | values |
//! | 2 | thread's z | values |
//! | 3 to 7 | values | values |
//!
//! A tag of 0 is a record that is not published, or no record. The host zeroes slots before it gives them back.
//!
//! Kernels reserve slots with two counters ([`Control`]), which never run backwards for a record that was reserved: `reserved`, from
//! which a writer that finds the ring full takes its part back, and then counts its record as lost; and `head`, the position of the
//! next record. A writer adds to `head` when its slots are certain, so that every position below it belongs to a record that will be
//! published. Writers never wait. A record's tag is stored last, with release order; the host's position `tail` is stored with release
//! order when slots are zero again. A writer that gives back its part of `reserved` may make another one find the ring full that was not:
//! its record is counted as lost, too.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::site::MAX_LOG_WORDS;

/// Words of a slot.
pub const SLOT_WORDS: usize = 8;
/// Values in the first slot of a record, and in each further one.
pub const FIRST_VALUES: usize = 5;
/// Values in each further slot.
pub const FURTHER_VALUES: usize = SLOT_WORDS - 1;
/// Tag of a record's further slots.
pub const CONTINUATION: u64 = u64::MAX;

/// Words before the slots: `tail` at 0, the number of lost records at 8, each in a cache line of its own.
const HEADER: usize = 16;
const LOST: usize = 8;
/// Minimum number of slots; one record fits.
const LEAST: u64 = 16;
/// Maximum number of slots.
const MOST: u64 = 1 << 24;

/// Number of slots of a record with this number of values.
pub const fn slots_of(values: usize) -> usize {
    1 + values.saturating_sub(FIRST_VALUES).div_ceil(FURTHER_VALUES)
}

const _: () = assert!(slots_of(MAX_LOG_WORDS) as u64 <= LEAST);

/// Memory of a ring, zeroed, which kernels and the host access at the same time.
pub struct LogMemory {
    address: NonNull<AtomicU64>,
    /// Address for kernels.
    for_kernels: u64,
    slots: u64,
    _owner: Box<dyn Any + Send + Sync>,
}

#[allow(unsafe_code)] // holds an address
// SAFETY: the words are atomics, and the owner may be used by any thread.
unsafe impl Send for LogMemory {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for LogMemory {}

impl LogMemory {
    /// Size in bytes of the memory for a ring of about `bytes` bytes of records: for a power of two of slots.
    pub fn size(bytes: u64) -> u64 {
        (Self::slots(bytes) * SLOT_WORDS as u64 + HEADER as u64) * 8
    }

    fn slots(bytes: u64) -> u64 {
        let slots = (bytes / (8 * SLOT_WORDS as u64)).clamp(LEAST, MOST);
        1 << slots.ilog2()
    }

    /// Memory in this process.
    pub(super) fn host(bytes: u64) -> Self {
        let words: Arc<[AtomicU64]> = (0..Self::size(bytes) / 8).map(|_| AtomicU64::new(0)).collect();
        let address: NonNull<AtomicU64> = NonNull::from(&*words).cast();
        let for_kernels = address.as_ptr().expose_provenance() as u64;
        Self { address, for_kernels, slots: Self::slots(bytes), _owner: Box::new(words) }
    }

    /// Memory of [`LogMemory::size`] bytes at `address`, and at `for_kernels` for kernels of the device.
    ///
    /// # Safety
    /// The memory is zeroed, aligned to 64 bytes, stays valid until `owner` is dropped, and is accessed as this module describes only.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn new(
        address: NonNull<u64>,
        for_kernels: u64,
        bytes: u64,
        owner: impl Any + Send + Sync,
    ) -> Self {
        Self { address: address.cast(), for_kernels, slots: Self::slots(bytes), _owner: Box::new(owner) }
    }

    #[allow(unsafe_code)] // reads through an address
    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < HEADER + self.slots as usize * SLOT_WORDS, "a word of the ring");
        // SAFETY: the index is within the memory, which lives as long as `self`; others access it as atomics.
        unsafe { self.address.add(index).as_ref() }
    }

    fn slot(&self, position: u64, word: usize) -> &AtomicU64 {
        self.word(HEADER + (position & (self.slots - 1)) as usize * SLOT_WORDS + word)
    }

    /// A word of a slot, for tests.
    #[cfg(test)]
    pub(super) fn slot_word(&self, slot: usize, word: usize) -> &AtomicU64 {
        self.slot(slot as u64, word)
    }

    /// Number of records that kernels have lost.
    pub(super) fn lost(&self) -> u64 {
        self.word(LOST).load(Ordering::Relaxed)
    }

    /// The writers' side.
    pub fn control(&self) -> Control {
        Control { address: self.for_kernels, mask: self.slots - 1, ..Control::default() }
    }
}

/// The writers' counters, in memory that the kernels access fastest. Compiled code knows the offsets.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Control {
    reserved: AtomicU64,
    _line: [u64; 7],
    head: AtomicU64,
    _other_line: [u64; 7],
    /// Address of the ring's memory.
    address: u64,
    /// Number of slots, less one.
    mask: u64,
    _rest: [u64; 6],
}

impl Control {
    /// Its bytes, to be copied to a device before any kernel uses it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<Self>()];
        bytes[128..136].copy_from_slice(&self.address.to_ne_bytes());
        bytes[136..144].copy_from_slice(&self.mask.to_ne_bytes());
        bytes
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub kernel: u32,
    pub site: u16,
    pub thread: [u32; 3],
    /// The values, and unspecified words behind them.
    pub words: Vec<u64>,
}

/// The reader's side.
#[derive(Debug, Default)]
pub(super) struct Reader {
    tail: u64,
}

/// What is at a position.
enum At {
    /// A record that is not published, or the rest of one.
    Nothing,
    /// A record of this many slots that was taken out before its turn.
    Taken(u64),
    Record(u64),
    /// Nothing that a writer could have stored.
    Invalid,
}

impl Reader {
    /// Takes the next record out. With `past`, records behind one that is not published, too: no writer may be running, since it could
    /// publish a record that was passed before one that was not.
    /// `None` if there is none; `Some(None)` for a slot that no writer could have stored.
    pub fn next(&mut self, memory: &LogMemory, past: bool) -> Option<Option<Record>> {
        loop {
            match self.look(memory, self.tail) {
                At::Nothing => break,
                At::Taken(slots) => self.free(memory, slots),
                At::Record(slots) => {
                    let record = read(memory, self.tail, slots);
                    self.free(memory, slots);
                    return Some(Some(record));
                }
                At::Invalid => {
                    self.free(memory, 1);
                    return Some(None);
                }
            }
        }
        let end = self.tail + memory.slots;
        let mut at = self.tail + 1;
        while past && at < end {
            at += match self.look(memory, at) {
                At::Nothing | At::Invalid => 1,
                At::Taken(slots) => slots,
                At::Record(slots) => {
                    let record = read(memory, at, slots);
                    memory.slot(at, 0).store(slots << 48, Ordering::Relaxed);
                    return Some(Some(record));
                }
            };
        }
        None
    }

    /// Whether records are published behind one that is not.
    pub fn has_gap(&self, memory: &LogMemory) -> bool {
        let is_record = |at| matches!(self.look(memory, at), At::Record(_));
        matches!(self.look(memory, self.tail), At::Nothing)
            && (self.tail + 1..self.tail + memory.slots).any(is_record)
    }

    fn look(&self, memory: &LogMemory, position: u64) -> At {
        let tag = memory.slot(position, 0).load(Ordering::Acquire);
        let slots = tag >> 48;
        match tag {
            0 => At::Nothing,
            // The rest of a record that is not published; at the tail there is none.
            CONTINUATION if position != self.tail => At::Nothing,
            _ if slots == 0 || slots > slots_of(MAX_LOG_WORDS) as u64 => At::Invalid,
            _ if tag as u32 == 0 => At::Taken(slots),
            _ => At::Record(slots),
        }
    }

    /// Gives slots back to the writers.
    fn free(&mut self, memory: &LogMemory, slots: u64) {
        for position in self.tail..self.tail + slots {
            (0..SLOT_WORDS).for_each(|word| memory.slot(position, word).store(0, Ordering::Relaxed));
        }
        self.tail += slots;
        memory.word(0).store(self.tail, Ordering::Release);
    }

    /// Empties the ring, for a new [`Control`]. No kernel may use it.
    pub fn reset(&mut self, memory: &LogMemory) {
        let words = HEADER + memory.slots as usize * SLOT_WORDS;
        (0..words).for_each(|word| memory.word(word).store(0, Ordering::Relaxed));
        self.tail = 0;
        memory.word(0).store(0, Ordering::Release);
    }
}

fn read(memory: &LogMemory, position: u64, slots: u64) -> Record {
    let word = |slot: u64, word: usize| memory.slot(position + slot, word).load(Ordering::Relaxed);
    let (tag, xy, z) = (word(0, 0), word(0, 1), word(0, 2));
    let mut words: Vec<u64> = (SLOT_WORDS - FIRST_VALUES..SLOT_WORDS).map(|index| word(0, index)).collect();
    for slot in 1..slots {
        words.extend((SLOT_WORDS - FURTHER_VALUES..SLOT_WORDS).map(|index| word(slot, index)));
    }
    Record {
        kernel: tag as u32,
        site: (tag >> 32) as u16,
        thread: [xy as u32, (xy >> 32) as u32, z as u32],
        words,
    }
}

/// Writes a record as compiled code does, for tests and for kernels that are interpreted. Returns `false` if it is lost.
pub(super) fn write(memory: &LogMemory, control: &Control, record: &Record) -> bool {
    let slots = slots_of(record.words.len()) as u64;
    let capacity = control.mask + 1;
    let tail = memory.word(0).load(Ordering::Acquire);
    let is_free = |reserved: u64| reserved.wrapping_add(slots).wrapping_sub(tail) <= capacity;
    let lose = || {
        memory.word(LOST).fetch_add(1, Ordering::Relaxed);
        false
    };
    if !is_free(control.reserved.load(Ordering::Relaxed)) {
        return lose();
    }
    if !is_free(control.reserved.fetch_add(slots, Ordering::AcqRel)) {
        control.reserved.fetch_sub(slots, Ordering::AcqRel);
        return lose();
    }
    let position = control.head.fetch_add(slots, Ordering::AcqRel);
    let store =
        |slot: u64, word: usize, value| memory.slot(position + slot, word).store(value, Ordering::Relaxed);
    for slot in 1..slots {
        store(slot, 0, CONTINUATION);
    }
    let [x, y, z] = record.thread.map(u64::from);
    store(0, 1, x | y << 32);
    store(0, 2, z);
    for (index, value) in record.words.iter().enumerate() {
        let (slot, word) = place_of(index);
        store(slot as u64, word, *value);
    }
    let tag = u64::from(record.kernel) | u64::from(record.site) << 32 | slots << 48;
    memory.slot(position, 0).store(tag, Ordering::Release);
    true
}

/// Slot and word of a record's value.
pub const fn place_of(value: usize) -> (usize, usize) {
    match value.checked_sub(FIRST_VALUES) {
        None => (0, SLOT_WORDS - FIRST_VALUES + value),
        Some(further) => {
            (1 + further / FURTHER_VALUES, SLOT_WORDS - FURTHER_VALUES + further % FURTHER_VALUES)
        }
    }
}
