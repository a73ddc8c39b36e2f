//! Tensors and tensor operations of Metal 4: `matmul2d` over tensors in memory and cooperative tensors.
//!
//! Each case computes products whose sizes are no multiples of the tile, and compares every element with a sum in `f64`. A sum of k
//! terms in `f32`, in any order, differs from it by at most (k + 2) u times the sum of the terms' magnitudes, with u = 2⁻²⁴; storing it
//! adds the rounding of the result's type.

use elinvar::{Device, Error, Grid, Source, bf16, f16};

use super::{CaseResult, run};

cases!("tensor_operations": device_memory, transposed, kinds, accumulated, epilogue, interior_tiles, depth_in_chunks,
    threadgroup_memory, one_simdgroup, eight_simdgroups, odd_tiles, one_thread, cooperative_factors, strides_and_origins,
    large_tiles, large_tiles_of_bfloat, unaligned_large_tiles, version, wrong_operations);

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Half,
    BFloat,
    Float,
    Char,
    UChar,
    Int,
}
use Kind::{BFloat, Char, Float, Half, Int, UChar};

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Half => "half",
            BFloat => "bfloat",
            Float => "float",
            Char => "char",
            UChar => "uchar",
            Int => "int",
        }
    }
    fn bytes(self) -> usize {
        match self {
            Half | BFloat => 2,
            Float | Int => 4,
            Char | UChar => 1,
        }
    }
    fn is_byte(self) -> bool {
        matches!(self, Char | UChar)
    }
    /// A value that the type has exactly.
    fn value(self, i: usize) -> f64 {
        let hash = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        match self {
            Half | Float => (hash % 2049) as f64 / 1024.0 - 1.0,
            BFloat => (hash % 255) as f64 / 128.0 - 1.0,
            Char => (hash % 256) as f64 - 128.0,
            UChar => (hash % 256) as f64,
            Int => (hash % 2001) as f64 - 1000.0,
        }
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn encode(self, values: &[f64]) -> Vec<u8> {
        let each = |v: f64| match self {
            Half => f16::from_f32(v as f32).to_bits().to_ne_bytes().to_vec(),
            BFloat => bf16::from_f32(v as f32).to_bits().to_ne_bytes().to_vec(),
            Float => (v as f32).to_ne_bytes().to_vec(),
            Char => vec![(v as i8).cast_unsigned()],
            UChar => vec![v as u8],
            Int => (v as i32).to_ne_bytes().to_vec(),
        };
        values.iter().flat_map(|v| each(*v)).collect()
    }
    fn decode(self, bytes: &[u8]) -> Vec<f64> {
        let each = |b: &[u8]| match (self, b) {
            (Half, &[x, y]) => f16::from_bits(u16::from_ne_bytes([x, y])).to_f32().into(),
            (BFloat, &[x, y]) => bf16::from_bits(u16::from_ne_bytes([x, y])).to_f32().into(),
            (Float, &[x, y, z, w]) => f32::from_ne_bytes([x, y, z, w]).into(),
            (Int, &[x, y, z, w]) => i32::from_ne_bytes([x, y, z, w]).into(),
            (Char, &[x]) => x.cast_signed().into(),
            (UChar, &[x]) => x.into(),
            _ => unreachable!("the size of the type"),
        };
        bytes.chunks_exact(self.bytes()).map(each).collect()
    }
    /// Relative error of a rounded value, and the absolute error of a small one.
    fn rounding(self) -> (f64, f64) {
        match self {
            Half => (2f64.powi(-11), 2f64.powi(-25)),
            BFloat => (2f64.powi(-8), 0.0),
            Float => (2f64.powi(-24), 0.0),
            Char | UChar | Int => (0.0, 0.0),
        }
    }
}

/// A product of a grid of tiles, one for each threadgroup.
#[derive(Clone)]
struct Product {
    kinds: [Kind; 3],
    /// Rows, columns and depth.
    size: [usize; 3],
    tile: [usize; 2],
    /// Depth of the descriptor; 0 is dynamic.
    depth: usize,
    simdgroups: usize,
    transposed: [bool; 2],
    accumulates: bool,
    /// Extra elements of a row in memory of left, right and result, and elements before the first.
    padding: [usize; 3],
    origin: [usize; 3],
    /// What the kernel does with the slices `a`, `b` and `c` of the tile at (`x`, `y`).
    body: &'static str,
    /// Declarations before the kernel's body.
    shared: &'static str,
    /// The factor by which the body multiplies the product, and a value for each element that it adds.
    scale: f64,
    added: fn(usize, usize) -> f64,
}

const IN_MEMORY: &str = "op.run(a, b, c);";
const COOPERATIVE: &str = "auto sum = op.get_destination_cooperative_tensor<decltype(a), decltype(b), TC>();
    if (ACC) sum.load(c);
    op.run(a, b, sum);
    sum.store(c);";

impl Default for Product {
    fn default() -> Self {
        Self {
            kinds: [Half, Half, Float],
            size: [100, 70, 50],
            tile: [64, 32],
            depth: 0,
            simdgroups: 4,
            transposed: [false; 2],
            accumulates: false,
            padding: [0; 3],
            origin: [0; 3],
            body: IN_MEMORY,
            shared: "",
            scale: 1.0,
            added: |_, _| 0.0,
        }
    }
}

impl Product {
    fn text(&self) -> String {
        let scope = match self.simdgroups {
            0 => "execution_thread".to_owned(),
            1 => "execution_simdgroup".to_owned(),
            n => format!("execution_simdgroups<{n}>"),
        };
        let [a, b, c] = self.kinds.map(Kind::name);
        let depth =
            if self.depth == 0 { "static_cast<int>(dynamic_extent)".into() } else { self.depth.to_string() };
        let mode = if self.accumulates { "multiply_accumulate" } else { "multiply" };
        let [m, n] = self.tile;
        let [left, right] = self.transposed;
        let slices = [
            if left { "a_all.slice(y, 0)" } else { "a_all.slice(0, y)" },
            if right { "b_all.slice(0, x)" } else { "b_all.slice(x, 0)" },
        ];
        format!(
            "#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
using TA = {a};
using TB = {b};
using TC = {c};
constant constexpr int TM = {m}, TN = {n};
constant constexpr bool ACC = {acc};
struct Sizes {{ int rows, columns, depth, row[3], origin[3]; }};
kernel void product(device uchar* left_bytes [[buffer(0)]], device uchar* right_bytes [[buffer(1)]],
        device uchar* result_bytes [[buffer(2)]], constant int* sizes [[buffer(3)]], uint2 group [[threadgroup_position_in_grid]],
        uint thread_index [[thread_index_in_threadgroup]]) {{
    Sizes s = {{sizes[0], sizes[1], sizes[2], {{sizes[3], sizes[4], sizes[5]}}, {{sizes[6], sizes[7], sizes[8]}}}};
    device TA* left = (device TA*)left_bytes;
    device TB* right = (device TB*)right_bytes;
    device TC* result = (device TC*)result_bytes;
    {shared}
    int x = int(group.x) * TN, y = int(group.y) * TM;
    auto a_all = tensor(left + s.origin[0], dextents<int, 2>{{{ax}, {ay}}}, array<int, 2>{{1, s.row[0]}});
    auto b_all = tensor(right + s.origin[1], dextents<int, 2>{{{bx}, {by}}}, array<int, 2>{{1, s.row[1]}});
    auto c_all = tensor<device TC, dextents<int32_t, 2>, tensor_inline>(
        result + s.origin[2], dextents<int32_t, 2>(s.columns, s.rows), array<int32_t, 2>({{1, s.row[2]}}));
    auto a = {sa};
    auto b = {sb};
    auto c = c_all.slice(x, y);
    constexpr auto descriptor = matmul2d_descriptor(TM, TN, {depth}, {left}, {right}, false, matmul2d_descriptor::mode::{mode});
    matmul2d<descriptor, {scope}> op;
    {body}
}}",
            acc = self.accumulates,
            shared = self.shared,
            body = self.body,
            ax = if left { "s.rows" } else { "s.depth" },
            ay = if left { "s.depth" } else { "s.rows" },
            bx = if right { "s.depth" } else { "s.columns" },
            by = if right { "s.columns" } else { "s.depth" },
            sa = slices[0],
            sb = slices[1],
        )
    }

    fn check(&self, device: &Device) -> CaseResult {
        let kernel = device.compile(Source::named("product.metal", self.text()))?.kernel("product")?;
        let [m, n, k] = self.size;
        // Rows and columns in memory.
        let shapes = [
            if self.transposed[0] { [k, m] } else { [m, k] },
            if self.transposed[1] { [n, k] } else { [k, n] },
            [m, n],
        ];
        let rows: Vec<usize> = (0..3).map(|i| shapes[i][1] + self.padding[i]).collect();
        let values: Vec<Vec<f64>> = (0..3)
            .map(|i| {
                let count = self.origin[i] + shapes[i][0] * rows[i] + 16;
                (0..count).map(|e| self.kinds[i].value(e + 100_003 * i)).collect()
            })
            .collect();
        let buffers: Vec<Vec<u8>> = (0..3).map(|i| self.kinds[i].encode(&values[i])).collect();
        let mut left = device.buffer_with_data(&buffers[0])?;
        let mut right = device.buffer_with_data(&buffers[1])?;
        let mut result = device.buffer_with_data(&buffers[2])?;
        let all = [m, n, k].into_iter().chain(rows.iter().copied()).chain(self.origin);
        let sizes: Vec<i32> = all.map(|v| i32::try_from(v).expect("small")).collect();
        let sizes = device.buffer_with_data(&sizes)?;
        let threads = (self.simdgroups * 32).max(1);
        let groups = (n.div_ceil(self.tile[1]), m.div_ceil(self.tile[0]));
        let grid = Grid::threads((groups.0 * threads, groups.1)).group((threads, 1));
        run(device, &kernel, grid, (&mut left, &mut right, &mut result, &sizes))?;
        let got = self.kinds[2].decode(&result.to_vec()?);
        let before = &values[2];
        assert_eq!(got.len(), before.len());
        let [a, b] = [0, 1].map(|i| {
            let transposed = self.transposed[i];
            let (values, row, origin) = (&values[i], rows[i], self.origin[i]);
            move |r: usize, c: usize| values[origin + if transposed { c * row + r } else { r * row + c }]
        });
        let mut inside = vec![false; got.len()];
        for r in 0..m {
            for c in 0..n {
                let at = self.origin[2] + r * rows[2] + c;
                inside[at] = true;
                let terms = (0..k).map(|d| a(r, d) * b(d, c));
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, m), t: f64| (s + t, m + t.abs()));
                let start = if self.accumulates { before[at] } else { 0.0 };
                let expected = (sum + start) * self.scale + (self.added)(r, c);
                let exact = self.kinds[0].is_byte() && self.kinds[1].is_byte() && self.kinds[2] == Int;
                let u = if exact { 0.0 } else { 2f64.powi(-24) };
                let error = (k + 4) as f64 * u * (magnitude + start.abs()) * self.scale.abs().max(1.0)
                    + u * expected.abs();
                let (relative, least) = self.kinds[2].rounding();
                // A body that scales rounds twice.
                let allowed = error + 2.0 * ((expected.abs() + error) * relative + least);
                let difference = (got[at] - expected).abs();
                assert!(
                    difference <= allowed,
                    "{:?} {:?} {:?}: element ({r}, {c}) is {}, expected {expected}, allowed {allowed}",
                    self.kinds,
                    self.size,
                    self.tile,
                    got[at]
                );
            }
        }
        // Nothing else is written.
        for (e, inside) in inside.iter().enumerate() {
            assert!(
                *inside || got[e] == before[e],
                "element {e} outside of the result is {}, was {}",
                got[e],
                before[e]
            );
        }
        Ok(())
    }
}

fn device_memory(device: &Device) -> CaseResult {
    Product::default().check(device)?;
    Product { size: [64, 64, 64], ..Product::default() }.check(device)?;
    Product { size: [1, 1, 1], ..Product::default() }.check(device)
}

fn transposed(device: &Device) -> CaseResult {
    for transposed in [[true, false], [false, true], [true, true]] {
        Product { transposed, size: [70, 45, 37], ..Product::default() }.check(device)?;
    }
    Ok(())
}

/// The combinations of types that Metal Performance Primitives documents.
fn kinds(device: &Device) -> CaseResult {
    for kinds in [
        [Half, Half, Half],
        [Half, Char, Half],
        [Char, Half, Half],
        [Half, Float, Float],
        [Half, Char, Float],
        [Float, Half, Float],
        [Float, Float, Float],
        [Float, Char, Float],
        [Char, Half, Float],
        [Char, Float, Float],
        [Char, Char, Int],
        [BFloat, BFloat, BFloat],
        [BFloat, BFloat, Float],
        [BFloat, Float, Float],
        [BFloat, Char, BFloat],
        [BFloat, Char, Float],
        [Float, BFloat, Float],
        [Char, BFloat, BFloat],
        [Char, BFloat, Float],
        [BFloat, Half, BFloat],
        [BFloat, Half, Half],
        [BFloat, Half, Float],
        [Half, BFloat, BFloat],
        [Half, BFloat, Half],
        [Half, BFloat, Float],
        [UChar, Char, Int],
    ] {
        // With bytes as factors, results stay within half.
        let k = if kinds[2] == Int { 1100 } else { 21 };
        Product { kinds, size: [33, 17, k], tile: [32, 16], simdgroups: 2, ..Product::default() }
            .check(device)?;
    }
    Ok(())
}

fn accumulated(device: &Device) -> CaseResult {
    for body in [IN_MEMORY, COOPERATIVE] {
        for kinds in [[Half, Half, Float], [Half, Half, Half], [Char, Char, Int]] {
            Product { accumulates: true, kinds, body, size: [65, 50, 30], ..Product::default() }
                .check(device)?;
        }
    }
    Ok(())
}

/// Scales the product and adds to each element what its place gives.
fn epilogue(device: &Device) -> CaseResult {
    let by_index = "auto sum = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
    op.run(a, b, sum);
    auto scaled = op.get_destination_cooperative_tensor<decltype(a), decltype(b), TC>();
    for (uint16_t i = 0; i < sum.get_capacity(); ++i) {
        if (!sum.get_mask(i)) continue;
        auto at = sum.get_multidimensional_index(i);
        scaled.set(i, sum[i] * 2.0f + float((x + at[0]) % 5 - (y + at[1]) % 3));
    }
    scaled.store(c);";
    let by_iterator = "auto sum = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
    op.run(a, b, sum);
    for (auto it = sum.begin(); it != sum.end(); ++it) {
        auto at = it.get_multidimensional_index();
        *it = *it * 2.0f + float((x + at[0]) % 5 - (y + at[1]) % 3);
    }
    sum.store(c);";
    #[allow(clippy::cast_precision_loss)]
    let added = |r: usize, c: usize| (c % 5) as f64 - (r % 3) as f64;
    for body in [by_index, by_iterator] {
        Product { body, scale: 2.0, added, ..Product::default() }.check(device)?;
        Product { body, scale: 2.0, added, tile: [24, 40], simdgroups: 2, ..Product::default() }
            .check(device)?;
    }
    Product { body: by_index, scale: 2.0, added, kinds: [Half, Half, Half], ..Product::default() }
        .check(device)
}

/// Slices with constant extents inside, dynamic ones at the edges.
fn interior_tiles(device: &Device) -> CaseResult {
    let body = "if (x + TN <= s.columns && y + TM <= s.rows) {
        auto ia = a_all.slice<dynamic_extent, TM>(0, y);
        auto ib = b_all.slice<TN, dynamic_extent>(x, 0);
        auto ic = c_all.slice<TN, TM>(x, y);
        op.run(ia, ib, ic);
    } else {
        op.run(a, b, c);
    }";
    Product { body, size: [150, 80, 41], ..Product::default() }.check(device)
}

/// The kernel walks over the depth by itself.
fn depth_in_chunks(device: &Device) -> CaseResult {
    let body = "auto sum = op.get_destination_cooperative_tensor<decltype(a), decltype(b), float>();
    sum.load(c);
    for (int k = 0; k < s.depth; k += 16) {
        auto pa = a_all.slice(k, y);
        auto pb = b_all.slice(x, k);
        op.run(pa, pb, sum);
    }
    for (uint16_t i = 0; i < sum.get_capacity(); ++i) sum[i] += 0.5f;
    sum.store(c);";
    for size in [[100, 70, 50], [64, 32, 48], [40, 20, 7]] {
        let added = |_, _| 0.5;
        Product { body, added, size, depth: 16, accumulates: true, ..Product::default() }.check(device)?;
    }
    Ok(())
}

/// Factors are staged in threadgroup memory, as the kernels of ggml do.
fn threadgroup_memory(device: &Device) -> CaseResult {
    let shared = "threadgroup TA sa[TM * 32];
    threadgroup TB sb[32 * TN];
    threadgroup float sc[TM * TN];";
    let body = "auto ta = tensor<threadgroup TA, dextents<int32_t, 2>, tensor_inline>(sa, dextents<int32_t, 2>(32, TM));
    auto tb = tensor<threadgroup TB, dextents<int32_t, 2>, tensor_inline>(sb, dextents<int32_t, 2>(TN, 32));
    auto tc = tensor<threadgroup float, dextents<int32_t, 2>, tensor_inline>(sc, dextents<int32_t, 2>(TN, TM));
    auto sum = op.get_destination_cooperative_tensor<decltype(ta), decltype(tb), float>();
    for (uint16_t i = 0; i < sum.get_capacity(); ++i) sum[i] = 0;
    for (int k = 0; k < s.depth; k += 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int e = thread_index; e < TM * 32; e += 128) {
            int r = e / 32, d = k + e % 32;
            sa[e] = y + r < s.rows && d < s.depth ? left[(y + r) * s.row[0] + d] : TA(0);
        }
        for (int e = thread_index; e < 32 * TN; e += 128) {
            int d = k + e / TN, q = e % TN;
            sb[e] = x + q < s.columns && d < s.depth ? right[d * s.row[1] + x + q] : TB(0);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        auto pa = ta.slice(0, 0);
        auto pb = tb.slice(0, 0);
        op.run(pa, pb, sum);
    }
    sum.store(tc);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int e = thread_index; e < TM * TN; e += 128) {
        int r = e / TN, q = e % TN;
        if (y + r < s.rows && x + q < s.columns) result[(y + r) * s.row[2] + x + q] += TC(sc[e]);
    }";
    for kinds in [[Half, Half, Float], [BFloat, BFloat, Float], [Float, Float, Float]] {
        for size in [[100, 70, 50], [64, 32, 64]] {
            Product { body, shared, kinds, size, depth: 32, accumulates: true, ..Product::default() }
                .check(device)?;
        }
    }
    Ok(())
}

fn one_simdgroup(device: &Device) -> CaseResult {
    for body in [IN_MEMORY, COOPERATIVE] {
        Product { simdgroups: 1, tile: [32, 32], body, ..Product::default() }.check(device)?;
        Product { simdgroups: 1, tile: [16, 8], size: [31, 17, 9], body, ..Product::default() }
            .check(device)?;
    }
    Ok(())
}

fn eight_simdgroups(device: &Device) -> CaseResult {
    for tile in [[128, 64], [64, 64], [32, 128]] {
        Product { simdgroups: 8, tile, size: [140, 150, 40], body: COOPERATIVE, ..Product::default() }
            .check(device)?;
    }
    Ok(())
}

/// Tiles that are no multiples of 8, and numbers of simdgroups that do not divide them.
fn odd_tiles(device: &Device) -> CaseResult {
    for (tile, simdgroups) in [([20, 12], 1), ([24, 40], 4), ([5, 3], 2), ([48, 8], 3), ([8, 100], 6)] {
        for body in [IN_MEMORY, COOPERATIVE] {
            Product { simdgroups, tile, size: [50, 43, 19], body, ..Product::default() }.check(device)?;
        }
    }
    Ok(())
}

fn one_thread(device: &Device) -> CaseResult {
    for accumulates in [false, true] {
        for kinds in [[Half, Half, Float], [Float, Float, Float], [Char, Char, Int]] {
            let product = Product {
                simdgroups: 0,
                tile: [4, 6],
                size: [11, 13, 9],
                kinds,
                accumulates,
                ..Product::default()
            };
            product.check(device)?;
        }
    }
    Ok(())
}

/// Factors in cooperative tensors, of which one is scaled before the product.
fn cooperative_factors(device: &Device) -> CaseResult {
    let body = "auto ca = op.get_left_input_cooperative_tensor<TA, TB, float>();
    auto cb = op.get_right_input_cooperative_tensor<TA, TB, float>();
    auto sum = op.get_destination_cooperative_tensor<decltype(ca), decltype(cb), float>();
    if (ACC) sum.load(c);
    for (int k = 0; k < s.depth; k += 16) {
        auto pa = TRANSPOSED_A ? a_all.slice(y, k) : a_all.slice(k, y);
        auto pb = TRANSPOSED_B ? b_all.slice(k, x) : b_all.slice(x, k);
        ca.load(pa);
        cb.load(pb);
        op.run(ca, cb, sum);
    }
    sum.store(c);";
    for transposed in [[false, false], [true, false], [false, true], [true, true]] {
        for kinds in [[Half, Half, Float], [BFloat, BFloat, Float], [Float, Float, Float]] {
            let text = match transposed {
                [false, false] => "constexpr bool TRANSPOSED_A = false, TRANSPOSED_B = false;",
                [true, false] => "constexpr bool TRANSPOSED_A = true, TRANSPOSED_B = false;",
                [false, true] => "constexpr bool TRANSPOSED_A = false, TRANSPOSED_B = true;",
                [true, true] => "constexpr bool TRANSPOSED_A = true, TRANSPOSED_B = true;",
            };
            Product {
                body,
                shared: text,
                kinds,
                transposed,
                depth: 16,
                simdgroups: 1,
                tile: [16, 32],
                size: [37, 50, 40],
                accumulates: true,
                ..Product::default()
            }
            .check(device)?;
        }
    }
    Ok(())
}

fn strides_and_origins(device: &Device) -> CaseResult {
    for transposed in [[false, false], [true, true]] {
        Product { padding: [3, 5, 7], origin: [1, 2, 3], transposed, ..Product::default() }.check(device)?;
        Product { padding: [8, 16, 24], origin: [8, 16, 24], transposed, ..Product::default() }
            .check(device)?;
    }
    Ok(())
}

/// Tiles as GPUs with tensor cores want them, with rows that are multiples of 16 bytes.
fn large(
    device: &Device,
    kind: Kind,
    size: [usize; 3],
    padding: [usize; 3],
    origin: [usize; 3],
) -> CaseResult {
    for transposed in [[false, false], [true, false], [false, true], [true, true]] {
        let accumulates = transposed[0] != transposed[1];
        let (tile, simdgroups) = if accumulates { ([128, 256], 8) } else { ([128, 128], 4) };
        let kinds = [kind, kind, if accumulates { Float } else { kind }];
        let body = if accumulates { COOPERATIVE } else { IN_MEMORY };
        let of_tile = Product { tile, simdgroups, accumulates, body, ..Product::default() };
        Product { kinds, transposed, size, padding, origin, ..of_tile }.check(device)?;
    }
    Ok(())
}

fn large_tiles(device: &Device) -> CaseResult {
    large(device, Half, [136, 264, 72], [0; 3], [0; 3])?;
    large(device, Half, [168, 200, 200], [8, 16, 3], [8, 16, 5])
}

fn large_tiles_of_bfloat(device: &Device) -> CaseResult {
    large(device, BFloat, [136, 264, 328], [0; 3], [0; 3])
}

/// Rows or origins that are no multiples of 16 bytes.
fn unaligned_large_tiles(device: &Device) -> CaseResult {
    large(device, Half, [131, 259, 67], [0; 3], [0; 3])?;
    large(device, Half, [136, 136, 72], [0; 3], [1, 8, 0])
}

/// A source that includes the headers is compiled as Metal 4.
fn version(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
#include <metal_tensor>
using namespace metal;
#if __METAL_VERSION__ < 400 || !defined(__HAVE_TENSOR__)
#error not Metal 4
#endif
kernel void shape(device int* out) {
    extents<int, 3, dynamic_extent> e(7);
    auto t = tensor(out, e);
    auto part = t.slice<2, 3>(1, 2);
    out[0] = t.get_extent(0) * 100 + t.get_extent(1) * 10 + t.get_stride(1);
    out[1] = part.get_extent(0) * 100 + part.get_extent(1) * 10 + part.get_stride(1);
    array<int, 2> at{2, 1};
    t[at] = 77;
    array<int, 2> first{0, 0};
    part[first] = 88;
}";
    let kernel = device.compile(Source::named("shape.metal", text))?.kernel("shape")?;
    let mut out = device.buffer_with_data(&[0i32; 24])?;
    run(device, &kernel, Grid::threads(1).group(1), (&mut out,))?;
    super::expect_all(&out.to_vec()?, |i| match i {
        0 => 373,
        1 => 233,
        5 => 77,
        7 => 88,
        _ => 0,
    });
    Ok(())
}

/// Errors name the line and the reason.
fn wrong_operations(device: &Device) -> CaseResult {
    let head = "#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp::tensor_ops;
kernel void wrong(device half* p, device int* q) {
    auto a = tensor(p, dextents<int, 2>(8, 8));
    auto b = tensor(q, dextents<int, 2>(8, 8));
    auto v = tensor(p, dextents<int, 1>(8));
    constexpr auto d = matmul2d_descriptor(8, 8, 8);
";
    for statement in [
        "matmul2d<matmul2d_descriptor(0, 8), execution_simdgroup> op; op.run(a, a, a);",
        "matmul2d<matmul2d_descriptor(8, 5000), execution_simdgroup> op; op.run(a, a, a);",
        "matmul2d<d, int> op; op.run(a, a, a);",
        "matmul2d<d, execution_threads<2>> op; op.run(a, a, a);",
        "matmul2d<d, execution_simdgroup> op; op.run(a, b, a);",
        "matmul2d<d, execution_simdgroup> op; op.run(a, v, a);",
        "matmul2d<d, execution_simdgroups<2>> op; auto c = op.get_left_input_cooperative_tensor<half, half, float>();",
        "tensor<device half, dextents<int, 2>> h;",
    ] {
        let text = format!("{head}    {statement}\n}}");
        match device.compile(Source::named("wrong.metal", text)) {
            Err(Error::Compile(diagnostics)) => {
                let all: Vec<String> = diagnostics.into_iter().map(|d| d.to_string()).collect();
                assert!(all.iter().any(|d| d.contains("wrong.metal:11:")), "{statement}: {all:#?}");
            }
            Err(Error::Unsupported(reason)) => return Err(Error::Unsupported(reason).into()),
            Err(other) => panic!("{statement}: {other:?}"),
            Ok(_) => panic!("{statement}: compiled"),
        }
    }
    Ok(())
}
