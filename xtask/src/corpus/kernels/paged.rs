//! mistral.rs's kernels for the paged key and value cache.
//!
//! Keys are stored as `[block][head][part][slot][x]`, where a head's numbers are divided into parts of `x`; values as
//! `[block][head][number][slot]`.

use elinvar::{Constants, bf16, f16};

use super::case::{Case, EXACT};
use super::element::{Element, Sequence};

const CORPUS: &str = "mistralrs-paged-attn";

const HEADS: usize = 3;
const SIZE: usize = 8;
const SLOTS: usize = 5;
const BLOCKS: usize = 4;
const X: usize = 4;
const WIDTH: usize = HEADS * SIZE;

pub fn cases() -> Vec<Case> {
    vec![
        copy_blocks::<f32>("float"),
        copy_blocks::<bf16>("bfloat16_t"),
        copy_blocks::<u8>("uchar"),
        store::<f32>("float"),
        store::<bf16>("bfloat16_t"),
        store_fp8::<f16>("half"),
        load::<f32>("float"),
        load::<f16>("half"),
        load_fp8::<bf16>("bfloat16_t"),
        load_fp8::<f32>("float"),
        scale_update::<f32>("float"),
        scale_update::<f16>("half"),
    ]
}

/// Index of number `i` of a token in the cache of keys.
fn key_place(block: usize, slot: usize, i: usize) -> usize {
    let (head, number) = (i / SIZE, i % SIZE);
    (((block * HEADS + head) * (SIZE / X) + number / X) * SLOTS + slot) * X + number % X
}

/// Index of number `i` of a token in the cache of values.
fn value_place(block: usize, slot: usize, i: usize) -> usize {
    let (head, number) = (i / SIZE, i % SIZE);
    ((block * HEADS + head) * SIZE + number) * SLOTS + slot
}

const CACHE: usize = BLOCKS * WIDTH * SLOTS;

/// Pairs of source and target blocks. The pair's index is the thread's position in the grid, so a threadgroup has one thread.
fn copy_blocks<T: Element>(name: &str) -> Case {
    let (keys, values) = (17, 11);
    let mapping = [0_i64, 3, 1, 4, 0, 5];
    let mut sequence = Sequence(61);
    let mut case = Case::new(CORPUS, "copy_blocks.metal", format!("copy_blocks_{name}"));
    for size in [keys, values] {
        let before: Vec<T> = sequence.between(6 * size, 0.0, 100.0);
        let mut want: Vec<Option<T>> = vec![None; before.len()];
        for pair in mapping.chunks(2) {
            for i in 0..size {
                want[pair[1] as usize * size + i] = Some(before[pair[0] as usize * size + i]);
            }
        }
        case = case.updated(&before, &want);
    }
    case.input(&mapping).value([keys as i32]).value([values as i32]).threads(3, 1)
}

const TOKENS: usize = 6;
/// Strides between tokens of the inputs in elements.
const STRIDES: [usize; 2] = [WIDTH + 3, WIDTH + 7];
/// Slot of each token, counted over all blocks; a token without a slot is padding.
const MAPPING: [i64; TOKENS] = [7, 0, -1, 19, 12, 4];

/// Expected content of the caches if each number of the inputs is converted by `convert`.
fn stored<T: Element, C: Element>(
    inputs: &[Vec<T>; 2],
    convert: impl Fn(T, usize) -> C,
) -> [Vec<Option<C>>; 2] {
    let mut caches = [vec![None; CACHE], vec![None; CACHE]];
    for (token, slot) in MAPPING.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
        let (block, slot) = (*slot as usize / SLOTS, *slot as usize % SLOTS);
        for i in 0..WIDTH {
            let places = [key_place(block, slot, i), value_place(block, slot, i)];
            for k in 0..2 {
                caches[k][places[k]] = Some(convert(inputs[k][token * STRIDES[k] + i], k));
            }
        }
    }
    caches
}

fn tokens<T: Element>() -> [Vec<T>; 2] {
    let mut sequence = Sequence(62);
    STRIDES.map(|stride| {
        let sizes: Vec<T> = sequence.between(TOKENS * stride, 0.1, 30.0);
        sizes.iter().map(|size| if sequence.next() & 1 == 0 { *size } else { T::of(-size.value()) }).collect()
    })
}

fn store_case<T: Element, C: Element>(
    name: String,
    inputs: &[Vec<T>; 2],
    caches: &[Vec<Option<C>>; 2],
    scales: &[f32],
) -> Case {
    let mut case = Case::new(CORPUS, "reshape_and_cache.metal", name)
        .input(&inputs[0])
        .input(&inputs[1])
        .output(&caches[0])
        .output(&caches[1])
        .input(&MAPPING);
    for scale in scales {
        case = case.input(&[*scale]);
    }
    for number in [STRIDES[0], STRIDES[1], HEADS, SIZE, SLOTS, X] {
        case = case.value([number as i32]);
    }
    case.constants(Constants::new().set(10, !scales.is_empty())).groups(TOKENS, 7)
}

fn store<T: Element>(name: &str) -> Case {
    let inputs = tokens::<T>();
    let caches = stored(&inputs, |value, _| value);
    store_case(format!("reshape_and_cache_kv_{name}_cache_{name}"), &inputs, &caches, &[])
}

/// The scales are powers of two, so the division is exact.
fn store_fp8<T: Element>(name: &str) -> Case {
    let (inputs, scales) = (tokens::<T>(), [0.5, 2.0]);
    let caches = stored(&inputs, |value, k| nearest_e4m3(value.value() / f64::from(scales[k])));
    store_case(format!("reshape_and_cache_kv_{name}_cache_uchar"), &inputs, &caches, &scales)
}

/// Rounds to E4M3, ties to even, for magnitudes from 2⁻⁶ to 240.
fn nearest_e4m3(value: f64) -> u8 {
    let exponent = value.abs().log2().floor();
    let significand = ((value.abs() / exponent.exp2() - 1.0) * 8.0).round_ties_even();
    ((exponent + 7.0) * 8.0 + significand) as u8 | if value < 0.0 { 128 } else { 0 }
}

/// Start of the tokens of three sequences of 4, 6 and 1 tokens, and the blocks of each sequence.
const STARTS: [i32; 4] = [0, 4, 10, 11];
const TABLE: [[i32; 3]; 3] = [[2, -1, -1], [3, 0, -1], [1, -1, -1]];

fn load_case<C: Element, T: Element>(
    name: String,
    scales: &[f32],
    caches: &[Vec<C>; 2],
    convert: impl Fn(C, usize) -> T,
) -> Case {
    let tokens = STARTS[3] as usize;
    let mut want = [Vec::new(), Vec::new()];
    for token in 0..tokens {
        let sequence = STARTS.iter().filter(|start| **start as usize <= token).count() - 1;
        let place = token - STARTS[sequence] as usize;
        let (block, slot) = (TABLE[sequence][place / SLOTS] as usize, place % SLOTS);
        for i in 0..WIDTH {
            want[0].push(convert(caches[0][key_place(block, slot, i)], 0));
            want[1].push(convert(caches[1][value_place(block, slot, i)], 1));
        }
    }
    let [keys, values] = want;
    let mut case = Case::new(CORPUS, "gather_kv_cache.metal", name)
        .input(&caches[0])
        .input(&caches[1])
        .full_output(keys)
        .full_output(values);
    for scale in scales {
        case = case.input(&[*scale]);
    }
    case = case.input(TABLE.as_flattened()).input(&STARTS);
    for number in [tokens, TABLE.len(), SLOTS, TABLE[0].len(), HEADS, SIZE, X] {
        case = case.value([number as i32]);
    }
    // One more threadgroup than there are tokens.
    case.constants(Constants::new().set(10, !scales.is_empty())).groups(tokens + 1, 7)
}

fn load<T: Element>(name: &str) -> Case {
    let mut sequence = Sequence(63);
    let caches: [Vec<T>; 2] = [0; 2].map(|_| sequence.between(CACHE, -30.0, 30.0));
    load_case(format!("gather_kv_cache_cache_{name}_out_{name}"), &[], &caches, |value, _| value)
}

/// All bytes that are positive numbers; the product is rounded to float, then to the type.
fn load_fp8<T: Element>(name: &str) -> Case {
    let mut sequence = Sequence(64);
    let caches = [0; 2].map(|_| sequence.between::<u8>(CACHE, 0.0, 127.0));
    let scales = [0.3_f32, 1.7];
    let value = |byte: u8| match byte >> 3 {
        0 => f64::from(byte) * 2f64.powi(-9),
        exponent => (1.0 + f64::from(byte & 7) / 8.0) * 2f64.powi(i32::from(exponent) - 7),
    };
    load_case(format!("gather_kv_cache_cache_uchar_out_{name}"), &scales, &caches, |byte, k| {
        T::of(f64::from((T::of(value(byte)).value() * f64::from(scales[k])) as f32))
    })
}

/// The scale becomes the maximum magnitude over 240 if it was smaller; the threadgroups combine it with an atomic maximum of floats.
fn scale_update<T: Element>(name: &str) -> Case {
    let (count, group, groups) = (1003, 32, 3);
    let mut sequence = Sequence(65);
    let inputs: [Vec<T>; 2] = [0; 2].map(|_| sequence.between(count, -500.0, 500.0));
    let scale = |input: &[T]| input.iter().map(|v| v.value().abs()).fold(0.0, f64::max) / 240.0;
    let near = |value: f64| vec![(value, 5.0 * f32::ROUNDING * value)];
    let mut case = Case::new(CORPUS, "kv_scale_update.metal", format!("kv_scale_update_{name}"))
        .input(&inputs[0])
        .input(&inputs[1])
        .updated_near(&[0.25_f32, 7.0], near(scale(&inputs[0])), "2.5 ulp of a division in fast math")
        // Already larger, so it stays unchanged.
        .updated_near(&[9.0_f32, 7.0], vec![(9.0, 0.0)], EXACT)
        .value([count as i64])
        .threadgroup(group * 4)
        .threadgroup(group * 4)
        .groups(groups, group);
    case.tolerance = "2.5 ulp of a division in fast math";
    case
}
