//! mistral.rs's kernels for bits and layouts: bitwise operations, packing of short integers, strided copies.

use elinvar::{bf16, f16};

use super::case::Case;
use super::element::{Element, Layout, Sequence};

const CORPUS: &str = "mistralrs-quant";
const COUNT: usize = 301;

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        bitwise::<u8>("or_uint8_t", |a, b| a | b),
        bitwise::<u32>("xor_uint32_t", |a, b| a ^ b),
        bitwise::<i64>("xor_int64_t", |a, b| a ^ b),
        bitwise::<i64>("and_int64_t", |a, b| a & b),
        bitwise::<i32>("or_int", |a, b| a | b),
        shift::<u8>("uint8_t"),
        shift::<i64>("int64_t"),
        not::<u32>("uint32_t"),
        not::<i32>("int"),
    ];
    cases.extend(copies());
    cases.extend([pack_8(), pack::<u8, u8>(4, 2), pack::<u8, u8>(2, 4), pack::<u32, i32>(3, 10)]);
    cases.push(pack::<u8, u8>(1, 8));
    cases
}

fn bitwise<T: Element>(name: &str, operation: fn(i128, i128) -> i128) -> Case {
    let mut sequence = Sequence(41);
    let (a, b): (Vec<T>, Vec<T>) = (sequence.any(COUNT), sequence.any(COUNT));
    let want = a.iter().zip(&b).map(|(a, b)| T::of_integer(operation(a.integer(), b.integer())));
    Case::new(CORPUS, "bitwise.metal", format!("bitwise_{name}"))
        .input(&a)
        .input(&b)
        .full_output(want)
        .threads(COUNT, 64)
}

fn shift<T: Element>(name: &str) -> Case {
    let a: Vec<T> = Sequence(42).any(COUNT);
    Case::new(CORPUS, "bitwise.metal", format!("bitwise_leftshift_{name}"))
        .input(&a)
        .full_output(a.iter().map(|a| T::of_integer(a.integer() << 5)))
        .value([5_u32])
        .threads(COUNT, 64)
}

fn not<T: Element>(name: &str) -> Case {
    let a: Vec<T> = Sequence(43).any(COUNT);
    Case::new(CORPUS, "bitwise.metal", format!("bitwise_not_{name}"))
        .input(&a)
        .full_output(a.iter().map(|a| T::of_integer(!a.integer())))
        .threads(COUNT, 64)
}

fn pack_8() -> Case {
    let input: Vec<i32> = Sequence(44).any(COUNT);
    Case::new(CORPUS, "hqq_bitpack.metal", "pack_8bit")
        .input(&input)
        .full_output(input.iter().map(|v| *v as u8))
        .value([COUNT as u64])
        .threads(COUNT + 19, 32)
}

/// Packs `chunks` rows that are far apart into one row: the first chunk is in the highest of `chunks * bits` bits.
fn pack<I: Element, O: Element>(bits: usize, chunks: usize) -> Case {
    let (rows, width) = (6, 13);
    let height = rows * chunks;
    let input: Vec<I> = Sequence(45).any(height * width);
    let want = (0..rows * width).map(|i| {
        let chunk = |c: usize| {
            (input[c * rows * width + i].integer() & ((1 << bits) - 1)) << ((chunks - 1 - c) * bits)
        };
        O::of_integer((0..chunks).map(chunk).sum())
    });
    Case::new(CORPUS, "hqq_bitpack.metal", format!("pack_{bits}bit"))
        .input(&input)
        .full_output(want)
        .value([height as u64])
        .value([width as u64])
        .threads((8, 16), (4, 8))
}

/// Rounds to the nearest float; truncates a float to an integer, and wraps integers modulo 2ⁿ.
fn convert<T: Element, U: Element>(value: T) -> U {
    if T::ROUNDING == 0.0 { U::of_integer(value.integer()) } else { U::of(value.value()) }
}

/// Abbreviation of a type in the names of these kernels.
fn long<T: Element>() -> String {
    let (kind, bits) =
        T::SHORT.split_at(T::SHORT.len() - T::SHORT.trim_start_matches(char::is_alphabetic).len());
    let kind = match kind {
        "f" => "float",
        "bf" => "bfloat",
        "i" => "int",
        _ => "uint",
    };
    format!("{kind}{bits}")
}

fn copy_case<T: Element, U: Element>(variant: &str) -> Case {
    Case::new(CORPUS, "copy.metal", format!("{variant}_copy{}{}", long::<T>(), long::<U>()))
}

fn samples<T: Element>(count: usize) -> Vec<T> {
    Sequence(46).between(count, 0.0, 100.0)
}

fn copies() -> Vec<Case> {
    vec![
        scalar::<u8, f32>(),
        vector::<f32, f16>(),
        vector::<i64, i16>(),
        vector_2d::<bf16, f32>(),
        gather_1d::<i16, i64>(),
        gather_2d::<f16, f32>(),
        gather_nd::<f32, bf16>(3, "g3", 1),
        gather_nd::<u32, u32>(4, "gn2", 2),
        gather_nd::<i64, f32>(4, "gn4large", 4),
        both_2d::<i8>(),
        both_nd::<u16>(),
        both_dynamic::<f16>(),
    ]
}

/// Number of threads, each of which copies eight bytes.
fn workers<T>(count: usize) -> usize {
    count.div_ceil(8 / size_of::<T>())
}

fn scalar<T: Element, U: Element>() -> Case {
    let input: Vec<T> = samples(1);
    copy_case::<T, U>("s")
        .input(&input)
        .full_output(vec![convert::<T, U>(input[0]); COUNT])
        .value([COUNT as u32])
        .threads(workers::<T>(COUNT), 32)
}

fn vector<T: Element, U: Element>() -> Case {
    let input: Vec<T> = samples(COUNT);
    copy_case::<T, U>("v")
        .input(&input)
        .full_output(input.iter().map(|v| convert::<T, U>(*v)))
        .value([COUNT as u32])
        .threads(workers::<T>(COUNT), 32)
}

fn vector_2d<T: Element, U: Element>() -> Case {
    let input: Vec<T> = samples(COUNT);
    copy_case::<T, U>("v2")
        .input(&input)
        .full_output(input.iter().map(|v| convert::<T, U>(*v)))
        .value([COUNT as i64])
        .threads((16, workers::<T>(COUNT).div_ceil(16)), (8, 4))
}

fn signed(strides: &[u64]) -> Vec<i64> {
    strides.iter().map(|stride| *stride as i64).collect()
}

fn gather_1d<T: Element, U: Element>() -> Case {
    let input: Vec<T> = samples(COUNT * 3);
    copy_case::<T, U>("g1")
        .input(&input)
        .full_output((0..COUNT).map(|i| convert::<T, U>(input[i * 3])))
        .value([3_i64])
        .threads(COUNT, 32)
}

fn gather_2d<T: Element, U: Element>() -> Case {
    let layout = Layout::new(&[9, 11], &[1, 9]);
    let input: Vec<T> = samples(layout.extent());
    copy_case::<T, U>("g2")
        .input(&input)
        .full_output((0..layout.len()).map(|i| convert::<T, U>(input[layout.place(i)])))
        .value(signed(&layout.strides))
        .threads((11, 9), (8, 4))
}

/// A permuted source; a thread copies `each` elements of a row.
fn gather_nd<T: Element, U: Element>(dims: usize, variant: &str, each: u64) -> Case {
    let layout = match dims {
        3 => Layout::new(&[3, 5, 7], &[1, 3, 15]),
        _ => Layout::new(&[2, 3, 5, 7], &[15, 30, 3, 97]),
    };
    let input: Vec<T> = samples(layout.extent());
    let (height, width) = (layout.dims[dims - 2], layout.dims[dims - 1]);
    let depth = layout.len() as u64 / (height * width);
    let mut case = copy_case::<T, U>(variant)
        .input(&input)
        .full_output((0..layout.len()).map(|i| convert::<T, U>(input[layout.place(i)])));
    if dims == 4 {
        case = case.value(layout.dims.iter().map(|dim| *dim as i32).collect::<Vec<_>>());
    }
    case = case.value(signed(&layout.strides));
    if dims == 4 {
        case = case.value([dims as i32]);
    }
    case.threads((width.div_ceil(each), height, depth), (4, 4, 2))
}

/// Expected content of the target if source and target are strided.
fn placed<T: Element>(from: &Layout, to: &Layout, input: &[T], shift: [usize; 2]) -> Vec<Option<T>> {
    let mut want = vec![None; to.extent() + shift[1]];
    for i in 0..from.len() {
        want[to.place(i) + shift[1]] = Some(input[from.place(i) + shift[0]]);
    }
    want
}

fn both_2d<T: Element>() -> Case {
    let (from, to) = (Layout::new(&[9, 11], &[1, 9]), Layout::new(&[9, 11], &[25, 2]));
    let input: Vec<T> = samples(from.extent());
    copy_case::<T, T>("gg2")
        .input(&input)
        .output(&placed(&from, &to, &input, [0, 0]))
        .value(signed(&from.strides))
        .value(signed(&to.strides))
        .threads((11, 9), (8, 4))
}

fn both_nd<T: Element>() -> Case {
    let (from, to) =
        (Layout::new(&[2, 3, 5, 7], &[15, 30, 3, 97]), Layout::new(&[2, 3, 5, 7], &[1, 2, 70, 6]));
    let input: Vec<T> = samples(from.extent());
    copy_case::<T, T>("ggn2")
        .input(&input)
        .output(&placed(&from, &to, &input, [0, 0]))
        .value([2, 3, 5, 7])
        .value(signed(&from.strides))
        .value(signed(&to.strides))
        .value([4])
        .threads((4, 5, 6), (4, 4, 2))
}

fn both_dynamic<T: Element>() -> Case {
    let (from, to) = (Layout::new(&[3, 5, 7], &[1, 3, 15]), Layout::new(&[3, 5, 7], &[50, 8, 1]));
    let shift = [4, 6];
    let input: Vec<T> = samples(from.extent() + shift[0]);
    copy_case::<T, T>("gg3_dynamic")
        .input(&input)
        .output(&placed(&from, &to, &input, shift))
        .value(signed(&from.strides))
        .value(signed(&to.strides))
        .value([shift[0] as i64])
        .value([shift[1] as i64])
        .threads((7, 5, 3), (4, 4, 2))
}
