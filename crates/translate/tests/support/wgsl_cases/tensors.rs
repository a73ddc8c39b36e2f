//! Shaders of `web-rwkv`, a language model, and of `wgebra`, linear algebra.

use super::{Case, Expected, Step, bytes, exactly, floats, halves, words};

pub fn cases() -> Vec<Case> {
    vec![
        softmax("web_rwkv::softmax", "web-rwkv-0.10.20/src.shaders.softmax.wgsl", false),
        softmax("web_rwkv::softmax_fp16", "web-rwkv-0.10.20/src.shaders.softmax_fp16.wgsl", true),
        softmax("web_rwkv::softmax_subgroups", "web-rwkv-0.10.20/src.shaders.subgroup.softmax.wgsl", false),
        layer_norm(),
        pointwise("web_rwkv::affine", "web-rwkv-0.10.20/src.shaders.affine.wgsl", "affine", "shape", |x| {
            0.5 * x + 0.25
        }),
        pointwise("web_rwkv::silu", "web-rwkv-0.10.20/src.shaders.activation.wgsl", "act", "view", silu),
        matrix_vector(),
        matrix_matrix(),
        minima_and_maxima(),
        gemv(),
        reduction(),
    ]
}

/// Elements of a row, rows and matrices of a tensor.
const CHANNELS: usize = 1036;
const TOKENS: usize = 3;
const BATCHES: usize = 2;

fn silu(x: f32) -> f32 {
    (f64::from(x) / (1.0 + (-f64::from(x)).exp())) as f32
}

/// `shape`, `stride` and `offset` of a tensor.
fn view(columns: usize, rows: usize, batches: usize) -> Vec<u8> {
    let shape = [columns as u32, rows as u32, batches as u32, 1];
    bytes(&[shape, shape, [0; 4]])
}

fn shape() -> Vec<u8> {
    bytes(&[CHANNELS as u32, TOKENS as u32, BATCHES as u32, 1])
}

fn softmax(name: &'static str, file: &'static str, is_half: bool) -> Case {
    let count = CHANNELS * TOKENS * BATCHES;
    let (memory, values) = match is_half {
        true => halves(count, 21),
        false => (bytes(&floats(count, 21)), floats(count, 21)),
    };
    let mut expected = Vec::new();
    for row in values.chunks(CHANNELS) {
        let largest = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
        let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        expected.extend(powers.iter().map(|x| (x / sum) as f32));
    }
    let expected = match is_half {
        true => Expected::Halves(expected, [1e-3, 6e-8]),
        false => Expected::Floats(expected, [3e-6, 0.0]),
    };
    let kernel = "softmax";
    let groups = [1, TOKENS, BATCHES];
    Case {
        name,
        steps: vec![Step { file, kernel, groups, arrays: vec!["x"], ..Step::default() }],
        memory: vec![("shape", shape()), ("x", memory)],
        expected: vec![("x", expected)],
    }
}

fn layer_norm() -> Case {
    let values = floats(CHANNELS * TOKENS * BATCHES, 22);
    let ((weights, w), (biases, b)) = (halves(CHANNELS, 23), halves(CHANNELS, 24));
    let mut expected = Vec::new();
    for row in values.chunks(CHANNELS) {
        let n = CHANNELS as f64;
        let mean = row.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let variance = row.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
        let scale = 1.0 / (variance + 0.00001).sqrt();
        let element = |(i, x): (usize, &f32)| {
            ((f64::from(*x) - mean) * scale * f64::from(w[i]) + f64::from(b[i])) as f32
        };
        expected.extend(row.iter().enumerate().map(element));
    }
    Case {
        name: "web_rwkv::layer_norm",
        steps: vec![Step {
            file: "web-rwkv-0.10.20/src.shaders.layer_norm.wgsl",
            kernel: "layer_norm",
            groups: [1, TOKENS, BATCHES],
            arrays: vec!["w", "b", "x"],
            ..Step::default()
        }],
        memory: vec![("shape", shape()), ("w", weights), ("b", biases), ("x", bytes(&values))],
        expected: vec![("x", Expected::Floats(expected, [2e-6; 2]))],
    }
}

fn pointwise(
    name: &'static str,
    file: &'static str,
    kernel: &'static str,
    uniform: &'static str,
    function: fn(f32) -> f32,
) -> Case {
    let values = floats(CHANNELS * TOKENS * BATCHES, 25);
    let layout = if uniform == "view" { view(CHANNELS, TOKENS, BATCHES) } else { shape() };
    let groups = [CHANNELS.div_ceil(4 * 128), TOKENS, BATCHES];
    Case {
        name,
        steps: vec![Step { file, kernel, groups, arrays: vec!["x"], ..Step::default() }],
        expected: vec![("x", Expected::Floats(values.iter().map(|x| function(*x)).collect(), [1e-6; 2]))],
        memory: vec![(uniform, layout), ("x", bytes(&values))],
    }
}

/// Products of matrices of halves with vectors, and the activation of each element.
fn matrix_vector() -> Case {
    let rows = 20;
    let (matrix, m) = halves(rows * CHANNELS * BATCHES, 26);
    let values = floats(CHANNELS * TOKENS * BATCHES, 27);
    let element = |index: usize| {
        let (row, token, batch) = (index % rows, index / rows % TOKENS, index / rows / TOKENS);
        let m = &m[(batch * rows + row) * CHANNELS..][..CHANNELS];
        let x = &values[(batch * TOKENS + token) * CHANNELS..][..CHANNELS];
        silu(m.iter().zip(x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32)
    };
    Case {
        name: "web_rwkv::matmul_vec",
        expected: vec![(
            "output",
            Expected::Floats((0..rows * TOKENS * BATCHES).map(element).collect(), [2e-4; 2]),
        )],
        steps: vec![Step {
            file: "web-rwkv-0.10.20/src.shaders.matmul_vec_fp16.wgsl",
            kernel: "matmul",
            groups: [rows / 4, TOKENS, BATCHES],
            arrays: vec!["matrix_", "input", "output"],
            ..Step::default()
        }],
        memory: vec![
            ("shape", bytes(&[CHANNELS as u32, rows as u32, BATCHES as u32, 1])),
            ("source", view(CHANNELS, TOKENS, BATCHES)),
            ("destination", view(rows, TOKENS, BATCHES)),
            ("matrix_", matrix),
            ("input", bytes(&values)),
            ("output", vec![0; rows * TOKENS * BATCHES * 4]),
        ],
    }
}

/// Products of matrices in tiles of threadgroup memory, at sizes that are no multiples of the tiles.
fn matrix_matrix() -> Case {
    let (inner, rows, columns) = (76, 40, 36);
    let (a_memory, a) = halves(rows * inner * BATCHES, 28);
    let b = floats(columns * inner * BATCHES, 29);
    let element = |index: usize| {
        let (row, column, batch) = (index % rows, index / rows % columns, index / rows / columns);
        let a = &a[(batch * rows + row) * inner..][..inner];
        let b = &b[(batch * columns + column) * inner..][..inner];
        silu(a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32)
    };
    Case {
        name: "web_rwkv::matmul_mat",
        expected: vec![(
            "output",
            Expected::Floats((0..rows * columns * BATCHES).map(element).collect(), [5e-5; 2]),
        )],
        steps: vec![Step {
            file: "web-rwkv-0.10.20/src.shaders.matmul_mat_fp16.wgsl",
            kernel: "matmul",
            groups: [2, 2, BATCHES],
            arrays: vec!["xa", "xb", "output"],
            ..Step::default()
        }],
        memory: vec![
            ("va", view(inner, rows, BATCHES)),
            ("vb", view(inner, columns, BATCHES)),
            ("destination", view(rows, columns, BATCHES)),
            ("xa", a_memory),
            ("xb", bytes(&b)),
            ("output", vec![0; rows * columns * BATCHES * 4]),
        ],
    }
}

/// The smallest and largest of each block of 128 halves, in one word.
fn minima_and_maxima() -> Case {
    let (memory, values) = halves(128 * 50, 30);
    let half = |x: f32| u32::from(half::f16::from_f32(x).to_bits());
    let word = |block: &[f32]| {
        half(block.iter().copied().fold(f32::MAX, f32::min))
            | half(block.iter().copied().fold(f32::MIN, f32::max)) << 16
    };
    Case {
        name: "web_rwkv::minmax_int8",
        expected: vec![("minmax", exactly(&values.chunks(128).map(word).collect::<Vec<u32>>()))],
        steps: vec![Step {
            file: "web-rwkv-0.10.20/src.shaders.quant_mat_int8.wgsl",
            kernel: "compute_minmax",
            groups: [1, 1, 1],
            arrays: vec!["input", "minmax", "output"],
            ..Step::default()
        }],
        memory: vec![
            ("len", bytes(&[100_u32, 0, 0, 0])),
            ("shape", bytes(&[128_u32, 50, 1, 1])),
            ("input", memory),
            ("minmax", vec![0; 200]),
            ("output", vec![0; 4]),
        ],
    }
}

/// A matrix in columns of 70 elements with one that is not used, times a vector, and once more added.
fn gemv() -> Case {
    let (rows, columns, stride) = (70, 33, 71);
    let (m, v) = (floats(stride * columns, 31), floats(columns, 32));
    let element = |i: usize| {
        2.0 * (0..columns).map(|j| f64::from(m[i + j * stride]) * f64::from(v[j])).sum::<f64>() as f32
    };
    let step = |kernel| Step {
        file: "wgebra-0.2.0/src.linalg.gemv.wgsl",
        kernel,
        groups: [2, 1, 1],
        arrays: vec!["out", "m", "v"],
        ..Step::default()
    };
    Case {
        name: "wgebra::gemv",
        steps: vec![step("gemv0"), step("gemv1")],
        expected: vec![("out", Expected::Floats((0..rows).map(element).collect(), [5e-5; 2]))],
        memory: vec![
            ("shape_out", bytes(&[rows as u32, 1, 0, 0])),
            ("shape_m", bytes(&[rows as u32, columns as u32, stride as u32, 0])),
            ("shape_v", bytes(&[columns as u32, 1, 0, 0])),
            ("out", vec![0xff; rows * 4]),
            ("m", bytes(&m)),
            ("v", bytes(&v)),
        ],
    }
}

/// The sum of a part of a buffer, of whole numbers.
fn reduction() -> Case {
    let values: Vec<f32> = words(1100, 33).iter().map(|x| (x % 1000) as f32).collect();
    Case {
        name: "wgebra::reduce",
        steps: vec![Step {
            file: "wgebra-0.2.0/src.linalg.reduce.wgsl",
            kernel: "main",
            groups: [1, 1, 1],
            arrays: vec!["input"],
            ..Step::default()
        }],
        expected: vec![("output", exactly(&[values[13..13 + 1001].iter().sum::<f32>()]))],
        memory: vec![
            ("shape", bytes(&[1001_u32, 1, 0, 13])),
            ("input", bytes(&values)),
            ("output", vec![0; 4]),
        ],
    }
}
