//! Parts of the subset that other kernels do not need: constant memory, assertions of constants, swizzles, modules, log lines.

use elinvar::kernel::*;

/// Helper functions in modules.
pub mod polynomials {
    pub mod horner {
        /// The value of a polynomial at `x`.
        #[elinvar::device]
        pub fn value(coefficients: &[f32], x: f32) -> f32 {
            let mut sum = 0.0;
            for k in (0..coefficients.len()).rev() {
                sum = sum * x + coefficients[k];
            }
            sum
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(C)]
pub struct Term {
    pub factor: f32,
    pub offset: f32,
}

/// A polynomial of coefficients in constant memory, and a sum over structs in constant memory.
#[elinvar::kernel]
pub fn evaluate(
    coefficients: Constant<f32>,
    terms: Constant<Term>,
    x: &[f32],
    out: &mut [f32],
    #[thread_position_in_grid] i: usize,
) {
    const _: () = assert!(size_of::<u32>() == 4);
    if i >= x.len() {
        return;
    }
    let mut sum = polynomials::horner::value(&coefficients, x[i]);
    for k in 0..terms.len() {
        sum += terms[k].factor * (x[i] + terms[k].offset);
    }
    out[i] = sum;
}

/// Constant memory in a kernel whose threads wait for each other; generic, with assertions about its parameters.
#[elinvar::kernel]
pub fn lookups<T: Number, const N: usize>(
    table: Constant<T>,
    keys: &[u32],
    out: &mut [T],
    #[threadgroup] tile: &mut [u32; 32],
    #[thread_position_in_grid] i: usize,
    #[thread_index_in_threadgroup] t: usize,
) {
    const { assert!(N > 0 && N.is_power_of_two(), "the table's length is a power of two") };
    tile[t] = keys[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = table[tile[31 - t] as usize % N];
}

/// Swizzles of each length, of values and of places' values, in expressions.
#[elinvar::kernel]
pub fn swizzles(x: &[Vec4<f32>], out: &mut [Vec4<f32>], #[thread_position_in_grid] i: usize) {
    let v = x[i];
    out[5 * i] = v.wzyx();
    out[5 * i + 1] = v.xxyy() + v.zwzw().yxwz();
    let two = v.zx();
    out[5 * i + 2] = two.xyxy() * two.yyxx();
    let three = v.yzw().zyx();
    out[5 * i + 3] = three.xyzz();
    out[5 * i + 4] = Vec4::splat(dot(v.xy(), v.wz()));
}

/// Log lines with numbers of each kind.
#[elinvar::kernel]
pub fn logs(x: &[f32], wide: &[i64], #[thread_position_in_grid] i: usize) {
    let byte = 200u8 + i as u8;
    let half = x[i];
    if i % 2 == 0 {
        printf!("{i}: 100% \"{}\" {{{:.3}}} {:x}", wide[i], half * 0.5, byte);
    } else {
        printf!("odd {} {:X} {}", -(i as i32), wide[i] as u64, clamped(half));
    }
}

#[elinvar::device]
fn clamped(x: f32) -> i16 {
    x.clamp(-100.0, 100.0) as i16
}
