//! Value types of Metal's methods: sizes, resource options, enumerations. The numbers are those of Apple's headers, taken from objc2-metal.

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
    /// Product of width, height and depth, if it does not overflow.
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
    /// Size in bytes.
    pub size: usize,
    /// Alignment, a power of two.
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
    /// Host and device access the same memory.
    Shared,
    /// Separate copies, or one with unified memory.
    Managed,
    /// Accessible to the device only.
    Private,
    /// Textures within a pass only.
    Memoryless,
}

impl Storage {
    /// From its number.
    pub fn of(number: usize) -> Option<Self> {
        [Self::Shared, Self::Managed, Self::Private, Self::Memoryless].get(number).copied()
    }

    /// The mode in resource options: bits 4 to 7.
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
    /// Not enqueued yet.
    pub const NOT_ENQUEUED: usize = 0;
    /// Enqueued.
    pub const ENQUEUED: usize = 1;
    /// Committed.
    pub const COMMITTED: usize = 2;
    /// Scheduled or running.
    pub const SCHEDULED: usize = 3;
    /// Completed.
    pub const COMPLETED: usize = 4;
    /// Failed.
    pub const ERROR: usize = 5;
}

/// `MTLCommandBufferError`.
pub mod execution_error {
    /// Internal error.
    pub const INTERNAL: isize = 1;
    /// Timeout.
    pub const TIMEOUT: isize = 2;
    /// Page fault.
    pub const PAGE_FAULT: isize = 3;
    /// Out of memory.
    pub const OUT_OF_MEMORY: isize = 8;
    /// Device removed.
    pub const DEVICE_REMOVED: isize = 11;
}

/// Whether a range is within a buffer or an array.
pub fn within(range: elinvar_objc::NsRange, length: usize) -> bool {
    range.end().is_some_and(|end| end <= length)
}
