//! The `tensor` suite: tensor operations, compared with libraries and with copies of as many bytes.
//!
//! On the CPU, products are compared with OpenBLAS and oneDNN, attention with a library's products and a vectorized softmax. Operations that
//! memory bounds are compared with a copy on the device that moves as many bytes. The results of libraries are compared with ours first.

use std::path::PathBuf;
use std::time::Instant;

use elinvar::tensor::{
    Attention, Convolution, Element, Map, MatMul, Normalize, Operation, Plan, Route, Softmax, Statistics,
    TensorMut, TensorRef, Window,
};
use elinvar::{Buffer, Device, DeviceKind, Stream, bf16, f16};

use super::problem::{Agreement, Argument};
use super::team::Team;
use super::{attention, blas, onednn};
use crate::bench::cuda::{Dnn, DnnOperation, Product};
use crate::bench::{Context, Measured};
use crate::failure::Result;
use crate::report::median;

type Row = (&'static str, fn(&Context) -> Result<Measured>);

/// The benchmarks by name.
pub const ROWS: [Row; 31] = [
    ("tensor_matmul_f32_small", |context| small(context, Route::Auto)),
    ("tensor_matmul_f32_small_kernel", |context| small(context, Route::Kernel)),
    ("tensor_matmul_f32_256", |context| matmul(context, 256, Route::Auto)),
    ("tensor_matmul_f32_512", |context| matmul(context, 512, Route::Auto)),
    ("tensor_matmul_f32_1024", |context| matmul(context, 1024, Route::Auto)),
    ("tensor_matmul_f32_2048", |context| matmul(context, 2048, Route::Auto)),
    ("tensor_matmul_f32_256_kernel", |context| matmul(context, 256, Route::Kernel)),
    ("tensor_matmul_f32_512_kernel", |context| matmul(context, 512, Route::Kernel)),
    ("tensor_matmul_f32_1024_kernel", |context| matmul(context, 1024, Route::Kernel)),
    ("tensor_matmul_f32_2048_kernel", |context| matmul(context, 2048, Route::Kernel)),
    ("tensor_matmul_f32", |context| square::<f32>(context, Route::Auto)),
    ("tensor_matmul_f16", |context| square::<f16>(context, Route::Auto)),
    ("tensor_matmul_bf16", |context| square::<bf16>(context, Route::Auto)),
    ("tensor_matmul_f32_kernel", |context| square::<f32>(context, Route::Kernel)),
    ("tensor_matmul_f16_kernel", |context| square::<f16>(context, Route::Kernel)),
    ("tensor_matmul_bf16_kernel", |context| square::<bf16>(context, Route::Kernel)),
    ("tensor_conv_3x3_64", |context| convolution(context, Window64::of(3), Route::Auto)),
    ("tensor_conv_1x1_64", |context| convolution(context, Window64::of(1), Route::Auto)),
    ("tensor_conv_3x3_64_kernel", |context| convolution(context, Window64::of(3), Route::Kernel)),
    ("tensor_conv_3d_3x3x3_64", |context| {
        convolution(context, Window64 { volumes: true, ..Window64::of(3) }, Route::Auto)
    }),
    ("tensor_conv_transposed_4x4_64", |context| {
        convolution(context, Window64 { transposed: true, ..Window64::of(4) }, Route::Auto)
    }),
    ("tensor_batch_norm_inference", |context| batch_norm(context, Statistics::Given)),
    ("tensor_batch_norm_training", |context| batch_norm(context, Statistics::Saved)),
    ("tensor_softmax_rows", |context| softmax(context, [4096, 1024], 1)),
    ("tensor_softmax_short_rows", |context| softmax(context, [65_536, 256], 1)),
    ("tensor_softmax_long_rows", |context| softmax(context, [1024, 32_000], 1)),
    ("tensor_softmax_rows_f16", |context| softmax_of::<f16>(context, [4096, 4096], 1, |_, _, _| Ok(None))),
    ("tensor_softmax_columns", |context| softmax(context, [1024, 4096], 0)),
    ("tensor_attention_f32", attention_of_heads::<f32>),
    ("tensor_attention_f16", attention_of_heads::<f16>),
    ("tensor_transpose_f32", transpose),
];

/// Number of rounds, of which the median is reported, and their target duration.
const ROUNDS: usize = 9;
/// Before each measurement: threads of OpenMP spin for some milliseconds after a library's work, on the cores of the next one.
const SETTLING: std::time::Duration = std::time::Duration::from_millis(30);
const ROUND_NS: u64 = 20_000_000;

/// Runs something a number of times; returns the time of all in nanoseconds.
type Timed<'b> = Box<dyn FnMut(u64) -> Result<u64> + 'b>;

/// A baseline: its name, and its time for a number of iterations in nanoseconds; or why it is not there.
struct Baseline<'b> {
    name: &'static str,
    run: std::result::Result<Timed<'b>, String>,
}

impl<'b> Baseline<'b> {
    /// A library on the host.
    fn library(name: &'static str, absent: Option<&str>, mut work: impl FnMut() + 'b) -> Self {
        let run: Timed<'b> = Box::new(move |iterations| {
            let start = Instant::now();
            (0..iterations).for_each(|_| work());
            Ok(start.elapsed().as_nanos() as u64)
        });
        Self { name, run: absent.map_or(Ok(run), |why| Err(why.into())) }
    }

    /// A plan on the device.
    fn plan(name: &'static str, stream: &'b Stream, plan: Plan) -> Self {
        Self { name, run: Ok(Box::new(move |iterations| time(stream, &plan, iterations))) }
    }
}

/// Device time of a submission with the plan this often.
fn time(stream: &Stream, plan: &Plan, iterations: u64) -> Result<u64> {
    let mut commands = stream.command_buffer();
    for _ in 0..iterations {
        commands.tensor_plan(plan)?;
    }
    let timing = commands.submit()?.wait()?;
    Ok(timing.end_ns.saturating_sub(timing.start_ns))
}

/// Measures a plan and its baselines, interleaved.
fn measure(stream: &Stream, plan: &Plan, baselines: Vec<Baseline<'_>>, size: String) -> Result<Measured> {
    let size = format!("{size}; {}: {}", plan.route(), plan.algorithm());
    let mut measured =
        Measured { size, bytes: Some(plan.bytes()), flops: Some(plan.flops()), ..Measured::default() };
    let mut runs: Vec<(&'static str, Timed<'_>)> =
        vec![("ours", Box::new(|iterations| time(stream, plan, iterations)))];
    for Baseline { name, run } in baselines {
        match run {
            Ok(run) => runs.push((name, run)),
            Err(why) => measured.missing.push((name, why)),
        }
    }
    // The optimized code of a kernel replaces the first one in the background; it is waited for here.
    for _ in 0..3 {
        runs[0].1(1)?;
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let mut counts = Vec::new();
    for (_, run) in &mut runs {
        run(1)?;
        counts.push((ROUND_NS / run(1)?.max(1)).clamp(1, 1000));
    }
    let mut times = vec![Vec::new(); runs.len()];
    for _ in 0..ROUNDS {
        for (((_, run), count), times) in runs.iter_mut().zip(&counts).zip(&mut times) {
            std::thread::sleep(SETTLING);
            run(1)?;
            times.push(run(*count)? / count);
        }
    }
    let mut medians = runs.iter().map(|(name, _)| *name).zip(times.into_iter().map(median));
    measured.median_ns = medians.next().map_or(0, |(_, ns)| ns);
    measured.baselines = medians.collect();
    Ok(measured)
}

fn numbers(count: usize) -> Vec<f32> {
    super::problem::scattered(count, 65).map(|value| value as f32 / 16.0 - 2.0).collect()
}

fn plan(
    operation: impl Into<Operation>,
    inputs: &[&TensorRef<'_>],
    output: &mut TensorMut<'_>,
    route: Route,
) -> elinvar::Result<Plan> {
    Plan::new(operation, inputs, &mut [output], route)
}

/// Why a library of the host is no baseline here.
fn absence(device: &Device, library: std::result::Result<(), &'static str>) -> Option<&'static str> {
    if device.kind() == DeviceKind::Cpu {
        library.err()
    } else {
        Some("a library of the host, for the CPU device")
    }
}

/// Fails unless a library's result is ours.
fn agree(name: &str, ours: &Buffer<f32>, library: &[f32]) -> Result<()> {
    let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
    match Agreement::Within(1e-4).difference(&wide(&ours.to_vec()?), &wide(library)) {
        None => Ok(()),
        Some(text) => Err(elinvar::Error::DeviceLost(format!("{name}: {text}")).into()),
    }
}

/// The library of a GPU, called bare for a product of the same matrices; `None` on other devices.
fn bare<T: Number>(
    device: &Device,
    n: usize,
    left: &[T],
    right: &[T],
) -> Result<Option<std::result::Result<Product, String>>> {
    if device.kind() != DeviceKind::Cuda {
        return Ok(None);
    }
    let details = device.details();
    let path = details.into_iter().find(|(name, _)| *name == "cuBLASLt").map(|(_, path)| path);
    let Some(path) = path.map(PathBuf::from).filter(|path| path.exists()) else {
        return Ok(Some(Err("cuBLASLt is not installed".into())));
    };
    let [left, right] = [left, right].map(bytemuck::cast_slice);
    Product::new(&path, T::DATA_TYPE, n, left, right).map(Some)
}

/// Fails unless a product by the library called bare is ours.
fn agree_with_bare<T: Number>(ours: &Buffer<T>, library: &Product) -> Result<()> {
    library.device_time(1)?;
    let wide = |values: &[T]| values.iter().map(|value| value.wide()).collect::<Vec<_>>();
    let mut theirs = vec![T::of(0.0); ours.len()];
    bytemuck::cast_slice_mut(&mut theirs).copy_from_slice(&library.result()?);
    match Agreement::Within(1e-6).difference(&wide(&ours.to_vec()?), &wide(&theirs)) {
        None => Ok(()),
        Some(text) => Err(elinvar::Error::DeviceLost(format!("cuBLASLt: {text}")).into()),
    }
}

/// cuDNN called bare for the same operation, on a GPU; its result has to be ours.
fn bare_dnn<'b>(
    device: &Device,
    operation: &DnnOperation<'_>,
    inputs: &[&[f32]],
    ours: &Buffer<f32>,
) -> Result<Option<Baseline<'b>>> {
    if device.kind() != DeviceKind::Cuda {
        return Ok(None);
    }
    let path = device.details().into_iter().find(|(name, _)| *name == "cuDNN").map(|(_, path)| path);
    let missing = |why: String| Ok(Some(Baseline { name: "cudnn", run: Err(why) }));
    let Some(path) = path.map(PathBuf::from).filter(|path| path.exists()) else {
        return missing("cuDNN is not installed".into());
    };
    let library = match Dnn::new(&path, operation, inputs, ours.len())? {
        Ok(library) => library,
        Err(why) => return missing(why),
    };
    library.device_time(1)?;
    agree("cuDNN", ours, &library.result()?)?;
    let run: Timed<'b> = Box::new(move |iterations| library.device_time(iterations));
    Ok(Some(Baseline { name: "cudnn", run: Ok(run) }))
}

/// Sizes as cuDNN takes them.
fn sizes(shape: &[usize]) -> Vec<i32> {
    shape.iter().map(|size| *size as i32).collect()
}

/// Host time of each of many small products until all have ended, compared with as many calls of the library.
fn small(context: &Context, route: Route) -> Result<Measured> {
    /// Products, and those of a submission.
    const PRODUCTS: u64 = 1000;
    const TOGETHER: u64 = 50;
    let (device, stream, n) = (&context.device, context.device.stream()?, 64);
    let matrix = |limit: u32| -> Vec<f32> {
        super::problem::scattered(n * n, limit).map(|value| value as f32 - 2.0).collect()
    };
    let (a, b) = (matrix(7), matrix(5));
    let (left, right, mut out) =
        (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?, device.buffer::<f32>(n * n)?);
    let (shape, of) = ([n, n], MatMul::default());
    let views = [left.tensor(&shape)?, right.tensor(&shape)?];
    let ours = plan(of, &[&views[0], &views[1]], &mut out.tensor_mut(&shape)?, route)?;
    let run = |in_a_submission: u64| -> Result<u64> {
        let (start, mut last) = (Instant::now(), None);
        for _ in 0..PRODUCTS / in_a_submission {
            let mut commands = stream.command_buffer();
            for _ in 0..in_a_submission {
                commands.tensor_plan(&ours)?;
            }
            last = Some(commands.submit()?);
        }
        last.map(|last| last.wait()).transpose()?;
        Ok(start.elapsed().as_nanos() as u64 / PRODUCTS)
    };
    let by_phase = || -> Result<[u64; 2]> {
        let start = Instant::now();
        let mut commands = stream.command_buffer();
        for _ in 0..PRODUCTS {
            commands.tensor_plan(&ours)?;
        }
        let recorded = start.elapsed();
        let done = commands.submit()?;
        let submitted = start.elapsed() - recorded;
        done.wait()?;
        Ok([recorded, submitted].map(|time| time.as_nanos() as u64 / PRODUCTS))
    };
    let bare = bare(device, n, &a, &b)?;
    run(1)?;
    let (mut times, mut singly, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut recorded, mut submitted) = (Vec::new(), Vec::new());
    if let Some(Ok(bare)) = &bare {
        agree_with_bare(&out, bare)?;
    }
    for _ in 0..ROUNDS {
        times.push(run(TOGETHER)?);
        singly.push(run(1)?);
        let [record, submit] = by_phase()?;
        recorded.push(record);
        submitted.push(submit);
        if let Some(Ok(bare)) = &bare {
            theirs.push(bare.host_time(PRODUCTS)? / PRODUCTS);
        }
    }
    let mut measured = Measured {
        size: format!(
            "{n}x{n}x{n} floats, one of {PRODUCTS}, {TOGETHER} in a submission; stages: one by one, recording, submission; {}: {}",
            ours.route(),
            ours.algorithm()
        ),
        median_ns: median(times),
        stages: vec![
            ("one by one".into(), median(singly)),
            ("recording".into(), median(recorded)),
            ("submission".into(), median(submitted)),
        ],
        flops: Some(ours.flops()),
        ..Measured::default()
    };
    match bare {
        Some(Ok(_)) => measured.baselines.push(("cublaslt", median(theirs))),
        Some(Err(why)) => measured.missing.push(("cublaslt", why)),
        None => {}
    }
    Ok(measured)
}

fn matmul(context: &Context, n: usize, route: Route) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    let (a, b) = (numbers(n * n), numbers(n * n));
    let (left, right, mut out) =
        (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?, device.buffer::<f32>(n * n)?);
    let shape = [n, n];
    let views = [left.tensor(&shape)?, right.tensor(&shape)?];
    let ours = plan(MatMul::default(), &[&views[0], &views[1]], &mut out.tensor_mut(&shape)?, route)?;
    stream.tensor_plan(&ours)?.wait()?;
    let args = || [a.clone(), b.clone(), vec![0.0; n * n]].map(Argument::Floats).to_vec();
    let args = || [args(), vec![Argument::Word(n as u32)]].concat();
    let (team, mut of_blas, mut of_dnn) = (Team::new(context.threads)?, args(), args());
    let missing = [absence(device, blas::openblas().map(drop)), absence(device, onednn::onednn().map(drop))];
    if missing[0].is_none() {
        blas::sgemm(&mut of_blas, &team);
        agree("tensor_matmul", &out, of_blas[2].floats())?;
    }
    let baselines = vec![
        Baseline::library("openblas", missing[0], || blas::sgemm(&mut of_blas, &team)),
        Baseline::library("onednn", missing[1], || onednn::sgemm(&mut of_dnn, &team)),
    ];
    measure(&stream, &ours, baselines, format!("{n}x{n}x{n} floats"))
}

/// Numbers as elements of a tensor.
trait Number: Element {
    fn of(value: f32) -> Self;
    fn wide(self) -> f64;
}

macro_rules! numbers {
    ($($ty:ty: $of:expr, $wide:expr;)*) => {$(
        impl Number for $ty {
            fn of(value: f32) -> Self {
                $of(value)
            }
            fn wide(self) -> f64 {
                $wide(self)
            }
        }
    )*};
}
numbers! {
    f32: std::convert::identity, f64::from;
    f16: f16::from_f32, f16::to_f64;
    bf16: bf16::from_f32, bf16::to_f64;
}

/// A product of square matrices of a size for the device, compared with the device's library if kernels compute it.
fn square<T: Number>(context: &Context, route: Route) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    let n = if device.kind() == DeviceKind::Cpu { 1024 } else { 4096 };
    // Small integers, whose sums are exact in `float`.
    let matrix = |limit: u32| -> Vec<T> {
        let half = (limit / 2) as f32;
        super::problem::scattered(n * n, limit).map(|value| T::of(value as f32 - half)).collect()
    };
    let (a, b) = (matrix(7), matrix(5));
    let (left, right) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let (mut out, mut other) = (device.buffer::<T>(n * n)?, device.buffer::<T>(n * n)?);
    let (shape, name) = ([n, n], T::DATA_TYPE);
    let views = [left.tensor(&shape)?, right.tensor(&shape)?];
    let of = |out: &mut Buffer<T>, route: Route| {
        plan(MatMul::default(), &[&views[0], &views[1]], &mut out.tensor_mut(&shape)?, route)
    };
    let ours = of(&mut out, route)?;
    stream.tensor_plan(&ours)?.wait()?;
    let library = if route == Route::Kernel { Some(of(&mut other, Route::Vendor)) } else { None };
    let mut baselines = Vec::new();
    match library {
        Some(Ok(library)) => {
            stream.tensor_plan(&library)?.wait()?;
            let wide =
                |of: &Buffer<T>| -> Result<Vec<f64>> { Ok(of.to_vec()?.into_iter().map(T::wide).collect()) };
            if let Some(text) = Agreement::Within(1e-6).difference(&wide(&out)?, &wide(&other)?) {
                return Err(elinvar::Error::DeviceLost(format!("tensor_matmul of {name}: {text}")).into());
            }
            baselines.push(Baseline::plan("library", &stream, library));
        }
        Some(Err(why)) => baselines.push(Baseline { name: "library", run: Err(why.to_string()) }),
        None => {}
    }
    match bare(device, n, &a, &b)? {
        Some(Ok(library)) => {
            agree_with_bare(&out, &library)?;
            let run: Timed<'_> = Box::new(move |iterations| library.device_time(iterations));
            baselines.push(Baseline { name: "cublaslt", run: Ok(run) });
        }
        Some(Err(why)) => baselines.push(Baseline { name: "cublaslt", run: Err(why) }),
        None => {}
    }
    measure(&stream, &ours, baselines, format!("{n}x{n}x{n} of {name}"))
}

/// A copy that reads and writes `bytes` bytes in total.
fn copy_of<'b>(device: &Device, stream: &'b Stream, bytes: u64) -> Result<Baseline<'b>> {
    let len = (bytes / 8).max(1) as usize;
    let (from, mut to) = (device.buffer_with_data(&numbers(len))?, device.buffer::<f32>(len)?);
    let copy = plan(Map::COPY, &[&from.tensor(&[len])?], &mut to.tensor_mut(&[len])?, Route::Kernel)?;
    Ok(Baseline::plan("copy", stream, copy))
}

/// A convolution of 64 channels: its window, and whether it has three spatial axes or is transposed.
#[derive(Clone, Copy)]
struct Window64 {
    size: usize,
    volumes: bool,
    transposed: bool,
}

impl Window64 {
    const fn of(size: usize) -> Self {
        Self { size, volumes: false, transposed: false }
    }
}

fn convolution(context: &Context, of: Window64, route: Route) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    let (channels, Window64 { size, volumes, transposed }) = (64, of);
    let images = if device.kind() == DeviceKind::Cpu { 1 } else { 32 };
    let (n, space) = if volumes { (images.min(4), vec![16, 28, 28]) } else { (images, vec![56, 56]) };
    // A transposed convolution doubles the sizes.
    let (stride, padding) = if transposed { (2, 1) } else { (1, size / 2) };
    let scale = |factor: usize| space.iter().map(move |size| size * factor);
    let image: Vec<usize> = [n, channels].into_iter().chain(scale(1)).collect();
    let result: Vec<usize> = [n, channels].into_iter().chain(scale(stride)).collect();
    let weights: Vec<usize> = [channels, channels].into_iter().chain(space.iter().map(|_| size)).collect();
    let (a, b) = (numbers(image.iter().product()), numbers(weights.iter().product()));
    let (x, w) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut out = device.buffer::<f32>(result.iter().product())?;
    let of =
        Convolution { window: Window::stride(stride).padded(padding), transposed, ..Convolution::default() };
    let ours = plan(of, &[&x.tensor(&image)?, &w.tensor(&weights)?], &mut out.tensor_mut(&result)?, route)?;
    stream.tensor_plan(&ours)?.wait()?;
    let (x, weights, y) = (sizes(&image), sizes(&weights), sizes(&result));
    let (stride, padding) = (stride as i32, padding as i32);
    let work =
        DnnOperation::Convolution { x: &x, weights: &weights, result: &y, stride, padding, transposed };
    let library = bare_dnn(device, &work, &[&a, &b], &out)?;
    // The product of the unfolded image alone, which is a bound for what a library can do by a product.
    let window = space.iter().map(|_| size).product::<usize>();
    let (m, k, columns) = match transposed {
        true => (channels * window, channels, space.iter().product::<usize>()),
        false => (channels, channels * window, space.iter().product::<usize>()),
    };
    let (a, b, mut c) = (numbers(m * k), numbers(k * columns), vec![0.0; m * columns]);
    let missing = absence(device, blas::openblas().map(drop));
    let product = || {
        (0..n).for_each(|_| blas::sgemm_by(context.threads, [m, columns, k], 1.0, &a, (&b, false), &mut c));
    };
    let product = (device.kind() == DeviceKind::Cpu).then(|| Baseline::library("openblas", missing, product));
    let baselines = library.into_iter().chain(product).collect();
    measure(&stream, &ours, baselines, format!("{image:?} to {result:?}, window of {size}"))
}

fn batch_norm(context: &Context, statistics: Statistics) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    // Larger than the caches.
    let shape = if device.kind() == DeviceKind::Cpu { [16, 64, 56, 56] } else { [256, 64, 56, 56] };
    let values = numbers(shape.iter().product());
    let x = device.buffer_with_data(&values)?;
    let parameters = device.buffer_with_data(&vec![1.0f32; 64])?;
    let mut out = device.buffer::<f32>(shape.iter().product())?;
    let (mut mean, mut deviation) = (device.buffer::<f32>(64)?, device.buffer::<f32>(64)?);
    let (x, one) = (x.tensor(&shape)?, parameters.tensor(&[64, 1, 1])?);
    let of = Normalize::batch(1, 4).statistics(statistics);
    let mut view = out.tensor_mut(&shape)?;
    let ours = match statistics {
        Statistics::Given => Plan::new(of, &[&x, &one, &one, &one, &one], &mut [&mut view], Route::Auto)?,
        _ => {
            let (mut mean, mut deviation) =
                (mean.tensor_mut(&[1, 64, 1, 1])?, deviation.tensor_mut(&[1, 64, 1, 1])?);
            Plan::new(of, &[&x, &one, &one], &mut [&mut view, &mut mean, &mut deviation], Route::Auto)?
        }
    };
    // Statistics of all elements precede the first result, so a tensor that no cache holds is read twice.
    let again =
        if statistics == Statistics::Given { 0 } else { (shape.iter().product::<usize>() * 4) as u64 };
    let copy = copy_of(device, &stream, ours.bytes() + again)?;
    stream.tensor_plan(&ours)?.wait()?;
    let (sizes, ones) = (sizes(&shape), vec![1.0f32; 64]);
    let training = statistics != Statistics::Given;
    let inputs: Vec<&[f32]> = [&values[..]].into_iter().chain([&ones[..]; 4]).collect();
    let work = DnnOperation::BatchNorm { shape: &sizes, training };
    let bare = bare_dnn(device, &work, &inputs[..if training { 3 } else { 5 }], &out)?;
    measure(&stream, &ours, [copy].into_iter().chain(bare).collect(), format!("{shape:?} floats"))
}

fn softmax(context: &Context, shape: [usize; 2], axis: usize) -> Result<Measured> {
    softmax_of::<f32>(context, shape, axis, |shape, values, out| {
        let work = DnnOperation::Softmax { shape: shape.map(|size| size as i32), axis };
        bare_dnn(&context.device, &work, &[values], out)
    })
}

/// Softmax of numbers of a type. `bare` gives a library's baseline for a shape, its values and our result.
fn softmax_of<T: Number>(
    context: &Context,
    mut shape: [usize; 2],
    axis: usize,
    bare: impl FnOnce([usize; 2], &[f32], &Buffer<T>) -> Result<Option<Baseline<'static>>>,
) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    if device.kind() != DeviceKind::Cpu {
        // Larger than the caches.
        shape[1 - axis] *= 16;
    }
    let values = numbers(shape[0] * shape[1]);
    let x = device.buffer_with_data(&values.iter().copied().map(T::of).collect::<Vec<_>>())?;
    let mut out = device.buffer::<T>(shape[0] * shape[1])?;
    let ours = plan(Softmax::new(axis), &[&x.tensor(&shape)?], &mut out.tensor_mut(&shape)?, Route::Auto)?;
    let copy = copy_of(device, &stream, ours.bytes())?;
    stream.tensor_plan(&ours)?.wait()?;
    let bare = bare(shape, &values, &out)?;
    let baselines = [copy].into_iter().chain(bare).collect();
    measure(
        &stream,
        &ours,
        baselines,
        format!("{shape:?} numbers of {} along axis {axis}", x.tensor(&shape)?.data_type()),
    )
}

fn transpose(context: &Context) -> Result<Measured> {
    let (device, stream, shape) = (&context.device, context.device.stream()?, [4096, 4096]);
    let x = device.buffer_with_data(&numbers(shape[0] * shape[1]))?;
    let mut out = device.buffer::<f32>(shape[0] * shape[1])?;
    let source = x.tensor(&shape)?.transpose(0, 1)?;
    let ours = plan(Map::COPY, &[&source], &mut out.tensor_mut(&shape)?, Route::Auto)?;
    let copy = copy_of(device, &stream, ours.bytes())?;
    measure(&stream, &ours, vec![copy], format!("{shape:?} floats"))
}

/// Attention of heads, compared with a library's products of floats and a vectorized softmax on the CPU.
fn attention_of_heads<T: Number>(context: &Context) -> Result<Measured> {
    let (device, stream) = (&context.device, context.device.stream()?);
    let (width, is_cpu) = (attention::WIDTH, device.kind() == DeviceKind::Cpu);
    let (heads, length) = if is_cpu { (attention::HEADS, attention::LENGTH) } else { (32, 2048) };
    let (shape, all) = ([1, heads, length, width], heads * length * width);
    let values: Vec<T> = numbers(all).into_iter().map(T::of).collect();
    let buffers = [device.buffer_with_data(&values)?, device.buffer_with_data(&values)?];
    let value = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<T>(all)?;
    let views = [buffers[0].tensor(&shape)?, buffers[1].tensor(&shape)?, value.tensor(&shape)?];
    let views: Vec<&TensorRef<'_>> = views.iter().collect();
    let ours = plan(Attention::default(), &views, &mut out.tensor_mut(&shape)?, Route::Auto)?;
    stream.tensor_plan(&ours)?.wait()?;
    let (mut args, team) = (Vec::new(), Team::new(context.threads)?);
    let mut missing = absence(device, blas::openblas().map(drop));
    if missing.is_none() && size_of::<T>() != size_of::<f32>() {
        missing = Some("a library of floats");
    }
    if missing.is_none() {
        let floats = || numbers(all);
        args = [floats(), floats(), floats(), vec![0.0; all], vec![0.0; heads * length * length]]
            .map(Argument::Floats)
            .to_vec();
        attention::heads(&mut args, &team, blas::sgemm_of);
        let wide = |of: Vec<T>| of.into_iter().map(Number::wide).collect::<Vec<_>>();
        let library = args[3].floats().iter().map(|value| f64::from(*value)).collect::<Vec<_>>();
        if let Some(text) = Agreement::Within(1e-4).difference(&wide(out.to_vec()?), &library) {
            return Err(elinvar::Error::DeviceLost(format!("tensor_attention: {text}")).into());
        }
    }
    let library = || team.inside(|| attention::heads(&mut args, &team, blas::sgemm_of));
    let baselines = vec![Baseline::library("openblas", missing, library)];
    let size = format!("{heads} heads of {length} x {width}, {}", T::DATA_TYPE);
    measure(&stream, &ours, baselines, size)
}
