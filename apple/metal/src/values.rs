//! Values of Metal's that methods pass: sizes, resource options, enumerations. The numbers are those of Apple's headers,
//! as objc2-metal has them.

/// `MTLSize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Size {
    /// Along x.
    pub width: usize,
    /// Along y.
    pub height: usize,
    /// Along z.
    pub depth: usize,
}

impl Size {
    /// Width, height and depth multiplied, if it is a number.
    pub fn volume(self) -> Option<usize> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.depth)
    }
}

/// `MTLSizeAndAlign`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SizeAndAlign {
    /// Bytes.
    pub size: usize,
    /// A power of two.
    pub align: usize,
}

/// `MTLResourceID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ResourceId(pub u64);

elinvar_objc::structures! { Size => "{?=QQQ}", SizeAndAlign => "{?=QQ}", ResourceId => "{MTLResourceID=Q}" }

/// `MTLStorageMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Host and device see the same bytes.
    Shared,
    /// Two copies, or one where memory is unified.
    Managed,
    /// The device only.
    Private,
    /// Textures within a pass only.
    Memoryless,
}

impl Storage {
    /// From its number.
    pub fn of(number: usize) -> Option<Self> {
        [Self::Shared, Self::Managed, Self::Private, Self::Memoryless].get(number).copied()
    }

    /// The mode that resource options name: bits 4 to 7.
    pub fn of_options(options: usize) -> Option<Self> {
        Self::of(options >> 4 & 0xf)
    }

    /// As options.
    pub fn options(self) -> usize {
        (self as usize) << 4
    }
}

/// `MTLCommandBufferStatus`.
pub mod status {
    /// Not in the queue's order yet.
    pub const NOT_ENQUEUED: usize = 0;
    /// Has its place in the queue.
    pub const ENQUEUED: usize = 1;
    /// Handed over.
    pub const COMMITTED: usize = 2;
    /// About to run, or running.
    pub const SCHEDULED: usize = 3;
    /// Ended well.
    pub const COMPLETED: usize = 4;
    /// Ended otherwise.
    pub const ERROR: usize = 5;
}

/// `MTLCommandBufferError`.
pub mod execution_error {
    /// Something of the system's.
    pub const INTERNAL: isize = 1;
    /// It took too long.
    pub const TIMEOUT: isize = 2;
    /// It touched what is not there.
    pub const PAGE_FAULT: isize = 3;
    /// There was no memory for it.
    pub const OUT_OF_MEMORY: isize = 8;
    /// The device is gone.
    pub const DEVICE_REMOVED: isize = 11;
}

/// A range of a buffer or array is within it.
pub fn within(range: elinvar_objc::NsRange, length: usize) -> bool {
    range.end().is_some_and(|end| end <= length)
}
