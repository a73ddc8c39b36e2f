//! Transforms and hashes.

use elinvar::kernel::*;

/// An FFT of 64 points for each threadgroup of 32 threads (Stockham, radix 2).
#[elinvar::kernel]
pub fn fft64(
    x: &mut [Vec2<f32>],
    #[threadgroup] a: &mut [Vec2<f32>; 64],
    #[threadgroup] b: &mut [Vec2<f32>; 64],
    #[thread_index_in_threadgroup] t: usize,
    #[threadgroup_position_in_grid] group: usize,
) {
    let multiply = |p: Vec2<f32>, q: Vec2<f32>| Vec2::new(p.x * q.x - p.y * q.y, p.x * q.y + p.y * q.x);
    a[t] = x[group * 64 + t];
    a[t + 32] = x[group * 64 + t + 32];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    let mut half = 1;
    let mut swapped = false;
    while half < 64 {
        let k = t % half;
        let angle = -std::f32::consts::PI * k as f32 / half as f32;
        let w = Vec2::new(angle.cos(), angle.sin());
        let (p, q) = if swapped { (b[t], multiply(w, b[t + 32])) } else { (a[t], multiply(w, a[t + 32])) };
        let to = (t / half) * half * 2 + k;
        if swapped {
            a[to] = p + q;
            a[to + half] = p - q;
        } else {
            b[to] = p + q;
            b[to + half] = p - q;
        }
        swapped = !swapped;
        half *= 2;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    x[group * 64 + t] = if swapped { b[t] } else { a[t] };
    x[group * 64 + t + 32] = if swapped { b[t + 32] } else { a[t + 32] };
}

#[elinvar::device]
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// CRC-32 of records of `length` bytes.
#[elinvar::kernel]
pub fn crc32(bytes: &[u8], sums: &mut [u32], length: u32, #[thread_position_in_grid] i: usize) {
    let mut crc = !0u32;
    for k in 0..length as usize {
        crc ^= bytes[i * length as usize + k] as u32;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
        }
    }
    sums[i] = !crc;
}

/// Random numbers (PCG with 32 bits of state), and a sample of points within the unit circle.
#[elinvar::device]
fn pcg(state: u32) -> u32 {
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

/// Counts samples within the circle.
#[elinvar::kernel]
pub fn monte_carlo(inside: &mut [u32], samples: u32, #[thread_position_in_grid] i: u32) {
    let mut state = i.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let mut count = 0;
    for _ in 0..samples {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let x = pcg(state) as f32 / 4_294_967_296.0;
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let y = pcg(state) as f32 / 4_294_967_296.0;
        if x * x + y * y <= 1.0 {
            count += 1;
        }
    }
    inside[i as usize] = count;
}

/// One block of SHA-256 for each thread.
#[elinvar::kernel]
pub fn sha256(blocks: &[u32], digests: &mut [u32], #[thread_position_in_grid] i: usize) {
    const K: [u32; 64] = [
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    ];
    let mut w = [0u32; 64];
    for k in 0..16 {
        w[k] = blocks[i * 16 + k];
    }
    for k in 16..64 {
        let s0 = w[k - 15].rotate_right(7) ^ w[k - 15].rotate_right(18) ^ (w[k - 15] >> 3);
        let s1 = w[k - 2].rotate_right(17) ^ w[k - 2].rotate_right(19) ^ (w[k - 2] >> 10);
        w[k] = w[k - 16].wrapping_add(s0).wrapping_add(w[k - 7]).wrapping_add(s1);
    }
    let start =
        [0x6a09e667u32, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let mut s = start;
    for k in 0..64 {
        let s1 = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
        let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
        let one = s[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(K[k]).wrapping_add(w[k]);
        let s0 = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
        let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        let two = s0.wrapping_add(majority);
        for m in (1..8).rev() {
            s[m] = s[m - 1];
        }
        s[4] = s[4].wrapping_add(one);
        s[0] = one.wrapping_add(two);
    }
    for k in 0..8 {
        digests[i * 8 + k] = start[k].wrapping_add(s[k]);
    }
}
