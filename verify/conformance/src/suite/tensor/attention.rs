//! Scaled dot-product attention.

use elinvar::Device;
use elinvar::tensor::{Attention, DataType, Mask, Plan};

use super::super::CaseResult;
use super::{Layout, Near, Random, Stored, UNIT, broadcast, compute, indices};

cases! {
    "tensor": attention, causal_attention, grouped_heads, masks, wide_heads, continued_sequences, attention_of_views,
    blocks_of_attention, causal_blocks_of_attention, masked_blocks_of_attention, blocks_of_views, refused_attention
}

/// Batch, heads, key heads, queries, keys, width, value width.
pub(super) type Sizes = [usize; 7];

/// A mask: its shape and its values.
pub(super) type Masked<'m> = Option<(&'m [usize], &'m [f64])>;

/// An operation, and the algorithm that is asked for.
struct Asked<'a>(&'a Attention, Option<&'static str>);

impl<'a> From<&'a Attention> for Asked<'a> {
    fn from(of: &'a Attention) -> Self {
        Self(of, None)
    }
}

fn by_blocks(of: &Attention) -> Asked<'_> {
    Asked(of, Some("blocks"))
}

/// The largest relative and absolute error of a weight up to 1 that is rounded to the type of the values.
fn rounding(data_type: DataType) -> [f64; 2] {
    match data_type {
        // Below 2⁻¹⁴, numbers are 2⁻²⁴ apart.
        DataType::F16 => [2f64.powi(-11), 2f64.powi(-25)],
        DataType::BF16 => [2f64.powi(-8), 0.0],
        _ => [0.0, 0.0],
    }
}

/// Each element of the result, with its error: scores have `width` roundings of their terms' magnitude, which are relative errors of the
/// weights; sums of `keys` weights have as many; weights may be rounded to the type of the values. The largest weight is 1, and so is the sum
/// of weights or more.
pub(super) fn exact(
    of: &Attention,
    data_type: DataType,
    sizes: Sizes,
    [q, k, v]: [&[f64]; 3],
    mask: Masked<'_>,
) -> Vec<Near> {
    let [rounded, least] = rounding(data_type);
    let [batch, heads, key_heads, queries, keys, width, value_width] = sizes;
    let scale = of.scale.map_or(1.0 / (width as f64).sqrt(), f64::from);
    let mut results = Vec::new();
    for index in indices(&[batch, heads, queries]) {
        let [b, h, i] = index[..] else { unreachable!("three axes") };
        let of_head = b * key_heads + h / (heads / key_heads);
        let query = &q[((b * heads + h) * queries + i) * width..][..width];
        let mut scores = Vec::new();
        let mut magnitude: f64 = 0.0;
        for j in 0..keys {
            let key = &k[(of_head * keys + j) * width..][..width];
            let terms = query.iter().zip(key).map(|(a, b)| a * b);
            magnitude = magnitude.max(scale * terms.clone().map(f64::abs).sum::<f64>());
            let added = mask.map_or(1.0, |(shape, values)| values[broadcast(&[b, h, i, j], shape)]);
            let counts =
                of.causal.is_none_or(|before| j <= i + before) && (of.mask != Mask::Boolean || added != 0.0);
            let score = scale * terms.sum::<f64>() + if of.mask == Mask::Additive { added } else { 0.0 };
            scores.push(if counts { score } else { f64::NEG_INFINITY });
        }
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> =
            scores.iter().map(|s| if most.is_finite() { (s - most).exp() } else { 0.0 }).collect();
        let sum: f64 = weights.iter().sum();
        let relative = ((width + 4) as f64 * magnitude + 2.0 * keys as f64 + 64.0) * UNIT;
        for e in 0..value_width {
            let terms =
                weights.iter().enumerate().map(|(j, w)| w * v[(of_head * keys + j) * value_width + e]);
            let size: f64 = terms.clone().map(f64::abs).sum::<f64>() / sum;
            let value = if sum == 0.0 { 0.0 } else { terms.sum::<f64>() / sum };
            let all = (0..keys).map(|j| v[(of_head * keys + j) * value_width + e].abs());
            let error = (2.0 * relative + rounded) * size + least * all.sum::<f64>();
            results.push(Near { value, error: if sum == 0.0 { 0.0 } else { error } });
        }
    }
    results
}

fn check<'a>(
    device: &Device,
    of: impl Into<Asked<'a>>,
    sizes: Sizes,
    data_type: DataType,
    mask: Option<(&[usize], DataType)>,
    layouts: [Layout; 4],
    random: &mut Random,
) -> CaseResult {
    let [batch, heads, key_heads, queries, keys, width, value_width] = sizes;
    let [layout_q, layout_k, layout_v, layout_out] = layouts;
    let Asked(of, algorithm) = of.into();
    let (q, qs) = Stored::random(device, data_type, &[batch, heads, queries, width], layout_q, random)?;
    let (k, ks) = Stored::random(device, data_type, &[batch, key_heads, keys, width], layout_k, random)?;
    let (v, vs) =
        Stored::random(device, data_type, &[batch, key_heads, keys, value_width], layout_v, random)?;
    let mask = mask.map(|(shape, data_type)| {
        let mut values = random.values(shape.iter().product(), data_type);
        if data_type == DataType::U8 {
            values.iter_mut().for_each(|value| *value = f64::from(u8::from(*value > 1.0)));
        } else if let Some(first) = values.first_mut() {
            *first = f64::NEG_INFINITY;
        }
        Stored::new(device, data_type, shape, Layout::row_major(), &values)
            .map(|stored| (shape, stored, values))
    });
    let mask = mask.transpose()?;
    let mut out = Stored::new(device, data_type, &[batch, heads, queries, value_width], layout_out, &[])?;
    let inputs: Vec<&Stored> =
        [&q, &k, &v].into_iter().chain(mask.as_ref().map(|(_, stored, _)| stored)).collect();
    match algorithm {
        Some(algorithm) => {
            let inputs = inputs.iter().map(|input| input.view()).collect::<elinvar::Result<Vec<_>>>()?;
            let inputs: Vec<_> = inputs.iter().collect();
            let plan = Plan::with_algorithm(*of, &inputs, &mut [&mut out.view_mut()?], algorithm)?;
            device.stream()?.tensor_plan(&plan)?.wait()?;
        }
        None => compute(device, *of, &inputs, &mut [&mut out])?,
    }
    let masked = mask.as_ref().map(|(shape, _, values)| (*shape, &values[..]));
    let wanted = exact(of, data_type, sizes, [&qs, &ks, &vs], masked);
    out.expect(&format!("{of:?} of {sizes:?}"), |at| wanted[at])
}

fn row_major() -> [Layout; 4] {
    [Layout::row_major(), Layout::row_major(), Layout::row_major(), Layout::row_major()]
}

fn attention(device: &Device) -> CaseResult {
    let mut random = Random::new(61);
    for data_type in DataType::FLOATS {
        check(
            device,
            &Attention::default(),
            [2, 3, 3, 19, 37, 40, 33],
            data_type,
            None,
            row_major(),
            &mut random,
        )?;
    }
    let scaled = Attention { scale: Some(-0.5), ..Attention::default() };
    check(device, &scaled, [1, 1, 1, 1, 1, 1, 1], DataType::F32, None, row_major(), &mut random)?;
    // Without keys, the result is 0.
    check(device, &Attention::default(), [1, 2, 2, 3, 0, 4, 5], DataType::F32, None, row_major(), &mut random)
}

fn causal_attention(device: &Device) -> CaseResult {
    let mut random = Random::new(62);
    check(
        device,
        &Attention::causal(),
        [1, 2, 2, 67, 67, 16, 16],
        DataType::F32,
        None,
        row_major(),
        &mut random,
    )?;
    check(device, &Attention::causal(), [1, 1, 1, 70, 9, 5, 3], DataType::F16, None, row_major(), &mut random)
}

fn grouped_heads(device: &Device) -> CaseResult {
    let mut random = Random::new(63);
    for key_heads in [1, 2, 6] {
        let sizes = [2, 6, key_heads, 5, 33, 16, 16];
        check(device, &Attention::causal(), sizes, DataType::F32, None, row_major(), &mut random)?;
    }
    Ok(())
}

/// Masks for each query, each head, or all; queries for which nothing counts are 0.
fn masks(device: &Device) -> CaseResult {
    let mut random = Random::new(64);
    let sizes = [2, 2, 2, 9, 35, 8, 8];
    for (mask, data_type) in
        [(Mask::Additive, DataType::F32), (Mask::Additive, DataType::BF16), (Mask::Boolean, DataType::U8)]
    {
        for shape in [&[9, 35][..], &[2, 1, 1, 35], &[]] {
            let of = Attention { mask, causal: (shape.len() == 4).then_some(3), ..Attention::default() };
            check(device, &of, sizes, DataType::F32, Some((shape, data_type)), row_major(), &mut random)?;
        }
    }
    Ok(())
}

/// More elements than are in threadgroup memory at a time, and than the threads have in registers.
fn wide_heads(device: &Device) -> CaseResult {
    let mut random = Random::new(65);
    check(
        device,
        &Attention::default(),
        [1, 1, 1, 6, 40, 130, 300],
        DataType::F32,
        None,
        row_major(),
        &mut random,
    )?;
    check(
        device,
        &Attention::default(),
        [1, 2, 1, 17, 34, 64, 64],
        DataType::F16,
        None,
        row_major(),
        &mut random,
    )
}

/// One query or a few, with all the keys before.
fn continued_sequences(device: &Device) -> CaseResult {
    let mut random = Random::new(66);
    for queries in [1, 3] {
        let of = Attention { causal: Some(100 - queries), ..Attention::default() };
        check(device, &of, [1, 4, 2, queries, 100, 32, 32], DataType::F16, None, row_major(), &mut random)?;
    }
    Ok(())
}

/// Heads behind the positions, as models store them, and other orders.
fn attention_of_views(device: &Device) -> CaseResult {
    let mut random = Random::new(67);
    let behind = || Layout { order: vec![0, 2, 1, 3], ..Layout::default() };
    let sizes = [2, 3, 3, 10, 12, 8, 8];
    check(
        device,
        &Attention::causal(),
        sizes,
        DataType::F32,
        None,
        [behind(), behind(), behind(), behind()],
        &mut random,
    )?;
    for _ in 0..2 {
        let layouts = [(); 4].map(|()| Layout::random(4, &mut random));
        check(device, &Attention::default(), sizes, DataType::BF16, None, layouts, &mut random)?;
    }
    Ok(())
}

/// Numbers of queries and keys around those of a block, and of elements that are no whole blocks.
fn blocks_of_attention(device: &Device) -> CaseResult {
    let mut random = Random::new(68);
    let plain = Attention::default();
    for (data_type, sizes) in [
        (DataType::F16, [1, 2, 1, 65, 257, 64, 64]),
        (DataType::F16, [1, 1, 1, 1, 1, 64, 64]),
        (DataType::F16, [2, 2, 2, 129, 31, 40, 64]),
        (DataType::F16, [1, 1, 1, 64, 127, 96, 80]),
        (DataType::BF16, [1, 2, 2, 63, 33, 128, 128]),
        (DataType::BF16, [1, 1, 1, 129, 65, 80, 96]),
        (DataType::F32, [1, 3, 1, 129, 127, 64, 64]),
        (DataType::F32, [1, 1, 1, 1, 257, 40, 64]),
        (DataType::F32, [1, 2, 2, 65, 33, 80, 128]),
    ] {
        check(device, by_blocks(&plain), sizes, data_type, None, row_major(), &mut random)?;
    }
    let scaled = [Attention { scale: Some(-0.5), ..plain }, Attention { scale: Some(0.0), ..plain }];
    for (of, data_type) in scaled.iter().flat_map(|of| [(of, DataType::F16), (of, DataType::F32)]) {
        check(device, by_blocks(of), [1, 1, 1, 17, 65, 64, 64], data_type, None, row_major(), &mut random)?;
    }
    Ok(())
}

/// Blocks of keys that all queries, some and none see.
fn causal_blocks_of_attention(device: &Device) -> CaseResult {
    let mut random = Random::new(69);
    for (data_type, sizes, before) in [
        (DataType::F16, [1, 2, 1, 129, 129, 64, 64], 0),
        (DataType::F16, [1, 1, 1, 63, 257, 64, 64], 194),
        (DataType::F16, [1, 1, 1, 129, 33, 64, 64], 0),
        (DataType::BF16, [1, 1, 1, 65, 127, 128, 128], 62),
        (DataType::F32, [1, 2, 2, 129, 129, 64, 64], 0),
        (DataType::F32, [1, 1, 1, 65, 257, 64, 64], 192),
        (DataType::F32, [1, 1, 1, 129, 33, 128, 128], 0),
    ] {
        let of = Attention { causal: Some(before), ..Attention::default() };
        check(device, by_blocks(&of), sizes, data_type, None, row_major(), &mut random)?;
    }
    Ok(())
}

/// Masks, also of queries for which nothing counts.
fn masked_blocks_of_attention(device: &Device) -> CaseResult {
    let mut random = Random::new(70);
    for data_type in [DataType::F16, DataType::F32] {
        for (mask, mask_type) in [(Mask::Additive, DataType::F32), (Mask::Boolean, DataType::U8)] {
            let of = Attention { mask, scale: Some(-0.25), ..Attention::default() };
            for (shape, sizes) in [
                (&[65, 129][..], [1, 2, 1, 65, 129, 64, 64]),
                (&[2, 1, 1, 33], [2, 2, 2, 9, 33, 64, 64]),
                (&[64, 1], [1, 1, 1, 64, 40, 64, 64]),
            ] {
                check(
                    device,
                    by_blocks(&of),
                    sizes,
                    data_type,
                    Some((shape, mask_type)),
                    row_major(),
                    &mut random,
                )?;
            }
        }
    }
    Ok(())
}

/// Rows that are no whole words, and elements that are apart.
fn blocks_of_views(device: &Device) -> CaseResult {
    let mut random = Random::new(71);
    let behind = || Layout { order: vec![0, 2, 1, 3], ..Layout::default() };
    for data_type in [DataType::F16, DataType::F32] {
        let sizes = [2, 3, 3, 33, 70, 24, 16];
        let layouts = [behind(), behind(), behind(), behind()];
        check(device, by_blocks(&Attention::causal()), sizes, data_type, None, layouts, &mut random)?;
        let layouts = [(); 4].map(|()| Layout::random(4, &mut random));
        let sizes = [1, 2, 1, 17, 67, 33, 23];
        check(device, by_blocks(&Attention::default()), sizes, data_type, None, layouts, &mut random)?;
    }
    Ok(())
}

fn refused_attention(device: &Device) -> CaseResult {
    let float = |shape: &[usize]| Stored::new(device, DataType::F32, shape, Layout::row_major(), &[]);
    let masked = Attention { mask: Mask::Boolean, ..Attention::default() };
    let plain = Attention::default();
    for (of, shapes, out, parts) in [
        (
            plain,
            vec![&[1, 3, 5, 8][..], &[1, 2, 7, 8], &[1, 2, 7, 8]],
            [1, 3, 5, 8],
            &["3 heads cannot share 2"][..],
        ),
        (
            plain,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 9], &[1, 2, 7, 8]],
            [1, 2, 5, 8],
            &["`key` [1, 2, 7, 9]", "axis 3 has 9 elements, not 8"],
        ),
        (
            plain,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 8], &[1, 2, 6, 8]],
            [1, 2, 5, 8],
            &["`value`", "axis 2 has 6 elements, not 7"],
        ),
        (
            plain,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 8], &[1, 2, 7, 3]],
            [1, 2, 5, 8],
            &["`result`", "axis 3 has 8 elements, not 3"],
        ),
        (
            plain,
            vec![&[2, 5, 8], &[1, 2, 7, 8], &[1, 2, 7, 8]],
            [1, 2, 5, 8],
            &["`query` [2, 5, 8]", "four axes"],
        ),
        (
            masked,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 8], &[1, 2, 7, 8]],
            [1, 2, 5, 8],
            &["4 inputs (query, key, value, mask)"],
        ),
        (
            masked,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 8], &[1, 2, 7, 8], &[5, 7]],
            [1, 2, 5, 8],
            &["`mask` [5, 7]", "must be u8"],
        ),
        (
            masked,
            vec![&[1, 2, 5, 8], &[1, 2, 7, 8], &[1, 2, 7, 8], &[5, 6]],
            [1, 2, 5, 8],
            &["`mask`", "axis 1 has 6 elements, not 7 or 1"],
        ),
    ] {
        let inputs = shapes.iter().map(|shape| float(shape)).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<&Stored> = inputs.iter().collect();
        let mut out = float(&out)?;
        let error =
            compute(device, of, &inputs, &mut [&mut out]).err().map_or_else(String::new, |e| e.to_string());
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
    Ok(())
}
