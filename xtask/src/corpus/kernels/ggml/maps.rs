//! ggml's element-wise kernels: arithmetic with broadcast, unary functions, gated units, optimizer steps.
//!
//! Unless a comment says otherwise, the kernels compute in float, regardless of the type of their arrays.

use elinvar::{Constants, f16};

use super::super::candle::unary::erf;
use super::super::case::{Case, Near};
use super::super::element::Member::{F32, I32, I64, U64};
use super::super::element::{Element, Sequence, packed};
use super::super::tensor::Tensor;

const CORPUS: &str = "llama-cpp-sys-2";
const FLOAT: f64 = f32::ROUNDING;

pub fn cases() -> Vec<Case> {
    vec![
        binary::<f32>("f32_f32_f32", 3),
        binary::<f16>("f16_f16_f16", 2),
        rows(),
        add_id(),
        unary::<f32>("f32_f32", GELU),
        unary::<f16>("f16_f16", SOFTPLUS),
        unary_4::<f32>("f32_f32_4", HARDSWISH),
        unary_4::<f16>("f16_f16_4", ELU),
        silu_back(),
        gated::<f32>("reglu_f32", |x| (x.max(0.0), 0.0)),
        gated::<f16>("geglu_f16", gelu),
        gated::<f32>("swiglu_f32", silu),
        gated::<f16>("swiglu_f16", silu),
        gated::<f32>("geglu_erf_f32", gelu_erf),
        gated::<f32>("geglu_quick_f32", |x| silu_of(x, 1.702)),
        adamw(),
        sgd(),
    ]
}

pub fn sigmoid(x: f64) -> f64 {
    (1.0 + (-x).exp()).recip()
}

/// `x · sigmoid(factor · x)`: exp within 3 + |2x| ulp, then an addition, a division and a product.
fn silu_of(x: f64, factor: f64) -> Near {
    let value = x * sigmoid(factor * x);
    (value, 2.0 * FLOAT * (9.0 + 2.0 * (factor * x).abs()) * value.abs())
}

pub fn silu(x: f64) -> Near {
    silu_of(x, 1.0)
}

/// Six roundings in the argument of tanh, which tanh attenuates, tanh within 5 ulp, three roundings after it: 10 roundings of |x|.
fn gelu(x: f64) -> Near {
    let slope = 0.797_884_560_802_865_4;
    (0.5 * x * (1.0 + (slope * x * (1.0 + 0.044_715 * x * x)).tanh()), 10.0 * FLOAT * x.abs())
}

pub fn gelu_erf(x: f64) -> Near {
    (0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)), 32.0 * FLOAT * x.abs())
}

/// A function of the kernel with all unary functions, by its number.
struct Unary {
    number: i16,
    near: fn(f64) -> Near,
    tolerance: &'static str,
}

const GELU: Unary = Unary { number: 103, near: gelu, tolerance: "gelu: 10 roundings of float of |x|" };
const SOFTPLUS: Unary = Unary {
    number: 115,
    near: |x| if x > 20.0 { (x, 0.0) } else { (x.exp().ln_1p(), 2.0 * FLOAT * (3.0 + 2.0 * x.abs() + 8.0)) },
    tolerance: "softplus: exp and log in float, 11 + |2x| ulp of 1.0; one rounding of half",
};
const HARDSWISH: Unary = Unary {
    number: 112,
    near: |x| (x * (x / 6.0 + 0.5).clamp(0.0, 1.0), 8.0 * FLOAT * x.abs()),
    tolerance: "hardswish: a division of 2.5 ulp, a sum, a product: 8 roundings of |x|",
};
const ELU: Unary = Unary {
    number: 107,
    near: |x| if x > 0.0 { (x, 0.0) } else { (x.exp_m1(), 2.0 * FLOAT * 12.0) },
    tolerance: "elu: exp within 3 + |2x| ulp of 1.0 in float; one rounding of half",
};

/// Adds the error of rounding to the type of the array.
pub fn rounded<T: Element>((value, error): Near) -> Near {
    (value, if T::SHORT == "f32" { error } else { error + T::ROUNDING * value.abs() + 2f64.powi(-25) })
}

fn unary_case<T: Element>(
    name: &str,
    function: &Unary,
    contiguous: bool,
    tensors: [&Tensor; 2],
    numbers: usize,
) -> Case {
    let [source, target] = tensors;
    let input: Vec<T> = Sequence(81).between(numbers, -4.5, 4.5);
    let want = if contiguous {
        input.iter().map(|x| rounded::<T>((function.near)(x.value()))).collect()
    } else {
        target.indices().map(|i| rounded::<T>((function.near)(input[source.place(i)].value()))).collect()
    };
    let members = [source.members(), target.members(), vec![F32(0.0); 6]].concat();
    Case::new(CORPUS, "unary.metal", format!("kernel_unary_{name}"))
        .bytes(packed(&members))
        .input(&input)
        .near::<T>(want, function.tolerance)
        .constants(Constants::new().set(1200, function.number).set(1201, contiguous))
}

fn unary<T: Element>(name: &str, function: Unary) -> Case {
    let size = size_of::<T>();
    let (source, target) = (Tensor::with_gap([37, 3, 2, 2], size, 3), Tensor::new([37, 3, 2, 2], size));
    // Two threadgroups for each row.
    unary_case::<T>(name, &function, false, [&source, &target], source.extent()).groups((3 * 2, 2, 2), 32)
}

/// Contiguous vectors of four.
fn unary_4<T: Element>(name: &str, function: Unary) -> Case {
    let vectors = Tensor::new([53, 1, 1, 1], 4 * size_of::<T>());
    unary_case::<T>(name, &function, true, [&vectors, &vectors], 4 * 53).groups(53, 1)
}

/// Function constants of the binary kernels: operation, number of operands, whether rows and columns are broadcast.
fn operation(number: i16, operands: i16, rows: bool, columns: bool) -> Constants {
    Constants::new().set(1300, number).set(1301, operands).set(1302, rows).set(1303, columns)
}

fn binary_members(left: &Tensor, right: &Tensor, target: &Tensor, offsets: [usize; 8]) -> Vec<u8> {
    let mut members = [left.members(), right.members(), target.members(), vec![U64(0)]].concat();
    members.extend(offsets.map(|offset| U64(offset as u64)));
    packed(&members)
}

/// One second operand, smaller in every dimension, of the same type as the arrays: operation 2 multiplies, 3 divides.
fn binary<T: Element>(name: &str, number: i16) -> Case {
    let size = size_of::<T>();
    let left = Tensor::with_gap([12, 6, 4, 2], size, 3);
    let (right, target) = (Tensor::with_gap([4, 3, 2, 1], size, 1), Tensor::new([12, 6, 4, 2], size));
    let mut sequence = Sequence(82);
    let (a, b): (Vec<T>, Vec<T>) =
        (sequence.between(left.extent(), -9.0, 9.0), sequence.between(right.extent(), 0.5, 4.0));
    let want = target.indices().map(|i| {
        let (x, y) =
            (a[left.place(i)].value(), b[right.place([0, 1, 2, 3].map(|k| i[k] % right.ne[k]))].value());
        if number == 2 { (x * y, 0.0) } else { (x / y, 5.0 * T::ROUNDING * (x / y).abs()) }
    });
    let want = want.collect();
    Case::new(CORPUS, "binbcast.metal", format!("kernel_bin_fuse_{name}"))
        .bytes(binary_members(&left, &right, &target, [0; 8]))
        .input(&a)
        .input(&b)
        .near::<T>(want, "2.5 ulp of a division in fast math, a product exactly")
        .constants(operation(number, 1, false, true))
        .groups((6, 4, 2), 8)
}

/// Two rows are added to every row, four elements at a time.
fn rows() -> Case {
    let (left, right) = (Tensor::new([7, 5, 1, 1], 16), Tensor::new([7, 1, 1, 1], 16));
    let mut sequence = Sequence(83);
    let (a, b): (Vec<f32>, Vec<f32>) =
        (sequence.between(140, -9.0, 9.0), sequence.between(2 * 28, -9.0, 9.0));
    let want = a.iter().enumerate().map(|(i, x)| {
        let (x, y, z) = (x.value(), b[i % 28].value(), b[28 + i % 28].value());
        (x + y + z, 2.0 * FLOAT * (x.abs() + y.abs() + z.abs()))
    });
    let want = want.collect();
    Case::new(CORPUS, "binbcast.metal", "kernel_bin_fuse_f32_f32_f32_4")
        .bytes(binary_members(&left, &right, &left, [0, 28 * 4, 0, 0, 0, 0, 0, 0]))
        .input(&a)
        .input(&b)
        .near::<f32>(want, "two roundings of the sum of magnitudes")
        .constants(operation(0, 2, true, true))
        .groups((7, 5), 1)
}

/// Adds to each row another row, by index.
fn add_id() -> Case {
    let (width, rows, batches) = (19, 3, 4);
    let mut sequence = Sequence(84);
    let (a, b): (Vec<f32>, Vec<f32>) =
        (sequence.between(width * rows * batches, -9.0, 9.0), sequence.between(width * 8, -9.0, 9.0));
    let ids: Vec<i32> = sequence.between(rows * batches, 0.0, 8.0);
    let want = a.iter().enumerate().map(|(i, x)| x + b[ids[i / width] as usize * width + i % width]);
    let want: Vec<f32> = want.collect();
    let bytes = |n: usize| U64((n * 4) as u64);
    let members =
        [I64(width as i64), I64(rows as i64), bytes(width), bytes(width * rows), bytes(width), bytes(rows)];
    Case::new(CORPUS, "binbcast.metal", "kernel_add_id")
        .bytes(packed(&members))
        .input(&a)
        .input(&b)
        .input(&ids)
        .full_output(want)
        .groups((rows, batches), 8)
}

fn silu_back() -> Case {
    let mut sequence = Sequence(85);
    let (dy, x): (Vec<f32>, Vec<f32>) = (sequence.between(203, -2.0, 2.0), sequence.between(203, -5.0, 5.0));
    let want = dy.iter().zip(&x).map(|(dy, x)| {
        let (dy, x, s) = (dy.value(), x.value(), sigmoid(x.value()));
        let value = dy * s * (1.0 + x * (1.0 - s));
        (value, 2.0 * FLOAT * (20.0 + 4.0 * x.abs()) * (dy * s).abs() * (1.0 + x.abs()))
    });
    let want = want.collect();
    Case::new(CORPUS, "unary.metal", "kernel_silu_back_f32")
        .bytes(packed(&[I64(203)]))
        .input(&dy)
        .input(&x)
        .near::<f32>(
            want,
            "20 + |4x| ulp of |dy·s|·(1 + |x|): exp and a division, used twice, and five operations",
        )
        .threads(224, 32)
}

/// `activation(x0) * x1`, with both from parts of rows.
pub fn gated<T: Element>(name: &str, activation: fn(f64) -> Near) -> Case {
    let (width, rows, strides, starts) = (21, 5, [50, 47], [3, 24]);
    let mut sequence = Sequence(86);
    let sources: [Vec<T>; 2] = [0, 1].map(|k| sequence.between(rows * strides[k], -4.0, 4.0));
    let want = (0..rows * width).map(|i| {
        let [x0, x1] = [0, 1].map(|k| sources[k][i / width * strides[k] + starts[k] + i % width].value());
        let (factor, error) = activation(x0);
        let value = factor * x1;
        rounded::<T>((value, error * x1.abs() + FLOAT * value.abs()))
    });
    let want = want.collect();
    let bytes = |n: usize| U64((n * size_of::<T>()) as u64);
    let members = [
        I32(strides[0] as i32),
        bytes(strides[0]),
        I32(strides[1] as i32),
        bytes(strides[1]),
        I32(width as i32),
        bytes(width),
        I32(starts[0] as i32),
        I32(starts[1] as i32),
        F32(0.0),
        F32(0.0),
    ];
    Case::new(CORPUS, "unary.metal", format!("kernel_{name}"))
        .bytes(packed(&members))
        .input(&sources[0])
        .input(&sources[1])
        .near::<T>(
            want,
            "the activation in float (9 + |2x| ulp with exp, 10 u·|x| with tanh, 32 with erf), a product",
        )
        .groups(rows, 8)
}

fn adamw() -> Case {
    let count = 91;
    let mut sequence = Sequence(87);
    let [x, g, m]: [Vec<f32>; 3] = [0; 3].map(|_| sequence.between(count, -1.0, 1.0));
    let v: Vec<f32> = sequence.between(count, 0.1, 1.0);
    let parameters = [0.01_f32, 0.9, 0.99, 1e-6, 0.1, 1.5, 1.2];
    let [alpha, beta1, beta2, eps, decay, beta1h, beta2h] = parameters.map(f64::from);
    let mut want = [Vec::new(), Vec::new(), Vec::new()];
    for i in 0..count {
        let (x, g) = (x[i].value(), g[i].value());
        let new_m = m[i].value() * beta1 + g * (1.0 - beta1);
        let new_v = v[i].value() * beta2 + g * g * (1.0 - beta2);
        let step = alpha * new_m * beta1h / ((new_v * beta2h).sqrt() + eps);
        want[0].push((x * (1.0 - alpha * decay) - step, FLOAT * (4.0 * x.abs() + 24.0 * alpha * 3.0)));
        want[1].push((new_m, 4.0 * FLOAT));
        want[2].push((new_v, 4.0 * FLOAT));
    }
    let [near_x, near_m, near_v] = want;
    let tolerance = "4 roundings of moments below 1; those, a root, a division and four products in the step";
    Case::new(CORPUS, "misc.metal", "kernel_opt_step_adamw_f32")
        .bytes(packed(&[I64(count as i64)]))
        .updated_near(&x, near_x, tolerance)
        .input(&g)
        .updated_near(&m, near_m, tolerance)
        .updated_near(&v, near_v, tolerance)
        .input(&parameters)
        .threads(96, 32)
}

fn sgd() -> Case {
    let count = 91;
    let mut sequence = Sequence(88);
    let [x, g]: [Vec<f32>; 2] = [0; 2].map(|_| sequence.between(count, -1.0, 1.0));
    let parameters = [0.01_f32, 0.1];
    let [alpha, decay] = parameters.map(f64::from);
    let near = x.iter().zip(&g).map(|(x, g)| {
        (x.value() * (1.0 - alpha * decay) - alpha * g.value(), 5.0 * FLOAT * (x.value().abs() + alpha))
    });
    let near = near.collect();
    Case::new(CORPUS, "misc.metal", "kernel_opt_step_sgd_f32")
        .bytes(packed(&[I64(count as i64)]))
        .updated_near(&x, near, "five roundings")
        .input(&g)
        .input(&parameters)
        .threads(96, 32)
}
