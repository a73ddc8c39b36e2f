//! Launches of the crate candle-metal-kernels (0.11.1) whose threadgroup size is free, with the arguments and grids of its host code and the
//! sizes of language and image models; and its kernels whose size is not free, with the reason.

use elinvar::{Constants, Device, KernelOptions, Tier, f16};
use elinvar_sizes::{Given, Launch, Size, usual_of};

use crate::bench::cpu::problem::scattered;
use crate::bench::cuda::candle::library;
use crate::failure::Result;

/// A kernel whose threadgroup size is free.
pub struct Free {
    pub kernel: &'static str,
    file: &'static str,
    /// Threads of the grid, and arguments.
    launch: fn() -> (Size, Vec<Given>),
}

/// Kernels of a file whose threadgroup size is not free.
pub struct Fixed {
    pub file: &'static str,
    /// How their names begin.
    pub names: &'static [&'static str],
    pub reason: &'static str,
}

const ROW: &str =
    "one threadgroup for each row: the number of threads of the grid depends on the size, a power of two";
const TILE: &str = "the size follows from the tile, by constants in the text";

pub const FIXED: [Fixed; 8] = [
    Fixed { file: "reduce.metal", names: &["fast_", "softmax_", "rmsnorm_", "layernorm_"], reason: ROW },
    Fixed {
        file: "sort.metal",
        names: &["asort_"],
        reason: "a thread for each column of a row, padded to a power of two",
    },
    Fixed { file: "mlx_sort.metal", names: &[""], reason: TILE },
    Fixed { file: "gemv.metal", names: &[""], reason: TILE },
    Fixed { file: "mlx_gemm.metal", names: &[""], reason: TILE },
    Fixed { file: "scaled_dot_product_attention.metal", names: &[""], reason: TILE },
    Fixed { file: "quantized.metal", names: &[""], reason: TILE },
    Fixed {
        file: "random.metal",
        names: &["rand_"],
        reason: "one thread stores the seed that the others load, so that results depend on the order of threads",
    },
];

const fn free(file: &'static str, kernel: &'static str, launch: fn() -> (Size, Vec<Given>)) -> Free {
    Free { kernel, file, launch }
}

/// Tokens, and elements of each: a prompt.
const TOKENS: usize = 512;
const WIDTH: usize = 4096;
const ALL: usize = TOKENS * WIDTH;
/// Elements of the feed-forward layer of one token.
const INNER: usize = 14336;

pub const FREE: [Free; 45] = [
    free("affine.metal", "affine_f32", || mapped(ALL, 4, &[2.0, 1.0])),
    free("affine.metal", "affine_f16", || mapped(ALL, 2, &[2.0, 1.0])),
    free("affine.metal", "affine_f32_strided", || transposed(4, &[2.0, 1.0])),
    free("affine.metal", "powf_f32", || mapped(ALL, 4, &[1.5])),
    free("affine.metal", "elu_f32", || mapped(ALL, 4, &[1.0])),
    free("unary.metal", "copy_f32", || mapped(ALL, 4, &[])),
    free("unary.metal", "exp_f32", || mapped(ALL, 4, &[])),
    free("unary.metal", "gelu_f32", || mapped(ALL, 4, &[])),
    free("unary.metal", "gelu_f16", || mapped(ALL, 2, &[])),
    free("unary.metal", "silu_f32", || mapped(ALL, 4, &[])),
    free("unary.metal", "silu_f32", || mapped(INNER, 4, &[])),
    free("unary.metal", "sqr_f32", || mapped(WIDTH, 4, &[])),
    free("unary.metal", "tanh_f32", || mapped(ALL, 4, &[])),
    free("unary.metal", "gelu_f32_strided", || transposed(4, &[])),
    free("unary.metal", "const_set_f32", || ([ALL / 2, 1, 1], vec![size(ALL), floats(1), zeros(ALL * 4)])),
    free("unary.metal", "copy2d_f32", || {
        let strides = [TOKENS, WIDTH, WIDTH, 2 * WIDTH].map(size);
        ([TOKENS, WIDTH, 1], strides.into_iter().chain([floats(ALL), zeros(ALL * 8)]).collect())
    }),
    free("cast.metal", "cast_f32_f16", || ([ALL / 2, 1, 1], vec![size(ALL), floats(ALL), zeros(ALL * 2)])),
    free("cast.metal", "cast_u8_f32", || ([ALL / 8, 1, 1], vec![size(ALL), bytes(ALL, 256), zeros(ALL * 4)])),
    free("cast.metal", "cast_f16_f32_strided", || {
        let (threads, mut args) = transposed(2, &[]);
        args[5] = zeros(ALL * 4);
        (threads, args)
    }),
    free("fill.metal", "fill_f32", || {
        ([ALL, 1, 1], vec![zeros(ALL * 4), Given::Value(1.5_f32.to_ne_bytes().into()), size(ALL)])
    }),
    free("binary.metal", "badd_f32", || pairs(ALL, 4)),
    free("binary.metal", "badd_f32", || pairs(WIDTH, 4)),
    free("binary.metal", "bmul_f16", || pairs(ALL, 2)),
    free("binary.metal", "bmul_f32_strided", || {
        // A row of weights for all tokens.
        let shape = [sizes(&[TOKENS, WIDTH]), sizes(&[WIDTH, 1]), sizes(&[0, 1])];
        let head = [size(ALL), size(2)].into_iter().chain(shape);
        ([ALL / 2, 1, 1], head.chain([floats(ALL), floats(WIDTH), zeros(ALL * 4)]).collect())
    }),
    free("ternary.metal", "where_u8_f32", || {
        let shape = (0..4).map(|_| sizes(&[ALL]));
        let head = [size(ALL), size(1)].into_iter().chain(shape);
        ([ALL / 2, 1, 1], head.chain([bytes(ALL, 2), floats(ALL), floats(ALL), zeros(ALL * 4)]).collect())
    }),
    free("indexing.metal", "is_u32_f32", || {
        // Embeddings of tokens.
        let (words, width) = (16384, 1024);
        let mut args: Vec<Given> = [TOKENS * width, 1, words, width, TOKENS].map(size).into();
        args.extend([Given::Value(vec![1]), sizes(&[words, width]), sizes(&[width, 1])]);
        args.extend([floats(words * width), numbers(TOKENS, words), zeros(TOKENS * width * 4)]);
        ([TOKENS * width, 1, 1], args)
    }),
    free("indexing.metal", "gather_u32_f32", || {
        let (from, width) = (4096, 1024);
        let count = TOKENS * width;
        let mut args: Vec<Given> = [count, 1, from, width, TOKENS].map(size).into();
        args.extend([floats(from * width), numbers(count, from), zeros(count * 4)]);
        ([count, 1, 1], args)
    }),
    free("indexing.metal", "s_u32_f32", || scattered_rows(128)),
    free("indexing.metal", "sa_u32_f32", || scattered_rows(128)),
    free("indexing.metal", "ia_u32_f32", || {
        let (rows, words) = (128, 1024);
        let mut args: Vec<Given> = [WIDTH, 1, rows, WIDTH, words, rows].map(size).into();
        args.extend([floats(rows * WIDTH), numbers(rows, words), floats(words * WIDTH)]);
        ([WIDTH, 1, 1], args)
    }),
    free("conv.metal", "im2col_f32", || {
        let count = 56 * 56 * 64 * 9;
        let mut args: Vec<Given> = [count, 56, 56, 3, 3, 1, 1, 1].map(size).into();
        args.extend(image(64, 56, 56));
        args.push(zeros(count * 4));
        ([count, 1, 1], args)
    }),
    free("conv.metal", "im2col1d_f32", || {
        let (maps, length, taps) = (80, 3000, 3);
        let count = length * maps * taps;
        let mut args: Vec<Given> = [count, length, taps, 1, 1, 1].map(size).into();
        args.extend([sizes(&[1, maps, length]), sizes(&[maps * length, length, 1])]);
        args.extend([floats(maps * length), zeros(count * 4)]);
        ([count, 1, 1], args)
    }),
    free("conv.metal", "col2im1d_f32", || {
        let (windows, maps, taps, stride) = (1500, 128, 4, 2);
        let length = (windows - 1) * stride + taps;
        let count = maps * length;
        let mut args: Vec<Given> = [count, length, windows, maps, taps, stride].map(size).into();
        args.extend([floats(windows * maps * taps), zeros(count * 4)]);
        ([count, 1, 1], args)
    }),
    free("conv.metal", "upsample_nearest2d_f32", || {
        let mut args = vec![size(112), size(112), value(0.5), value(0.5)];
        args.extend(image(64, 56, 56));
        args.push(zeros(64 * 112 * 112 * 4));
        ([64 * 112 * 112, 1, 1], args)
    }),
    free("conv.metal", "upsample_bilinear2d_f32", || {
        let no = || Given::Value(vec![0]);
        let mut args = vec![size(112), size(112), no(), no(), value(0.0), no(), value(0.0)];
        args.extend(image(64, 56, 56));
        args.push(zeros(64 * 112 * 112 * 4));
        ([64 * 112 * 112, 1, 1], args)
    }),
    free("conv.metal", "max_pool2d_f32", || pooled(64, 112, 3, 2)),
    free("conv.metal", "avg_pool2d_f32", || pooled(64, 112, 2, 2)),
    free("conv.metal", "avg_pool2d_f32", || pooled(512, 7, 7, 7)),
    free("conv.metal", "conv_transpose1d_f32", || {
        let (from, to, length, taps) = (256, 128, 128, 4);
        let mut args: Vec<Given> = [2 * length, 2, 1, 0, 1].map(size).into();
        args.extend([sizes(&[1, from, length]), sizes(&[from * length, length, 1])]);
        args.extend([sizes(&[from, to, taps]), sizes(&[to * taps, taps, 1])]);
        args.extend([floats(from * length), floats(from * to * taps), zeros(to * 2 * length * 4)]);
        ([to * 2 * length, 1, 1], args)
    }),
    free("conv.metal", "conv_transpose2d_f32", || {
        let (from, to, side, taps) = (64, 32, 16, 4);
        let mut args: Vec<Given> = [2 * side, 2 * side, 2, 1, 0, 1].map(size).into();
        args.extend([sizes(&[1, from, side, side]), sizes(&[from * side * side, side * side, side, 1])]);
        args.extend([sizes(&[from, to, taps, taps]), sizes(&[to * taps * taps, taps * taps, taps, 1])]);
        let count = to * 4 * side * side;
        args.extend([floats(from * side * side), floats(from * to * taps * taps), zeros(count * 4)]);
        ([count, 1, 1], args)
    }),
    free("reduce.metal", "rope_f32", || rotated(TOKENS, &[HEADS, TOKENS * HEAD, HEAD, 0])),
    free("reduce.metal", "rope_f32", || rotated(1, &[HEADS, HEAD, HEAD, 0])),
    free("reduce.metal", "rope_f16", || {
        let (threads, mut args) = rotated(TOKENS, &[HEADS, TOKENS * HEAD, HEAD, 0]);
        args[4..].fill_with(|| halves(TOKENS * HEADS * HEAD));
        (threads, args)
    }),
    free("reduce.metal", "rope_i_f32", || rotated(TOKENS, &[HEADS, TOKENS * HEAD, 0])),
    free("reduce.metal", "rope_thd_f32", || rotated(TOKENS, &[1, TOKENS, HEADS, HEAD, 0])),
];

impl Free {
    /// The launch, and 256 threads in the shape of its grid.
    #[allow(unsafe_code)] // launches
    pub fn on(&self, device: &Device) -> Result<(Launch, Size)> {
        let options = KernelOptions::new().tier(Tier::Optimized);
        let options = match self.file {
            "ternary.metal" => options.constants(&Constants::new().set(0, true).set(1, true).set(2, true)),
            _ => options,
        };
        let kernel = library(device, self.file)?.kernel_with(self.kernel, options)?;
        let (threads, args) = (self.launch)();
        // SAFETY: the arguments have the sizes that the kernel's definition requires.
        Ok((unsafe { Launch::new(device, kernel, threads, args) }?, usual_of(threads)))
    }
}

impl Fixed {
    /// How many kernels of the file they are.
    pub fn count(&self, device: &Device) -> Result<usize> {
        let library = library(device, self.file)?;
        let kernels = library.kernels().iter();
        Ok(kernels.filter(|kernel| self.names.iter().any(|name| kernel.name.starts_with(name))).count())
    }
}

const HEADS: usize = 32;
const HEAD: usize = 128;

/// `size_t`.
fn size(value: usize) -> Given {
    Given::Value((value as u64).to_ne_bytes().into())
}

fn value(value: f32) -> Given {
    Given::Value(value.to_ne_bytes().into())
}

/// An array of `size_t`.
fn sizes(values: &[usize]) -> Given {
    Given::Value(values.iter().flat_map(|value| (*value as u64).to_ne_bytes()).collect())
}

fn zeros(bytes: usize) -> Given {
    Given::Memory(vec![0; bytes])
}

/// Numbers from -4 to 4.
fn floats(count: usize) -> Given {
    let all = scattered(count, 1 << 20).map(|v| v as f32 / 131_072.0 - 4.0);
    Given::Memory(all.flat_map(f32::to_ne_bytes).collect())
}

fn halves(count: usize) -> Given {
    let all = scattered(count, 1 << 12).map(|v| f16::from_f32(v as f32 / 512.0 - 4.0));
    Given::Memory(all.flat_map(f16::to_ne_bytes).collect())
}

fn bytes(count: usize, limit: u32) -> Given {
    Given::Memory(scattered(count, limit).map(|v| v as u8).collect())
}

/// Indices below `limit`.
fn numbers(count: usize, limit: usize) -> Given {
    Given::Memory(scattered(count, limit as u32).flat_map(u32::to_ne_bytes).collect())
}

/// Elements of 4 or 2 bytes.
fn elements(count: usize, width: usize) -> Given {
    if width == 4 { floats(count) } else { halves(count) }
}

/// A function of each element, with numbers as parameters; a thread has elements of 8 bytes.
fn mapped(count: usize, width: usize, parameters: &[f32]) -> (Size, Vec<Given>) {
    let mut args = vec![size(count)];
    args.extend(parameters.iter().map(|number| value(*number)));
    args.extend([elements(count, width), zeros(count * width)]);
    ([count.div_ceil(8 / width), 1, 1], args)
}

/// A function of each element of a transposed matrix, in one thread each.
fn transposed(width: usize, parameters: &[f32]) -> (Size, Vec<Given>) {
    let mut args = vec![size(ALL), size(2), sizes(&[WIDTH, TOKENS]), sizes(&[1, WIDTH])];
    args.extend(parameters.iter().map(|number| value(*number)));
    args.extend([elements(ALL, width), zeros(ALL * width)]);
    ([ALL, 1, 1], args)
}

/// A function of two elements each.
fn pairs(count: usize, width: usize) -> (Size, Vec<Given>) {
    let args = vec![size(count), elements(count, width), elements(count, width), zeros(count * width)];
    ([count.div_ceil(8 / width), 1, 1], args)
}

/// Rows that go to rows of a larger matrix, one thread for each column.
fn scattered_rows(rows: usize) -> (Size, Vec<Given>) {
    let to = 1024;
    let mut args: Vec<Given> = [WIDTH, 1, rows, WIDTH, to].map(size).into();
    args.extend([floats(rows * WIDTH), numbers(rows * WIDTH, to), floats(to * WIDTH)]);
    ([WIDTH, 1, 1], args)
}

/// Dimensions, strides and elements of an image.
fn image(maps: usize, height: usize, width: usize) -> [Given; 3] {
    let strides = [maps * height * width, height * width, width, 1];
    [sizes(&[1, maps, height, width]), sizes(&strides), floats(maps * height * width)]
}

fn pooled(maps: usize, side: usize, window: usize, stride: usize) -> (Size, Vec<Given>) {
    let to = (side - window) / stride + 1;
    let mut args: Vec<Given> = [window, window, stride, stride].map(size).into();
    args.extend(image(maps, side, side));
    args.push(zeros(maps * to * to * 4));
    ([maps * to * to, 1, 1], args)
}

/// A rotary embedding, one thread for each pair of elements; `tokens` are rows of sines and cosines.
fn rotated(tokens: usize, shape: &[usize]) -> (Size, Vec<Given>) {
    let count = tokens * HEADS * HEAD;
    let angles = || floats(tokens * HEAD / 2);
    let mut args: Vec<Given> = shape.iter().map(|value| size(*value)).collect();
    args.extend([floats(count), angles(), angles(), zeros(count * 4)]);
    ([count / 2, 1, 1], args)
}
