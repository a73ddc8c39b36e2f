//! Keccak, the permutation of 64-bit lanes behind SHA-3 (FIPS 202): one sponge for each thread, and one state for each threadgroup. The
//! reference is the crate `sha3`.

use elinvar::{Constants, Device, Grid, Source};
use sha3::{Digest, Keccak256, Sha3_256};

use super::{CaseResult, expect_all, kernel, run};

cases!("hashes": a_sponge_for_each_thread, a_state_for_each_threadgroup);

/// Round constants and rotations of Keccak-f[1600], sections 3.2.2 and 3.2.5 of FIPS 202.
const TABLES: &str = "
    #include <metal_stdlib>
    using namespace metal;
    constant ulong ROUNDS[24] = {
        0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000, 0x000000000000808b, 0x0000000080000001,
        0x8000000080008081, 0x8000000000008009, 0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
        0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003, 0x8000000000008002, 0x8000000000000080,
        0x000000000000800a, 0x800000008000000a, 0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008};
    constant uchar ROTATIONS[25] = {0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14};";

/// Absorbs a message of any length in blocks of 136 bytes, with the padding of SHA-3 or that of Keccak's submission.
const SPONGE: &str = "
    static void permute(thread ulong* a) {
        for (uint round = 0; round < 24; ++round) {
            ulong c[5], b[25];
            for (uint x = 0; x < 5; ++x) c[x] = a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20];
            for (uint x = 0; x < 5; ++x) {
                ulong d = c[(x + 4) % 5] ^ rotate(c[(x + 1) % 5], 1ul);
                for (uint y = 0; y < 25; y += 5) a[x + y] ^= d;
            }
            for (uint x = 0; x < 5; ++x)
                for (uint y = 0; y < 5; ++y) b[y + 5 * ((2 * x + 3 * y) % 5)] = rotate(a[x + 5 * y], ulong(ROTATIONS[x + 5 * y]));
            for (uint x = 0; x < 5; ++x)
                for (uint y = 0; y < 25; y += 5) a[x + y] = b[x + y] ^ (~b[(x + 1) % 5 + y] & b[(x + 2) % 5 + y]);
            a[0] ^= ROUNDS[round];
        }
    }

    constant uchar padding [[function_constant(0)]];

    kernel void sponge(device const uchar* text, device const uint2* messages, device ulong4* digests, constant uint& count,
                       uint i [[thread_position_in_grid]]) {
        if (i >= count) return;
        const uint rate = 136;
        device const uchar* message = text + messages[i].x;
        uint length = messages[i].y, at = 0;
        ulong a[25] = {};
        for (; at + rate <= length; at += rate) {
            for (uint byte = 0; byte < rate; ++byte) a[byte / 8] ^= ulong(message[at + byte]) << (8 * (byte % 8));
            permute(a);
        }
        for (uint byte = 0; at + byte < length; ++byte) a[byte / 8] ^= ulong(message[at + byte]) << (8 * (byte % 8));
        a[(length - at) / 8] ^= ulong(padding) << (8 * ((length - at) % 8));
        a[rate / 8 - 1] ^= 0x8000000000000000;
        permute(a);
        digests[i] = ulong4(a[0], a[1], a[2], a[3]);
    }";

/// The words of a digest as Keccak's lanes, which are little-endian.
fn words(digest: &[u8]) -> [u64; 4] {
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|byte| digest[8 * word + byte])))
}

fn a_sponge_for_each_thread(device: &Device) -> CaseResult {
    // Every length about one and two blocks, in one text whose messages overlap and are not aligned.
    let lengths: Vec<usize> = (0..=280).chain([1000, 4096, 10_000]).collect();
    let text: Vec<u8> = (0..20_011_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let messages: Vec<[u32; 2]> =
        lengths.iter().enumerate().map(|(i, &length)| [(31 * i) as u32, length as u32]).collect();
    let (texts, places) = (device.buffer_with_data(&text)?, device.buffer_with_data(&messages)?);
    let message = |i: usize| &text[messages[i][0] as usize..][..lengths[i]];
    let source = [TABLES, SPONGE].concat();
    let sha3 = |i: usize| words(&Sha3_256::digest(message(i)));
    let keccak = |i: usize| words(&Keccak256::digest(message(i)));
    for (padding, reference) in [(6_u8, &sha3 as &dyn Fn(usize) -> [u64; 4]), (1, &keccak)] {
        let kernel = device
            .compile(Source::msl(source.as_str()))?
            .kernel_with("sponge", &Constants::new().set(0, padding))?;
        let mut digests = device.buffer::<u64>(4 * lengths.len())?;
        run(device, &kernel, Grid::threads(512), (&texts, &places, &mut digests, lengths.len() as u32))?;
        expect_all(&digests.to_vec()?, |e| reference(e / 4)[e % 4]);
    }
    Ok(())
}

/// 25 of 32 threads hold a lane each; rows, columns and the permutation of lanes go through threadgroup memory.
const BY_THREADGROUP: &str = "
    kernel void absorb(device const ulong* text, device ulong* digests, constant uint& blocks,
                       uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_threadgroup]]) {
        threadgroup ulong a[32], b[32], c[5];
        const uint x = lane % 5, y = lane / 5;
        const bool holds = lane < 25;
        a[lane] = 0;
        for (uint block = 0; block < blocks; ++block) {
            if (lane < 17) a[lane] ^= text[(group * blocks + block) * 17 + lane];
            for (uint round = 0; round < 24; ++round) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (lane < 5) c[lane] = a[lane] ^ a[lane + 5] ^ a[lane + 10] ^ a[lane + 15] ^ a[lane + 20];
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (holds) {
                    ulong theta = a[lane] ^ c[(x + 4) % 5] ^ rotate(c[(x + 1) % 5], 1ul);
                    b[y + 5 * ((2 * x + 3 * y) % 5)] = rotate(theta, ulong(ROTATIONS[lane]));
                }
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (holds) a[lane] = b[lane] ^ (~b[(x + 1) % 5 + 5 * y] & b[(x + 2) % 5 + 5 * y]) ^ (lane == 0 ? ROUNDS[round] : 0);
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (lane < 4) digests[4 * group + lane] = a[lane];
    }";

fn a_state_for_each_threadgroup(device: &Device) -> CaseResult {
    let (groups, blocks) = (40, 3);
    // The last block carries its padding.
    let mut text: Vec<u64> =
        (0..groups * blocks * 17).map(|i| (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for last in (0..groups).map(|group| (group * blocks + blocks) * 17 - 1) {
        text[last] = (text[last] & 0x00ff_ffff) | 0x8000_0000_0600_0000;
    }
    let kernel = kernel(device, "absorb", &[TABLES, BY_THREADGROUP].concat())?;
    let input = device.buffer_with_data(&text)?;
    let mut digests = device.buffer::<u64>(4 * groups)?;
    run(device, &kernel, Grid::groups(groups).group(32), (&input, &mut digests, blocks as u32))?;
    let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
    let size = blocks * 136;
    expect_all(&digests.to_vec()?, |e| words(&Sha3_256::digest(&bytes[e / 4 * size..][..size - 5]))[e % 4]);
    Ok(())
}
