//! [`Simd`]: the vectors of a processor, for micro-kernels. Methods are inlined into functions that have the instructions enabled.

/// Vectors of `f32`.
///
/// # Safety
/// Every method needs the processor's support, and its addresses must be valid for a vector.
pub(crate) trait Simd {
    type Vector: Copy;
    /// Elements of a vector.
    const LANES: usize;
    unsafe fn zero() -> Self::Vector;
    unsafe fn splat(from: *const f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn store(to: *mut f32, vector: Self::Vector);
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`.
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
}

/// Asks for the cache line of an address, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch(address: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on memory, and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(address.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _unused = address;
}

/// Vectors of 128 bits of any processor.
pub(crate) struct Portable;

impl Simd for Portable {
    type Vector = [f32; 4];
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn splat(from: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        [unsafe { from.read() }; 4]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Vector {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: Self::Vector) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(vector) };
    }

    #[inline(always)]
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| {
            // Without the instruction, `mul_add` is a slow function.
            if cfg!(target_arch = "aarch64") {
                a[lane].mul_add(b[lane], c[lane])
            } else {
                a[lane] * b[lane] + c[lane]
            }
        })
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    /// Vectors of 256 bits with FMA.
    pub(crate) struct Avx2;

    impl Simd for Avx2 {
        type Vector = __m256;
        const LANES: usize = 8;

        #[inline(always)]
        unsafe fn zero() -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn splat(from: *const f32) -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_broadcast_ss(&*from) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut f32, vector: __m256) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_ps(to, vector) };
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_mul_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: the caller's promise.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
    }

    /// Vectors of 512 bits.
    pub(crate) struct Avx512;

    impl Simd for Avx512 {
        type Vector = __m512;
        const LANES: usize = 16;

        #[inline(always)]
        unsafe fn zero() -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_setzero_ps() }
        }

        #[inline(always)]
        unsafe fn splat(from: *const f32) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_set1_ps(*from) }
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn store(to: *mut f32, vector: __m512) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(to, vector) };
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_mul_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: the caller's promise.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
    }
}
