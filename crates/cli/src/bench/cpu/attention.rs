//! `attention_*`: flash attention of the crate candle-metal-kernels and of ggml, compared with two products per head by a library and a
//! softmax in Rust between them.

use elinvar::driver::Scalar;
use elinvar::{Arg, Buffer, Constants, Grid, Pod, Threadgroup, f16};

use super::super::cuda::candle;
use super::super::{Context, Measured};
use super::problem::{Agreement, Argument, Native, scattered};
use super::published::{self, Baselines, Published};
use super::softmax;
use super::team::Team;
use super::{blas, onednn};
use crate::failure::Result;

pub(super) const HEADS: usize = 8;
/// Number of queries, and of keys and values.
pub(super) const LENGTH: usize = 1024;
/// Elements of a query, key or value.
pub(super) const WIDTH: usize = 64;
/// Elements of all heads.
const ALL: usize = HEADS * LENGTH * WIDTH;
/// Exact, so that each implementation may apply it before or after the product.
const SCALE: f32 = 0.125;

/// Sums and products of floats.
pub fn candle_f32(context: &Context) -> Result<Measured> {
    of_candle::<f32>(context, "float32", 1e-5, |v| v, |v| v)
}

/// Halves, with sums of floats.
pub fn candle_f16(context: &Context) -> Result<Measured> {
    of_candle(context, "float16", 4e-3, f16::from_f32, f16::to_f32)
}

/// Queries, keys and values; multiples of 1/64, which a half represents.
fn inputs() -> Vec<Argument> {
    let numbers: Vec<f32> = scattered(3 * ALL, 257).map(|v| v as f32 / 64.0 - 2.0).collect();
    let parts = numbers.chunks_exact(ALL).map(|part| Argument::Floats(part.to_vec()));
    parts
        .chain([Argument::Floats(vec![0.0; ALL]), Argument::Floats(vec![0.0; HEADS * LENGTH * LENGTH])])
        .collect()
}

fn of_candle<T: Pod>(
    context: &Context,
    ty: &str,
    tolerance: f64,
    of: fn(f32) -> T,
    number: fn(T) -> f32,
) -> Result<Measured> {
    let device = &context.device;
    // Blocks of 32 queries and 32 keys, four simdgroups; aligned, without a mask, not causal.
    let name = format!("steel_attention_{ty}_bq32_bk32_bd{WIDTH}_wm4_wn1_mask{ty}");
    let constants = [(200, true), (201, true), (300, false), (301, false)];
    let constants = constants.into_iter().fold(Constants::new(), |all, (index, value)| all.set(index, value));
    let kernel =
        candle::library(device, "scaled_dot_product_attention.metal")?.kernel_with(&name, &constants)?;
    let args = inputs();
    let hold = |argument: &Argument| {
        let numbers: Vec<T> = argument.floats().iter().map(|v| of(*v)).collect();
        device.buffer_with_data(&numbers)
    };
    let (q, k, v) = (hold(&args[0])?, hold(&args[1])?, hold(&args[2])?);
    let params = device.buffer_with_data(&[candle_parameters()])?;
    let mut out: Buffer<T> = device.buffer(ALL)?;
    let given: Vec<Arg> = vec![(&q).into(), (&k).into(), (&v).into(), (&mut out).into(), (&params).into()];
    let ours = Published {
        kernel,
        stream: device.stream()?,
        grid: Grid::threads([LENGTH / 32 * 32, HEADS * 4]).group([32, 4]),
        args: given,
        result: Box::new(|| Ok(out.to_vec()?.into_iter().map(number).collect())),
    };
    measure(context, ours, args, &name, tolerance)
}

/// `AttnParams` of `scaled_dot_product_attention.metal`, as words of 8 bytes.
fn candle_parameters() -> [u64; 20] {
    let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
    let blocks = LENGTH / 32;
    let head = [
        pair(1, HEADS),
        pair(WIDTH, LENGTH),
        pair(LENGTH, 1),
        pair(SCALE.to_bits() as usize, 1.0f32.to_bits() as usize),
        pair(blocks, blocks),
        pair(blocks, blocks),
        0,
        0,
    ];
    let strides = [ALL as u64, (LENGTH * WIDTH) as u64, WIDTH as u64];
    std::array::from_fn(|i| if i < 8 { head[i] } else { strides[(i - 8) % 3] })
}

/// Keys and values are halves, queries and results floats.
pub fn ggml_f16(context: &Context) -> Result<Measured> {
    const QUERIES: usize = 8;
    const SIMDGROUPS: usize = 4;
    let device = &context.device;
    let name = format!("kernel_flash_attn_ext_f16_dk{WIDTH}_dv{WIDTH}");
    let flags = [300, 301, 302, 303, 304, 310];
    let constants = flags.into_iter().fold(Constants::new(), |all, index| all.set(index, false));
    let numbers = [(320, WIDTH), (321, WIDTH), (322, SIMDGROUPS)];
    let constants = numbers.into_iter().fold(constants, |all, (index, value)| all.set(index, value as i32));
    let kernel = published::ggml(device, "fa_f16.metal", &name, &constants)?;
    let args = inputs();
    let hold = |argument: &Argument| {
        let numbers: Vec<f16> = argument.floats().iter().map(|v| f16::from_f32(*v)).collect();
        device.buffer_with_data(&numbers)
    };
    let (q, k, v) = (device.buffer_with_data(args[0].floats())?, hold(&args[1])?, hold(&args[2])?);
    let params = device.buffer_with_data(&[ggml_parameters()])?;
    let (mut out, unused) = (device.buffer::<f32>(ALL)?, device.buffer::<u32>(16)?);
    // No mask, sinks, padding or blocks of a mask.
    let none = || Arg::from(&unused);
    let bytes = |buffer: Arg| buffer.of(Scalar::I8);
    let mut given = vec![(&params).into()];
    given.extend([(&q).into(), (&k).into(), (&v).into()].map(bytes));
    given.extend([none(), none(), none(), none(), (&mut out).into()].map(bytes));
    given.push(Threadgroup::bytes(2 * QUERIES * (WIDTH + 2 * WIDTH + 4 * 64)).into());
    let ours = Published {
        kernel,
        stream: device.stream()?,
        grid: Grid::threads([LENGTH / QUERIES * 32, HEADS * SIMDGROUPS]).group([32, SIMDGROUPS]),
        args: given,
        // Of each query, the heads: here, of each head, the queries.
        result: Box::new(|| {
            let rows = out.to_vec()?;
            let at = |i: usize| (i / WIDTH % LENGTH * HEADS + i / (WIDTH * LENGTH)) * WIDTH + i % WIDTH;
            Ok((0..ALL).map(|i| rows[at(i)]).collect())
        }),
    };
    measure(context, ours, args, &name, 4e-3)
}

/// `ggml_metal_kargs_flash_attn_ext`, as words of 8 bytes.
fn ggml_parameters() -> [u64; 24] {
    let pair = |low: usize, high: usize| low as u64 | (high as u64) << 32;
    let strides = |size: usize| [size * WIDTH, size * WIDTH * LENGTH, size * ALL].map(|bytes| bytes as u64);
    let ([q1, q2, q3], [k1, k2, k3]) = (strides(4), strides(2));
    let bits = |value: f32| value.to_bits() as usize;
    [
        pair(LENGTH, HEADS),
        1,
        q1,
        q2,
        q3,
        pair(LENGTH, HEADS),
        pair(1, WIDTH),
        k1,
        k2,
        k3,
        WIDTH as u64,
        k1,
        k2,
        k3,
        pair(1, 1),
        1,
        0,
        0,
        0,
        pair(HEADS, LENGTH),
        pair(1, bits(SCALE)),
        pair(bits(0.0), bits(1.0)),
        pair(bits(1.0), HEADS),
        0,
    ]
}

fn measure(
    context: &Context,
    ours: Published<'_>,
    args: Vec<Argument>,
    name: &str,
    tolerance: f64,
) -> Result<Measured> {
    let mut works: Vec<(&'static str, Native)> =
        vec![("gemm", |args, team| heads(args, team, blas::gemm_of))];
    if blas::openblas().is_ok() {
        works.push(("openblas", |args, team| heads(args, team, blas::sgemm_of)));
    }
    if onednn::onednn().is_ok() {
        works.push(("onednn", |args, team| heads(args, team, onednn::sgemm_of)));
    }
    let baselines = Baselines { works, args, result: 3, agreement: Agreement::Within(tolerance) };
    let work = Measured {
        size: format!("{name}: {HEADS} heads of {LENGTH} x {WIDTH}"),
        flops: Some(4 * (ALL * LENGTH) as u64),
        ..Measured::default()
    };
    published::measure(context, ours, baselines, work)
}

/// The attention of each head, with a library's product of matrices.
pub(super) fn heads(args: &mut [Argument], team: &Team, product: blas::Product) {
    let [q, k, v, out, scores] = args else { return };
    let (q, k, v) = (q.floats(), k.floats(), v.floats());
    let head = LENGTH * WIDTH;
    let out =
        out.floats_mut().chunks_exact_mut(head).zip(scores.floats_mut().chunks_exact_mut(LENGTH * LENGTH));
    let mut parts: Vec<_> = out.collect();
    team.share(&mut parts, 1, |first, parts| {
        for (number, (out, scores)) in parts.iter_mut().enumerate() {
            let at = (first + number) * head;
            let (q, k, v) = (&q[at..][..head], &k[at..][..head], &v[at..][..head]);
            product([LENGTH, LENGTH, WIDTH], SCALE, q, (k, true), scores);
            scores.chunks_exact_mut(LENGTH).for_each(softmax::in_place);
            product([LENGTH, WIDTH, LENGTH], 1.0, scores, (v, false), out);
        }
    });
}
