//! Shaders of wgpu's examples, `wgpu_sort`, `wgsl-fft` and amari.

use super::{Case, Expected, Step, bytes, exactly, floats, words};

pub fn cases() -> Vec<Case> {
    vec![
        collatz(),
        boids(),
        sort("wgpu_sort::radix_sort_small", 300),
        sort("wgpu_sort::radix_sort", 20_000),
        fourier(),
        bit_reversal(),
        tropical(),
        clifford(),
        distances(),
    ]
}

/// Steps to 1, with the overflow of the original.
fn collatz() -> Case {
    let mut numbers: Vec<u32> = (0..300).collect();
    numbers.extend([77_031, 837_799, 159_487, 0x5555_5555, u32::MAX]);
    let steps = |number: &u32| {
        let (mut n, mut steps) = (u64::from(*number), 0);
        while n > 1 {
            if n % 2 == 1 && n >= 0x5555_5555 {
                return u32::MAX;
            }
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    Case {
        name: "wgpu::hello_compute",
        steps: vec![Step {
            file: "wgpu-0.13.1/examples.hello-compute.shader.wgsl",
            kernel: "main",
            groups: [numbers.len(), 1, 1],
            arrays: vec!["v_indices"],
            ..Step::default()
        }],
        expected: vec![("v_indices", exactly(&numbers.iter().map(steps).collect::<Vec<u32>>()))],
        memory: vec![("v_indices", bytes(&numbers))],
    }
}

/// A flock of birds, which see each other within distances; the workgroups have threads without a bird.
fn boids() -> Case {
    let parameters = [0.04_f32, 0.3, 0.125, 0.5, 0.02, 0.05, 0.005];
    let [time, near, close, wide, toward, away, along] = parameters;
    let source: Vec<[f32; 4]> = floats(4 * 150, 1)
        .as_chunks::<4>()
        .0
        .iter()
        .map(|x| [x[0] / 4.0, x[1] / 4.0, x[2] / 40.0, x[3] / 40.0])
        .collect();
    let advanced = |bird: &[f32; 4]| {
        let (mut mass, mut others, mut apart, mut speed, mut companions) =
            ([0.0; 2], 0.0, [0.0; 2], [0.0; 2], 0.0);
        for other in source.iter().filter(|other| *other != bird) {
            let distance = (other[0] - bird[0]).hypot(other[1] - bird[1]);
            for axis in 0..2 {
                if distance < near {
                    mass[axis] += other[axis];
                }
                if distance < close {
                    apart[axis] -= other[axis] - bird[axis];
                }
                if distance < wide {
                    speed[axis] += other[2 + axis];
                }
            }
            others += if distance < near { 1.0 } else { 0.0 };
            companions += if distance < wide { 1.0 } else { 0.0 };
        }
        let mut out = *bird;
        for axis in 0..2 {
            let center = if others > 0.0 { mass[axis] / others - bird[axis] } else { 0.0 };
            let common = if companions > 0.0 { speed[axis] / companions } else { 0.0 };
            out[2 + axis] += center * toward + apart[axis] * away + common * along;
        }
        let length = out[2].hypot(out[3]);
        for axis in 0..2 {
            out[2 + axis] *= length.clamp(0.0, 0.1) / length;
            out[axis] += out[2 + axis] * time;
            if out[axis] < -1.0 {
                out[axis] = 1.0;
            } else if out[axis] > 1.0 {
                out[axis] = -1.0;
            }
        }
        out
    };
    Case {
        name: "wgpu::boids",
        expected: vec![(
            "particlesDst",
            Expected::Floats(source.iter().flat_map(advanced).collect(), [2e-6; 2]),
        )],
        steps: vec![Step {
            file: "wgpu-0.13.1/examples.boids.compute.wgsl",
            kernel: "main",
            groups: [3, 1, 1],
            arrays: vec!["particlesSrc", "particlesDst"],
            ..Step::default()
        }],
        memory: vec![
            ("params", bytes(&parameters)),
            ("particlesSrc", bytes(&source)),
            ("particlesDst", vec![0; 150 * 16]),
        ],
    }
}

/// Keys of 32 bits with what belongs to them, in four passes in which workgroups wait for the sums of those before them.
fn sort(name: &'static str, count: usize) -> Case {
    const BLOCK: usize = 256 * 15;
    let file = "wgpu_sort-0.1.0/src.radix_sort.wgsl";
    let blocks = count.div_ceil(BLOCK);
    let padded = blocks * BLOCK;
    // Some keys come more than once.
    let mut keys: Vec<u32> = words(count, 2);
    (0..count / 4).for_each(|index| keys[4 * index] = keys[index]);
    let mut pairs: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
    pairs.sort_by_key(|pair| pair.0);
    let behind = |values: Vec<u32>, word: u32| [values, vec![word; padded - count]].concat();
    let arrays = vec!["histograms", "keys", "keys_b", "payload_a", "payload_b"];
    let step = |kernel, groups| Step {
        file,
        kernel,
        groups: [groups, 1, 1],
        arrays: arrays.clone(),
        ..Step::default()
    };
    let steps = [
        ("zero_histograms", blocks),
        ("calculate_histogram", blocks),
        ("prefix_histogram", 4),
        ("scatter_even", blocks),
        ("scatter_odd", blocks),
        ("scatter_even", blocks),
        ("scatter_odd", blocks),
    ];
    // What belongs to the keys of the padding, which are sorted behind all others, is not said.
    let sorted = behind(pairs.iter().map(|pair| pair.0).collect(), u32::MAX);
    Case {
        name,
        steps: steps.into_iter().map(|(kernel, groups)| step(kernel, groups)).collect(),
        memory: vec![
            ("infos", bytes(&[count as u32, padded as u32, 0, 0])),
            ("histograms", vec![0xee; (4 + blocks + 4) * 256 * 4]),
            ("keys", bytes(&behind(keys, 1))),
            ("keys_b", vec![0; 4 * padded]),
            ("payload_a", bytes(&behind((0..count as u32).collect(), 7))),
            ("payload_b", vec![0; 4 * padded]),
        ],
        expected: vec![
            ("keys", exactly(&sorted)),
            ("payload_a", exactly(&behind(pairs.iter().map(|pair| pair.1).collect(), 7))),
        ],
    }
}

/// Two transforms of 256 complex numbers in eight passes between two buffers.
fn fourier() -> Case {
    let n = 256_usize;
    let input = floats(4 * n, 4);
    let angle = |k: usize| -2.0 * std::f64::consts::PI * k as f64 / n as f64;
    let twiddle: Vec<[f32; 2]> = (0..n / 2).map(|k| [angle(k).cos() as f32, angle(k).sin() as f32]).collect();
    let mut expected = Vec::new();
    for signal in input.chunks(2 * n) {
        for k in 0..n {
            let (mut re, mut im) = (0.0, 0.0);
            for (index, x) in signal.as_chunks::<2>().0.iter().enumerate() {
                let (sin, cos) = angle(k * index % n).sin_cos();
                let (a, b) = (f64::from(x[0]), f64::from(x[1]));
                re += a * cos - b * sin;
                im += a * sin + b * cos;
            }
            expected.extend([re as f32, im as f32]);
        }
    }
    let pass = |index: u32| Step {
        file: "wgsl-fft-0.5.1/src.shaders.1.wgsl",
        kernel: "main",
        groups: [1, 2, 1],
        arrays: vec!["SRC", "DST", "TWIDDLE"],
        values: vec![("U", bytes(&[n as u32, 1 << index, 0, 0]))],
        exchange: (index > 0).then_some(("SRC", "DST")),
    };
    Case {
        name: "wgsl_fft::radix_2",
        steps: (0..8).map(pass).collect(),
        memory: vec![
            ("U", Vec::new()),
            ("SRC", bytes(&input)),
            ("DST", vec![0; 16 * n]),
            ("TWIDDLE", bytes(&twiddle)),
        ],
        expected: vec![("DST", Expected::Floats(expected, [2e-5; 2]))],
    }
}

fn bit_reversal() -> Case {
    let source: Vec<[u32; 2]> = words(2 * 2 * 512, 5).as_chunks::<2>().0.to_vec();
    let reversed = |index: usize| index & !511 | (index as u32 & 511).reverse_bits() as usize >> 23;
    let expected: Vec<[u32; 2]> = (0..source.len()).map(|index| source[reversed(index)]).collect();
    Case {
        name: "wgsl_fft::bit_reversal",
        steps: vec![Step {
            file: "wgsl-fft-0.5.1/src.shaders.4.wgsl",
            kernel: "main",
            groups: [2, 2, 1],
            arrays: vec!["src", "dst"],
            ..Step::default()
        }],
        memory: vec![
            ("params", bytes(&[512_u32, 9, 0, 0])),
            ("src", bytes(&source)),
            ("dst", vec![0; 16 * 512]),
        ],
        expected: vec![("dst", exactly(&expected))],
    }
}

/// A product of matrices of the numbers in which sums are maxima and products are sums.
fn tropical() -> Case {
    let (rows, inner, columns) = (37, 21, 45);
    let (a, b) = (floats(rows * inner, 9), floats(inner * columns, 10));
    let element = |index: usize| {
        let (i, j) = (index / columns, index % columns);
        (0..inner).map(|k| a[i * inner + k] + b[k * columns + j]).fold(f32::MIN, f32::max)
    };
    Case {
        name: "amari::tropical_matmul",
        steps: vec![Step {
            file: "amari-gpu-0.24.1/src.tropical.0.wgsl",
            kernel: "main",
            groups: [3, 3, 1],
            arrays: vec!["matrix_a", "matrix_b", "result"],
            ..Step::default()
        }],
        expected: vec![("result", exactly(&(0..rows * columns).map(element).collect::<Vec<f32>>()))],
        memory: vec![
            ("matrix_a", bytes(&a)),
            ("matrix_b", bytes(&b)),
            ("result", vec![0; rows * columns * 4]),
            ("params", bytes(&[rows as u32, inner as u32, columns as u32, 0])),
        ],
    }
}

/// Products of multivectors over the field of two elements, of which some generators square to 0.
fn clifford() -> Case {
    let mut pairs: Vec<[u32; 12]> = words(12 * 100, 11).as_chunks::<12>().0.to_vec();
    let mut expected = Vec::new();
    for pair in &mut pairs {
        pair[8] = pair[8] % 7 + 1;
        pair[9] %= pair[8] + 1;
        let (generators, degenerate) = (pair[8], pair[9]);
        let mask = ((1_u32 << generators) - 1) & !((1 << (generators - degenerate)) - 1);
        let has = |words: &[u32], blade: u32| words[blade as usize / 32] >> (blade % 32) & 1 == 1;
        let mut result = [0_u32; 4];
        for a in (0..1 << generators).filter(|a| has(&pair[..4], *a)) {
            for b in (0..1 << generators).filter(|b| has(&pair[4..8], *b)) {
                if a & b & mask == 0 {
                    result[(a ^ b) as usize / 32] ^= 1 << ((a ^ b) % 32);
                }
            }
        }
        expected.push(result);
    }
    Case {
        name: "amari::clifford_gf2",
        steps: vec![Step {
            file: "amari-gpu-0.24.1/src.gf2.0.wgsl",
            kernel: "main",
            groups: [2, 1, 1],
            arrays: vec!["input_data", "output_data"],
            ..Step::default()
        }],
        memory: vec![("input_data", bytes(&pairs)), ("output_data", vec![0xff; 100 * 16])],
        expected: vec![("output_data", exactly(&expected))],
    }
}

/// Distances between all pairs of points.
fn distances() -> Case {
    let points: Vec<[f32; 4]> = floats(4 * 43, 12).as_chunks::<4>().0.to_vec();
    let distance = |index: usize| {
        let (a, b) = (points[index / 43], points[index % 43]);
        (0..4).map(|axis| f64::from(a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt() as f32
    };
    Case {
        name: "amari::distances",
        steps: vec![Step {
            file: "amari-gpu-0.24.1/src.topology.0.wgsl",
            kernel: "main",
            groups: [6, 6, 1],
            arrays: vec!["points", "distances"],
            ..Step::default()
        }],
        expected: vec![("distances", Expected::Floats((0..43 * 43).map(distance).collect(), [1e-6; 2]))],
        memory: vec![("points", bytes(&points)), ("distances", vec![0xff; 43 * 43 * 4])],
    }
}
