//! ggml's kernels that move, repeat, sort and pad elements: results are exact.

use elinvar::{Constants, bf16, f16};

use super::super::case::Case;
use super::super::element::Member::{self, F32, I32, I64, U64};
use super::super::element::{Element, Sequence, packed};
use super::super::tensor::Tensor;

const CORPUS: &str = "llama-cpp-sys-2";

pub fn cases() -> Vec<Case> {
    vec![
        triangle::<f32>(1),
        triangle::<f16>(2),
        triangle::<bf16>(3),
        triangle::<f32>(0),
        repeat::<f32>("f32"),
        repeat::<f16>("f16"),
        repeat::<i16>("i16"),
        diagonal(),
        roll(),
        pad(),
        reflect(),
        arange(),
        memset(),
        copy::<f32, f16>(),
        copy::<i32, f32>(),
        copy::<bf16, f32>(),
        copy::<f32, i32>(),
        concat::<f32>("f32", 0),
        concat::<i64>("i64", 1),
        concat::<f16>("f16", 2),
        get_rows::<f16, f32>("f16"),
        get_rows::<i32, i32>("i32"),
        set_rows::<f32, i64, f16>("f32_i64_f16"),
        set_rows::<bf16, i32, bf16>("bf16_i32_bf16"),
        argsort(false),
        argsort(true),
        upscale_nearest(),
    ]
}

fn samples<T: Element>(tensor: &Tensor) -> Vec<T> {
    Sequence(71).between(tensor.extent(), 1.0, 100.0)
}

/// A case with one source and one target, and an argument struct of three parts.
fn one_source<S: Element, T: Element>(
    (file, kernel): (&'static str, &str),
    source: &Tensor,
    target: &Tensor,
    members: [Vec<Member>; 3],
    want: impl Fn(&[S], [usize; 4]) -> T,
) -> Case {
    let input: Vec<S> = samples(source);
    let mut expected = vec![None; target.extent()];
    for index in target.indices() {
        expected[target.place(index)] = Some(want(&input, index));
    }
    Case::new(CORPUS, file, kernel)
        .bytes(packed(&members.concat()))
        .input(&input)
        .output(&expected)
        .groups((target.ne[1], target.ne[2], target.ne[3]), 8)
}

/// One triangle of each matrix: parts 0 and 1 keep the upper one, 2 and 3 the lower one; odd parts exclude the diagonal.
pub fn triangle<T: Element>(part: u8) -> Case {
    let size = size_of::<T>();
    let (source, target) = (Tensor::with_gap([13, 9, 2, 2], size, 3), Tensor::new([13, 9, 2, 2], size));
    let kernel = format!("kernel_tri_{}_{part}", T::SHORT);
    let members = [source.members(), target.members(), vec![]];
    one_source(("tri.metal", &kernel), &source, &target, members, |input: &[T], i| {
        let kept = [i[0] >= i[1], i[0] > i[1], i[0] <= i[1], i[0] < i[1]][usize::from(part)];
        if kept { input[source.place(i)] } else { T::of(0.0) }
    })
}

pub fn repeat<T: Element>(name: &str) -> Case {
    let size = size_of::<T>();
    let (source, target) = (Tensor::with_gap([5, 3, 2, 1], size, 2), Tensor::new([15, 6, 2, 3], size));
    let kernel = format!("kernel_repeat_{name}");
    let members = [source.members(), target.members(), vec![]];
    one_source(("binbcast.metal", &kernel), &source, &target, members, |input: &[T], i| {
        input[source.place([0, 1, 2, 3].map(|k| i[k] % source.ne[k]))]
    })
}

/// A diagonal matrix for each row. The kernel uses the source's row stride for the rows of the target.
fn diagonal() -> Case {
    let (source, target) = (Tensor::new([11, 1, 3, 2], 4), Tensor::new([11, 11, 3, 2], 4));
    let members = [source.members(), target.members(), vec![]];
    one_source(("misc.metal", "kernel_diag_f32"), &source, &target, members, |input: &[f32], i| {
        if i[0] == i[1] { input[source.place([i[0], 0, i[2], i[3]])] } else { 0.0 }
    })
    .groups((11, 3, 2), 32)
}

/// Cyclic shifts along the dimensions, in both directions.
fn roll() -> Case {
    let tensor = Tensor::new([13, 5, 3, 2], 4);
    let shift = [4, -2, 1, 0];
    let members = [tensor.long_members(), tensor.long_members(), shift.map(I32).to_vec()];
    one_source(("misc.metal", "kernel_roll_f32"), &tensor, &tensor, members, |input: &[f32], i| {
        let from = |k: usize| (i[k] as i32 - shift[k]).rem_euclid(tensor.ne[k] as i32) as usize;
        input[tensor.place([0, 1, 2, 3].map(from))]
    })
}

fn pad() -> Case {
    let (source, target) = (Tensor::with_gap([13, 5, 2, 1], 4, 3), Tensor::new([19, 8, 3, 2], 4));
    let before = [4, 2, 0, 1];
    let members = [source.long_members(), target.long_members(), before.map(|n| I32(n as i32)).to_vec()];
    one_source(("misc.metal", "kernel_pad_f32"), &source, &target, members, |input: &[f32], i| {
        let inside = (0..4).all(|k| i[k] >= before[k] && i[k] - before[k] < source.ne[k]);
        if inside { input[source.place([0, 1, 2, 3].map(|k| i[k] - before[k]))] } else { 0.0 }
    })
    .constants(Constants::new().set(2100, false))
}

pub fn reflect() -> Case {
    let (left, right) = (4, 3);
    let (source, target) = (Tensor::with_gap([9, 4, 2, 1], 4, 1), Tensor::new([16, 4, 2, 1], 4));
    let members = [source.long_members(), target.long_members(), vec![I32(left), I32(right)]];
    one_source(("misc.metal", "kernel_pad_reflect_1d_f32"), &source, &target, members, |input: &[f32], i| {
        let place = (i[0] as i32 - left).abs();
        let last = source.ne[0] as i32 - 1;
        let mirrored = if place > last { 2 * last - place } else { place };
        input[source.place([mirrored as usize, i[1], i[2], i[3]])]
    })
}

pub fn arange() -> Case {
    let want = (0..77).map(|i| -3.0 + 0.25 * i as f32);
    Case::new(CORPUS, "misc.metal", "kernel_arange_f32")
        .bytes(packed(&[I64(77), F32(-3.0), F32(0.25)]))
        .full_output(want)
        .groups(1, 32)
}

fn memset() -> Case {
    Case::new(CORPUS, "misc.metal", "kernel_memset_i64")
        .bytes(packed(&[I64(-0x1234_5678_9abc)]))
        .full_output([-0x1234_5678_9abc_i64; 71])
        .threads(71, 32)
}

/// Copies a permuted source to a contiguous target of another shape and type.
pub fn copy<S: Element, T: Element>() -> Case {
    let size = size_of::<S>();
    let mut source = Tensor::new([6, 13, 2, 2], size);
    source.ne.swap(0, 1);
    source.nb.swap(0, 1);
    let target = Tensor::new([26, 3, 4, 1], size_of::<T>());
    let input: Vec<S> = samples(&source);
    let want = source.indices().map(|i| {
        let value = input[source.place(i)];
        if S::ROUNDING == 0.0 { T::of_integer(value.integer()) } else { T::of(value.value()) }
    });
    let want: Vec<T> = want.collect();
    let members = [vec![I64(13)], source.long_members(), target.long_members()].concat();
    Case::new(CORPUS, "quantize.metal", format!("kernel_cpy_{}_{}", S::SHORT, T::SHORT))
        .bytes(packed(&members))
        .input(&input)
        .full_output(want)
        .groups((6 * 2, 2, 2), (8, 1, 1))
}

/// Two arrays joined along one dimension.
fn concat<T: Element>(name: &str, dim: usize) -> Case {
    let size = size_of::<T>();
    let (mut second, mut joined) = ([9, 4, 3, 2], [9, 4, 3, 2]);
    second[dim] = 5;
    joined[dim] += 5;
    let (a, b, target) = (
        Tensor::with_gap([9, 4, 3, 2], size, 2),
        Tensor::with_gap(second, size, 1),
        Tensor::new(joined, size),
    );
    let (left, right): (Vec<T>, Vec<T>) = (samples(&a), Sequence(72).between(b.extent(), 100.0, 120.0));
    let want = target.indices().map(|mut i| {
        if i[dim] < a.ne[dim] {
            return left[a.place(i)];
        }
        i[dim] -= a.ne[dim];
        right[b.place(i)]
    });
    let want: Vec<T> = want.collect();
    let members = [a.members(), b.members(), target.members(), vec![I32(dim as i32), I32(1)]].concat();
    Case::new(CORPUS, "quantize.metal", format!("kernel_concat_{name}"))
        .bytes(packed(&members))
        .input(&left)
        .input(&right)
        .full_output(want)
        .groups((target.ne[1], target.ne[2], target.ne[3]), 8)
}

/// The argument struct of `get_rows`; `units` is the number of threads that work on a row of the source.
pub fn get_rows_members(units: usize, source: &Tensor, ids: &Tensor, target: &Tensor) -> Vec<u8> {
    let size = |n: usize| U64(n as u64);
    let mut members = vec![I32(units as i32), I32(source.ne[0] as i32)];
    members.extend([1, 2, 3].map(|k| size(source.nb[k])));
    members.push(I32(ids.ne[0] as i32));
    members.extend([0, 1, 2].map(|k| size(ids.nb[k])));
    members.extend([1, 2, 3].map(|k| size(target.nb[k])));
    packed(&members)
}

pub fn get_rows<S: Element, T: Element>(name: &str) -> Case {
    let source = Tensor::with_gap([13, 10, 2, 2], size_of::<S>(), 2);
    let (ids, target) = (Tensor::new([6, 2, 2, 1], 4), Tensor::new([13, 6, 2, 2], size_of::<T>()));
    let input: Vec<S> = samples(&source);
    let rows: Vec<i32> = Sequence(73).between(ids.extent(), 0.0, 10.0);
    let want = target.indices().map(|i| {
        let row = rows[ids.place([i[1], i[2], i[3], 0])] as usize;
        T::of(input[source.place([i[0], row, i[2], i[3]])].value())
    });
    let want: Vec<T> = want.collect();
    Case::new(CORPUS, "quantize.metal", format!("kernel_get_rows_{name}"))
        .bytes(get_rows_members(13, &source, &ids, &target))
        .input(&input)
        .input(&rows)
        .full_output(want)
        .groups((6 * 2, 2, 2), 8)
}

/// Stores rows of the source to the rows of the target with these indices; the others stay unchanged.
pub fn set_rows<S: Element, I: Element, T: Element>(name: &str) -> Case {
    let source = Tensor::with_gap([13, 6, 2, 2], size_of::<S>(), 2);
    let ids = Tensor::new([6, 2, 1, 1], size_of::<I>());
    let target = Tensor::new([13, 10, 2, 2], size_of::<T>());
    let input: Vec<S> = samples(&source);
    let rows: Vec<I> = [7, 0, 3, 9, 4, 1, 5, 2, 8, 6, 0, 9].map(I::of_integer).to_vec();
    let mut want = vec![None; target.extent()];
    for i in source.indices() {
        let row = rows[ids.place([i[1], i[2], 0, 0])].integer() as usize;
        want[target.place([i[0], row, i[2], i[3]])] = Some(T::of(input[source.place(i)].value()));
    }
    let size = |n: usize| U64(n as u64);
    let mut members = vec![I32(13), I32(6)];
    members.extend([1, 2, 3].map(|k| size(source.nb[k])));
    members.extend([I32(2), I32(1)]);
    members.extend([0, 1, 2].map(|k| size(ids.nb[k])));
    members.extend([1, 2, 3].map(|k| size(target.nb[k])));
    Case::new(CORPUS, "quantize.metal", format!("kernel_set_rows_{name}"))
        .bytes(packed(&members))
        .input(&input)
        .input(&rows)
        .output(&want)
        .cast()
        .groups((2, 2, 2), (8, 4))
}

/// Rows of distinct numbers, padded to a power of two.
pub fn argsort(descending: bool) -> Case {
    let (columns, rows) = (53, 6);
    let tensor = Tensor::new([columns, 3, 2, 1], 4);
    let mut sequence = Sequence(74);
    let input: Vec<f32> =
        (0..rows).flat_map(|_| sequence.shuffled(columns)).map(|v| v as f32 * 0.5 - 9.0).collect();
    let want = input.chunks(columns).flat_map(|row| {
        let mut ranks: Vec<i32> = (0..columns as i32).collect();
        ranks.sort_by(|a, b| row[*a as usize].total_cmp(&row[*b as usize]));
        if descending {
            ranks.reverse();
        }
        ranks
    });
    let want: Vec<i32> = want.collect();
    let mut members = tensor.members();
    members.extend(tensor.ne.map(|ne| I32(ne as i32)));
    members.push(I32(columns as i32));
    let order = if descending { "desc" } else { "asc" };
    Case::new(CORPUS, "argsort.metal", format!("kernel_argsort_f32_i32_{order}"))
        .bytes(packed(&members))
        .input(&input)
        .full_output(want)
        .threadgroup(64 * 4)
        .groups((3, 2, 1), 64)
}

/// Sizes without a common divisor, so that no position is on the boundary of two elements.
fn upscale_nearest() -> Case {
    let (source, target) = (Tensor::with_gap([7, 4, 2, 1], 4, 2), Tensor::new([9, 5, 2, 1], 4));
    let scales = [9.0 / 7.0, 5.0 / 4.0, 1.0, 1.0, 0.5].map(F32).to_vec();
    let members = [source.long_members(), target.long_members(), scales];
    one_source(
        ("upscale.metal", "kernel_upscale_nearest_f32"),
        &source,
        &target,
        members,
        |input: &[f32], i| input[source.place([i[0] * 7 / 9, i[1] * 4 / 5, i[2], i[3]])],
    )
}
