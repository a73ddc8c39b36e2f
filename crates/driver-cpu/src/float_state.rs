//! The processor's floating-point modes at the border between a worker and compiled code.
//!
//! Rounding, flushing of subnormal numbers and traps are of the thread: what a kernel leaves would hold for all that the
//! worker runs later, Rust code included, which may assume the default modes (Rust reference, "core::arch", MXCSR).

/// The modes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatState(u64);

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // reads and writes a control register
impl FloatState {
    /// Flags that say what has happened, which is not a mode.
    const HAPPENED: u64 = 0x3f;

    pub(crate) fn current() -> Self {
        let mut modes = 0_u32;
        // SAFETY: stores four bytes to a variable of our own.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut modes, options(nostack, preserves_flags)) };
        Self(u64::from(modes) & !Self::HAPPENED)
    }

    /// Make them these again, if they are others.
    pub(crate) fn restore(self) {
        if Self::current() != self {
            let modes = self.0 as u32;
            // SAFETY: the value was read from the register, so that no reserved bit is set.
            unsafe {
                std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const modes, options(nostack, preserves_flags))
            };
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)] // reads and writes a control register
impl FloatState {
    pub(crate) fn current() -> Self {
        let modes: u64;
        // SAFETY: reads a register that user code may read.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) modes, options(nomem, nostack, preserves_flags)) };
        Self(modes)
    }

    /// Make them these again, if they are others.
    pub(crate) fn restore(self) {
        if Self::current() != self {
            // SAFETY: the value was read from the register.
            unsafe {
                std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nomem, nostack, preserves_flags))
            };
        }
    }
}

/// Of other processors nothing is known that a kernel could change.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl FloatState {
    pub(crate) fn current() -> Self {
        Self(0)
    }

    pub(crate) fn restore(self) {}
}
