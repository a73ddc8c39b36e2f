//! Saves and restores the processor's floating-point modes around compiled code.
//!
//! Rounding mode, flushing of subnormal numbers and traps are per thread. If a kernel changed them, everything that runs later on the worker
//! would be affected, including Rust code, which may assume the default modes (Rust reference, "core::arch", MXCSR).

/// Floating-point modes of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatState(u64);

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)] // reads and writes a control register
impl FloatState {
    /// Sticky exception flags, which are not modes.
    const HAPPENED: u64 = 0x3f;

    pub(crate) fn current() -> Self {
        let mut modes = 0_u32;
        // SAFETY: stores four bytes to a local variable.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut modes, options(nostack, preserves_flags)) };
        Self(u64::from(modes) & !Self::HAPPENED)
    }

    /// Restores these modes, if they have changed.
    pub(crate) fn restore(self) {
        if Self::current() != self {
            let modes = self.0 as u32;
            // SAFETY: the value was read from the register, so no reserved bit is set.
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

    /// Restores these modes, if they have changed.
    pub(crate) fn restore(self) {
        if Self::current() != self {
            // SAFETY: the value was read from the register.
            unsafe {
                std::arch::asm!("msr fpcr, {}", in(reg) self.0, options(nomem, nostack, preserves_flags))
            };
        }
    }
}

/// On other architectures, no modes are saved.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl FloatState {
    pub(crate) fn current() -> Self {
        Self(0)
    }

    pub(crate) fn restore(self) {}
}
