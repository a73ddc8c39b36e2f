//! Kernels whose threads work together: reductions, sorting, softmax, normalization, pooling.

use super::{Case, Kind, bytes, floats, memory, number, words};

const REDUCE: &str = "candle-kernels-0.9.1/src/reduce.cu";
const ROWS: usize = 6;
const ROW: usize = 100;

/// Small whole numbers, whose sums are exact.
fn whole(count: usize, seed: u32) -> Vec<f32> {
    words(count, seed).into_iter().map(|x| (x >> 22) as f32 - 512.0).collect()
}

/// A reduction of each row by one block.
fn fast<R: bytemuck::NoUninit + Default>(kernel: &'static str, kind: Kind, f: impl Fn(&[f32]) -> R) -> Case {
    let input = whole(ROWS * ROW, 20);
    let expected: Vec<R> = input.chunks(ROW).map(f).collect();
    let out: Vec<R> = (0..ROWS).map(|_| R::default()).collect();
    let info: Vec<u64> = vec![ROWS as u64, ROW as u64, ROW as u64, 1];
    let args = vec![
        number((ROWS * ROW) as u64),
        number(ROW as u64),
        number(2u64),
        memory(&info),
        memory(&input),
        memory(&out),
    ];
    Case {
        file: REDUCE,
        kernel,
        groups: [ROWS as u32, 1, 1],
        group: [128, 1, 1],
        shared: 0,
        args,
        result: 2,
        expected: bytes(&expected),
        kind,
        ulp: 0,
    }
}

fn sort(kernel: &'static str, is_ascending: bool) -> Case {
    let input = floats(ROWS * ROW, 21);
    let mut expected: Vec<u32> = Vec::new();
    for row in input.chunks(ROW) {
        let mut order: Vec<u32> = (0..ROW as u32).collect();
        order.sort_by(|a, b| row[*a as usize].total_cmp(&row[*b as usize]));
        if !is_ascending {
            order.reverse();
        }
        expected.extend(order);
    }
    Case {
        file: "candle-kernels-0.9.1/src/sort.cu",
        kernel,
        groups: [1, ROWS as u32, 1],
        group: [128, 1, 1],
        shared: 128 * 4,
        args: vec![memory(&input), memory(&[0u32; ROWS * ROW]), number(ROW as i32), number(128i32)],
        result: 1,
        expected: bytes(&expected),
        kind: Kind::Exact(4),
        ulp: 0,
    }
}

/// Each row in `double`.
fn by_row(input: &[f32], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f32> {
    let rows = input.chunks(ROW).map(|row| row.iter().copied().map(f64::from).collect::<Vec<f64>>());
    rows.flat_map(|row| f(&row)).map(|x| x as f32).collect()
}

pub fn cases() -> Vec<Case> {
    let input = floats(ROWS * ROW, 22);
    let softmax = by_row(&input, |row| {
        let most = row.iter().copied().fold(f64::MIN, f64::max);
        let powers: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().map(|x| x / sum).collect()
    });
    let alpha = floats(ROW, 23);
    let beta = floats(ROW, 24);
    let root = by_row(&input, |row| {
        let mean = row.iter().map(|x| x * x).sum::<f64>() / ROW as f64;
        row.iter().zip(&alpha).map(|(x, a)| x / (mean + f64::from(1e-5f32)).sqrt() * f64::from(*a)).collect()
    });
    let shifted: Vec<f32> = input.iter().map(|x| x + 6.0).collect();
    let layer = by_row(&shifted, |row| {
        let mean = row.iter().sum::<f64>() / ROW as f64;
        let variance = row.iter().map(|x| x * x).sum::<f64>() / ROW as f64 - mean * mean;
        let scale = 1.0 / (variance + f64::from(1e-5f32)).sqrt();
        row.iter()
            .enumerate()
            .map(|(i, x)| (x - mean) * scale * f64::from(alpha[i]) + f64::from(beta[i]) + 40.0)
            .collect()
    });
    // The sum has a large part, so that cancellation does not count in the last places.
    let high: Vec<f32> = beta.iter().map(|x| x + 40.0).collect();
    let row_case = |kernel, groups, group, args, expected: &[f32], ulp| Case {
        file: REDUCE,
        kernel,
        groups,
        group,
        shared: 0,
        args,
        result: 1,
        expected: bytes(expected),
        kind: Kind::F32,
        ulp,
    };
    let out = memory(&[0f32; ROWS * ROW]);
    let rows = ROWS as u32;
    let mut all = vec![
        fast("fast_sum_f32", Kind::F32, |row| row.iter().sum::<f32>()),
        fast("fast_max_f32", Kind::F32, |row| row.iter().copied().fold(f32::MIN, f32::max)),
        fast("fast_min_f32", Kind::F32, |row| row.iter().copied().fold(f32::MAX, f32::min)),
        sort("asort_asc_f32", true),
        sort("asort_desc_f32", false),
        row_case(
            "softmax_f32",
            [rows, 1, 1],
            [1, 32, 1],
            vec![memory(&input), out.clone(), number(ROW as i32)],
            &softmax,
            16,
        ),
        row_case(
            "rmsnorm_f32",
            [rows, 1, 1],
            // All 32 sums of warps are read.
            [1024, 1, 1],
            vec![
                memory(&input),
                out.clone(),
                memory(&alpha),
                number(ROW as i32),
                number(1024i32),
                number(1e-5f32),
            ],
            &root,
            8,
        ),
        row_case(
            "layernorm_f32",
            [rows, 1, 1],
            [1024, 1, 1],
            vec![
                memory(&shifted),
                out.clone(),
                memory(&alpha),
                memory(&high),
                number(ROW as i32),
                number(1024i32),
                number(1e-5f32),
            ],
            &layer,
            32,
        ),
    ];
    all.extend([rotate(), sum(), pool()]);
    all
}

/// Rotary embedding of interleaved pairs.
fn rotate() -> Case {
    let (bh, td) = (4u32, 60u32);
    let input = whole((bh * td) as usize, 25);
    let (c, s) = (whole(30, 26), whole(30, 27));
    let mut expected = Vec::new();
    for (pair, values) in input.chunks(2).enumerate() {
        let (c, s) = (c[pair % 30], s[pair % 30]);
        expected.extend([values[0] * c - values[1] * s, values[0] * s + values[1] * c]);
    }
    let out = vec![0.5f32; expected.len()];
    Case {
        file: REDUCE,
        kernel: "rope_i_f32",
        groups: [4, 1, 1],
        group: [32, 1, 1],
        shared: 0,
        args: vec![
            memory(&input),
            memory(&c),
            memory(&s),
            memory(&out),
            number(bh),
            number(td),
            number(0u32),
        ],
        result: 3,
        expected: bytes(&expected),
        kind: Kind::F32,
        ulp: 0,
    }
}

/// Sums over the last dimension by atomic additions.
fn sum() -> Case {
    let input = whole(ROWS * ROW, 28);
    let expected: Vec<f32> = input.chunks(ROW).map(|row| row.iter().sum()).collect();
    // Shape and strides; of the summed dimension length and stride.
    let info: Vec<u64> = vec![ROWS as u64, ROW as u64, ROW as u64, 1, ROW as u64, 1];
    Case {
        file: REDUCE,
        kernel: "sum_f32",
        groups: [5, 1, 1],
        group: [128, 1, 1],
        shared: 0,
        args: vec![
            number((ROWS * ROW) as u64),
            number(2u64),
            number(1u64),
            memory(&info),
            memory(&input),
            memory(&[0f32; ROWS]),
        ],
        result: 2,
        expected: bytes(&expected),
        kind: Kind::F32,
        ulp: 0,
    }
}

/// The largest element of windows of 2 × 3.
fn pool() -> Case {
    let (batch, channels, width, height) = (2usize, 3, 8, 9);
    let input = floats(batch * channels * width * height, 29);
    let mut expected = Vec::new();
    for plane in input.chunks(width * height) {
        for x in 0..4 {
            for y in 0..3 {
                let window =
                    (0..2).flat_map(|i| (0..3).map(move |j| plane[(2 * x + i) * height + 3 * y + j]));
                expected.push(window.fold(f32::MIN, f32::max));
            }
        }
    }
    let info: Vec<u64> =
        [batch, channels, width, height, channels * width * height, width * height, height, 1]
            .map(|x| x as u64)
            .to_vec();
    let out = vec![0f32; expected.len()];
    Case {
        file: "candle-kernels-0.9.1/src/conv.cu",
        kernel: "max_pool2d_f32",
        groups: [2, 1, 1],
        group: [64, 1, 1],
        shared: 0,
        args: vec![
            number(input.len() as u64),
            number(2u64),
            number(3u64),
            number(2u64),
            number(3u64),
            memory(&info),
            memory(&input),
            memory(&out),
        ],
        result: 2,
        expected: bytes(&expected),
        kind: Kind::F32,
        ulp: 0,
    }
}
