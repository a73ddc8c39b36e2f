//! Operations that Rust panics on, and their results on devices; limits of casts and shifts.

/// What devices define where the host panics.
#[elinvar::kernel]
pub fn defined(a: &[i32], b: &[i32], out: &mut [i32], #[thread_position_in_grid] i: usize) {
    out[4 * i] = a[i] / b[i];
    out[4 * i + 1] = a[i] % b[i];
    out[4 * i + 2] = a[i] + b[i];
    out[4 * i + 3] = a[i] << b[i];
}

/// Casts to every integer type.
#[elinvar::kernel]
pub fn casts(x: &[f32], out: &mut [i64], #[thread_position_in_grid] i: usize) {
    out[8 * i] = x[i] as i8 as i64;
    out[8 * i + 1] = x[i] as u8 as i64;
    out[8 * i + 2] = x[i] as i16 as i64;
    out[8 * i + 3] = x[i] as u16 as i64;
    out[8 * i + 4] = x[i] as i32 as i64;
    out[8 * i + 5] = x[i] as u32 as i64;
    out[8 * i + 6] = x[i] as i64;
    out[8 * i + 7] = (x[i] as u64) as i64;
}

/// Reads and writes beyond a slice.
#[elinvar::kernel]
pub fn beyond(x: &[u32], out: &mut [u32], at: u32, #[thread_position_in_grid] i: usize) {
    out[i] = 5;
    out[i] = x[at as usize];
}

/// Nested functions and constants, names that MSL reserves, and shadowing.
#[elinvar::kernel]
pub fn names(device: &[u32], constant: &mut [u32], #[thread_position_in_grid] thread: usize) {
    const SHIFT: u32 = 3;
    fn float4(int: u32) -> u32 {
        int << SHIFT
    }
    let half = device[thread];
    let half = { half + 1 };
    let auto = {
        let half = half * 2;
        half + 1
    };
    let max = auto.max(half);
    constant[thread] = float4(max) + half;
}

/// A product and a sum, which nothing contracts.
#[elinvar::kernel]
pub fn two_roundings(x: &[f32], out: &mut [f32], #[thread_position_in_grid] i: usize) {
    let (a, b) = (x[i], x[i + 1]);
    out[i] = a * a + b;
}

/// The same in Metal's default math mode.
#[elinvar::kernel(math = "fast")]
pub fn one_rounding(x: &[f32], out: &mut [f32], #[thread_position_in_grid] i: usize) {
    let (a, b) = (x[i], x[i + 1]);
    out[i] = a * a + b;
}

/// Functions whose obvious forms overflow or lose bits.
#[elinvar::kernel]
pub fn careful(x: &[f32], y: &[f32], n: &[i32], out: &mut [f32], #[thread_position_in_grid] i: usize) {
    out[2 * i] = x[i].hypot(y[i]);
    out[2 * i + 1] = x[i].powi(n[i]);
}
