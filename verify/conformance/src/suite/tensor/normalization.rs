//! Batch, layer, group and RMS normalization.

use elinvar::Device;
use elinvar::tensor::{DataType, Normalize, Statistics};

use super::super::CaseResult;
use super::{Layout, Near, Random, Stored, UNIT, broadcast, compute, indices};

cases! {
    "tensor": layer_normalization, batch_normalization, batch_normalization_of_channels_last, group_normalization,
    rms_normalization, running_statistics, given_statistics, few_long_rows, random_normalization, refused_normalization
}

/// Mean, inverse deviation and unbiased variance of each row, at the row-major index of the kept axes.
pub(super) struct Rows {
    pub(super) kept: Vec<usize>,
    pub(super) statistics: Vec<(f64, f64, f64)>,
    pub(super) length: f64,
}

impl Rows {
    pub(super) fn new(values: &[f64], shape: &[usize], of: &Normalize) -> Self {
        let kept: Vec<usize> = shape
            .iter()
            .enumerate()
            .map(|(axis, size)| if of.axes.contains(&axis) { 1 } else { *size })
            .collect();
        let mut rows = vec![Vec::new(); kept.iter().product()];
        for (index, value) in indices(shape).zip(values) {
            rows[broadcast(&index, &kept)].push(*value);
        }
        let length = rows.first().map_or(0, Vec::len) as f64;
        let statistics = rows.iter().map(|row| {
            let mean = if of.center { row.iter().sum::<f64>() / length } else { 0.0 };
            let squares: f64 = row.iter().map(|x| (x - mean).powi(2)).sum();
            (mean, 1.0 / (squares / length + f64::from(of.epsilon)).sqrt(), squares / (length - 1.0))
        });
        Self { kept, statistics: statistics.collect(), length }
    }

    pub(super) fn of(&self, index: &[usize]) -> (f64, f64, f64) {
        self.statistics[broadcast(index, &self.kept)]
    }

    /// The mean of n values up to 2 in `f32` is within `n + 2` roundings of 2.
    pub(super) fn mean_error(&self) -> f64 {
        (self.length + 2.0) * UNIT * 2.0
    }

    /// The deviation has half of the variance's relative error: `n + 4` roundings, and the square of the mean's error.
    pub(super) fn deviation_error(&self, deviation: f64) -> f64 {
        deviation * ((self.length + 8.0) * UNIT + (self.mean_error() * deviation).powi(2))
    }
}

/// A parameter: its shape, buffer and values.
struct Parameter(Vec<usize>, Stored, Vec<f64>);

impl Parameter {
    fn new(
        device: &Device,
        data_type: DataType,
        shape: &[usize],
        random: &mut Random,
    ) -> Result<Self, super::super::Failure> {
        let (stored, values) = Stored::random(device, data_type, shape, Layout::row_major(), random)?;
        Ok(Self(shape.to_vec(), stored, values))
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.2[broadcast(index, &self.0)]
    }
}

/// Normalizes, and compares the result and saved statistics.
fn check(
    device: &Device,
    of: &Normalize,
    (x, values): &(Stored, Vec<f64>),
    [scale, bias]: [Option<&Parameter>; 2],
    mut out: Stored,
) -> CaseResult {
    let shape = x.shape.clone();
    let rows = Rows::new(values, &shape, of);
    let index: Vec<Vec<usize>> = indices(&shape).collect();
    let inputs: Vec<&Stored> = [x].into_iter().chain(scale.map(|p| &p.1)).chain(bias.map(|p| &p.1)).collect();
    let statistic = || Stored::new(device, DataType::F32, &rows.kept, Layout::row_major(), &[]);
    let (mut mean, mut deviation) = (statistic()?, statistic()?);
    match of.statistics {
        Statistics::Saved if of.center => {
            compute(device, of.clone(), &inputs, &mut [&mut out, &mut mean, &mut deviation])?
        }
        Statistics::Saved => compute(device, of.clone(), &inputs, &mut [&mut out, &mut deviation])?,
        _ => compute(device, of.clone(), &inputs, &mut [&mut out])?,
    }
    let what = format!("{of:?} of {shape:?}");
    out.expect(&what, |at| {
        let (mean, deviation, _) = rows.of(&index[at]);
        let (a, b) = (scale.map_or(1.0, |p| p.at(&index[at])), bias.map_or(0.0, |p| p.at(&index[at])));
        let centered = values[at] - mean;
        let value = centered * deviation * a + b;
        let mean_error = if of.center { rows.mean_error() } else { 0.0 };
        let error = (mean_error * deviation + centered.abs() * rows.deviation_error(deviation)) * a.abs();
        Near { value, error: error + 8.0 * UNIT * (value.abs() + b.abs()) }
    })?;
    if of.statistics == Statistics::Saved {
        if of.center {
            mean.expect("mean", |at| Near { value: rows.statistics[at].0, error: rows.mean_error() })?;
        }
        deviation.expect("deviation", |at| {
            let value = rows.statistics[at].1;
            Near { value, error: rows.deviation_error(value) }
        })?;
    }
    Ok(())
}

fn out(device: &Device, data_type: DataType, shape: &[usize]) -> Result<Stored, super::super::Failure> {
    Stored::new(device, data_type, shape, Layout::row_major(), &[])
}

fn layer_normalization(device: &Device) -> CaseResult {
    let mut random = Random::new(41);
    for data_type in DataType::FLOATS {
        let shape = [3, 5, 67];
        let x = Stored::random(device, data_type, &shape, Layout::row_major(), &mut random)?;
        let scale = Parameter::new(device, data_type, &[67], &mut random)?;
        let bias = Parameter::new(device, data_type, &[67], &mut random)?;
        let of = Normalize::layer(&[2]).statistics(Statistics::Saved);
        check(device, &of, &x, [Some(&scale), Some(&bias)], out(device, data_type, &shape)?)?;
    }
    let x = Stored::random(device, DataType::F32, &[2, 41, 37], Layout::row_major(), &mut random)?;
    let scale = Parameter::new(device, DataType::F32, &[41, 37], &mut random)?;
    let of = Normalize { bias: false, ..Normalize::layer(&[1, 2]) };
    check(device, &of, &x, [Some(&scale), None], out(device, DataType::F32, &[2, 41, 37])?)
}

fn batch_normalization(device: &Device) -> CaseResult {
    let mut random = Random::new(42);
    for data_type in DataType::FLOATS {
        let shape = [3, 5, 7, 9];
        let x = Stored::random(device, data_type, &shape, Layout::row_major(), &mut random)?;
        let scale = Parameter::new(device, DataType::F32, &[5, 1, 1], &mut random)?;
        let bias = Parameter::new(device, DataType::F32, &[5, 1, 1], &mut random)?;
        let of = Normalize::batch(1, 4).statistics(Statistics::Saved);
        check(device, &of, &x, [Some(&scale), Some(&bias)], out(device, data_type, &shape)?)?;
    }
    Ok(())
}

/// The channels are contiguous: each has one thread.
fn batch_normalization_of_channels_last(device: &Device) -> CaseResult {
    let mut random = Random::new(43);
    let shape = [2, 5, 3, 37];
    let x = Stored::random(device, DataType::F16, &shape, Layout::row_major(), &mut random)?;
    let scale = Parameter::new(device, DataType::F32, &[37], &mut random)?;
    let bias = Parameter::new(device, DataType::F32, &[37], &mut random)?;
    let of = Normalize::batch(3, 4).statistics(Statistics::Saved);
    check(device, &of, &x, [Some(&scale), Some(&bias)], out(device, DataType::F16, &shape)?)
}

/// Two groups of three channels, as another axis.
fn group_normalization(device: &Device) -> CaseResult {
    let mut random = Random::new(44);
    let shape = [2, 2, 3, 5, 7];
    let x = Stored::random(device, DataType::F32, &shape, Layout::row_major(), &mut random)?;
    let scale = Parameter::new(device, DataType::F32, &[2, 3, 1, 1], &mut random)?;
    let bias = Parameter::new(device, DataType::F32, &[2, 3, 1, 1], &mut random)?;
    check(
        device,
        &Normalize::group(5),
        &x,
        [Some(&scale), Some(&bias)],
        out(device, DataType::F32, &shape)?,
    )?;
    // The same from a view of [n, c, h, w], by the public API alone.
    let stream = device.stream()?;
    let (images, mut result) = (
        device.buffer_with_data(&x.1.iter().map(|x| *x as f32).collect::<Vec<_>>())?,
        device.buffer::<f32>(420)?,
    );
    let groups = images.tensor(&[2, 6, 5, 7])?.reshape(&shape)?;
    let mut target = result.tensor_mut(&[2, 6, 5, 7])?.reshape(&shape)?;
    let of = Normalize { scale: false, bias: false, ..Normalize::group(5) };
    stream.tensor(of.clone(), &[&groups], &mut [&mut target])?;
    let rows = Rows::new(&x.1, &shape, &of);
    for ((index, x), got) in indices(&shape).zip(&x.1).zip(result.to_vec()?) {
        let (mean, deviation, _) = rows.of(&index);
        assert!((f64::from(got) - (x - mean) * deviation).abs() < 1e-4);
    }
    Ok(())
}

fn rms_normalization(device: &Device) -> CaseResult {
    let mut random = Random::new(45);
    for data_type in DataType::FLOATS {
        let x = Stored::random(device, data_type, &[9, 130], Layout::row_major(), &mut random)?;
        let scale = Parameter::new(device, data_type, &[130], &mut random)?;
        let of = Normalize::rms(&[1]).statistics(Statistics::Saved);
        check(device, &of, &x, [Some(&scale), None], out(device, data_type, &[9, 130])?)?;
    }
    Ok(())
}

fn running_statistics(device: &Device) -> CaseResult {
    let mut random = Random::new(46);
    // Few rows and many: by one kernel, and in parts.
    for shape in [[4, 19, 11], [2, 2, 30_001]] {
        let kept = [1, shape[1], 1];
        let (x, values) = Stored::random(device, DataType::F32, &shape, Layout::row_major(), &mut random)?;
        let mut of = Normalize { scale: false, bias: false, ..Normalize::batch(1, 3) };
        of.statistics = Statistics::Running { momentum: 0.25 };
        let rows = Rows::new(&values, &shape, &of);
        let before = [random.values(kept[1], DataType::F32), random.values(kept[1], DataType::F32)];
        let mut result = out(device, DataType::F32, &shape)?;
        let (mut mean, mut deviation) =
            (out(device, DataType::F32, &kept)?, out(device, DataType::F32, &kept)?);
        let mut running_mean = Stored::new(device, DataType::F32, &kept, Layout::row_major(), &before[0])?;
        let mut running_variance =
            Stored::new(device, DataType::F32, &kept, Layout::row_major(), &before[1])?;
        let outputs = &mut [&mut result, &mut mean, &mut deviation, &mut running_mean, &mut running_variance];
        compute(device, of, &[&x], outputs)?;
        running_mean.expect("running mean", |at| {
            let value = 0.75 * before[0][at] + 0.25 * rows.statistics[at].0;
            Near { value, error: 0.25 * rows.mean_error() + 4.0 * UNIT * 2.0 }
        })?;
        running_variance.expect("running variance", |at| {
            let (_, _, unbiased) = rows.statistics[at];
            let value = 0.75 * before[1][at] + 0.25 * unbiased;
            Near { value, error: (rows.length + 16.0) * UNIT * unbiased + 4.0 * UNIT * 2.0 }
        })?;
        mean.expect("mean", |at| Near { value: rows.statistics[at].0, error: rows.mean_error() })?;
    }
    Ok(())
}

/// Inference: mean and variance are inputs.
fn given_statistics(device: &Device) -> CaseResult {
    let mut random = Random::new(47);
    for (shape, channels) in [([3, 5, 41], [5, 1]), ([3, 4, 6], [1, 6])] {
        let (x, values) = Stored::random(device, DataType::BF16, &shape, Layout::row_major(), &mut random)?;
        let parameter = |random: &mut Random| Parameter::new(device, DataType::F32, &channels, random);
        let (scale, bias, mean) = (parameter(&mut random)?, parameter(&mut random)?, parameter(&mut random)?);
        let variances: Vec<f64> = mean.2.iter().map(|x| x.abs() + 0.5).collect();
        let variance = Stored::new(device, DataType::F32, &channels, Layout::row_major(), &variances)?;
        let of = Normalize::batch(1, 3).statistics(Statistics::Given);
        let epsilon = f64::from(of.epsilon);
        let mut result = out(device, DataType::F32, &shape)?;
        compute(device, of, &[&x, &scale.1, &bias.1, &mean.1, &variance], &mut [&mut result])?;
        let index: Vec<Vec<usize>> = indices(&shape).collect();
        result.expect("given", |at| {
            let index = &index[at];
            let deviation = 1.0 / (variances[broadcast(index, &channels)] + epsilon).sqrt();
            let centered = values[at] - mean.at(index);
            let value = centered * deviation * scale.at(index) + bias.at(index);
            let error = 8.0 * UNIT * ((centered * deviation * scale.at(index)).abs() + bias.at(index).abs());
            Near { value, error }
        })?;
    }
    Ok(())
}

/// Rows that are divided into parts, of which the last are empty or shorter; large means do not cancel.
fn few_long_rows(device: &Device) -> CaseResult {
    let mut random = Random::new(48);
    let x = Stored::random(device, DataType::F32, &[2, 40_001], Layout::row_major(), &mut random)?;
    let of = Normalize { scale: false, bias: false, ..Normalize::layer(&[1]) }.statistics(Statistics::Saved);
    check(device, &of, &x, [None, None], out(device, DataType::F32, &[2, 40_001])?)?;
    let x = Stored::random(device, DataType::F16, &[3001, 33], Layout::row_major(), &mut random)?;
    let scale = Parameter::new(device, DataType::F32, &[33], &mut random)?;
    let bias = Parameter::new(device, DataType::F32, &[33], &mut random)?;
    let of = Normalize::batch(1, 2).statistics(Statistics::Saved);
    check(device, &of, &x, [Some(&scale), Some(&bias)], out(device, DataType::F16, &[3001, 33])?)?;
    // A mean of 4096 and deviations of a quarter: E[x²] - E[x]² would lose all digits.
    let values: Vec<f64> = (0..2000).map(|i| 4096.0 + f64::from(i % 3) * 0.25).collect();
    let x = Stored::new(device, DataType::F32, &[1, 2000], Layout::row_major(), &values)?;
    let mut result = out(device, DataType::F32, &[1, 2000])?;
    let of = Normalize { scale: false, bias: false, ..Normalize::layer(&[1]) };
    let rows = Rows::new(&values, &[1, 2000], &of);
    compute(device, of, &[&x], &mut [&mut result])?;
    let (mean, deviation, _) = rows.statistics[0];
    // The mean is rounded to 2^-12, which is 1/830 of the deviation.
    result.expect("a large mean", |at| Near { value: (values[at] - mean) * deviation, error: 5e-3 })
}

/// Random shapes, strides and axes.
fn random_normalization(device: &Device) -> CaseResult {
    let mut random = Random::new(49);
    for round in 0..8 {
        let rank = 1 + round % 4;
        let shape: Vec<usize> = (0..rank).map(|_| random.pick(&[1, 2, 5, 35])).collect();
        let shape = if shape.iter().product::<usize>() > 3000 { vec![5; rank] } else { shape };
        let mut axes: Vec<usize> = (0..rank).filter(|_| random.below(2) == 0).collect();
        if axes.is_empty() {
            axes.push(random.below(rank));
        }
        let layouts = [Layout::random(rank, &mut random), Layout::random(rank, &mut random)];
        let [layout_x, layout_y] = layouts;
        let x = Stored::random(device, random.pick(&DataType::FLOATS), &shape, layout_x, &mut random)?;
        let part: Vec<usize> =
            shape.iter().map(|size| if random.below(2) == 0 { 1 } else { *size }).collect();
        let scale = Parameter::new(device, DataType::F32, &part, &mut random)?;
        let of = Normalize { bias: false, center: round % 2 == 0, epsilon: 0.01, ..Normalize::layer(&axes) };
        let result = Stored::new(device, DataType::F32, &shape, layout_y, &[])?;
        check(device, &of, &x, [Some(&scale), None], result)?;
    }
    Ok(())
}

fn refused_normalization(device: &Device) -> CaseResult {
    let of = |data_type, shape: &[usize]| Stored::new(device, data_type, shape, Layout::row_major(), &[]);
    let float = |shape: &[usize]| of(DataType::F32, shape);
    let plain = Normalize { scale: false, bias: false, ..Normalize::layer(&[1]) };
    let running =
        Normalize { center: false, ..plain.clone() }.statistics(Statistics::Running { momentum: 0.1 });
    for (operation, inputs, outputs, parts) in [
        (
            Normalize::layer(&[1]),
            vec![float(&[4, 6])?],
            vec![float(&[4, 6])?],
            &["3 inputs (x, scale, bias)"][..],
        ),
        (
            plain.clone(),
            vec![float(&[4, 6])?],
            vec![float(&[4, 5])?],
            &["`result` [4, 5]", "[4, 6]", "axis 1"],
        ),
        (
            Normalize { axes: vec![2], ..plain.clone() },
            vec![float(&[4, 6])?],
            vec![float(&[4, 6])?],
            &["no axis 2"],
        ),
        (
            Normalize { scale: true, ..plain.clone() },
            vec![float(&[4, 6])?, float(&[4])?],
            vec![float(&[4, 6])?],
            &["`scale`", "[4]", "axis 0 has 4 elements, not 6 or 1"],
        ),
        (
            plain.clone().statistics(Statistics::Saved),
            vec![float(&[4, 6])?],
            vec![float(&[4, 6])?, float(&[4])?, float(&[4, 1])?],
            &["`mean` [4]", "[4, 1]", "1 axes, not 2"],
        ),
        (
            plain.clone().statistics(Statistics::Saved),
            vec![float(&[4, 6])?],
            vec![float(&[4, 6])?, of(DataType::F16, &[4, 1])?, float(&[4, 1])?],
            &["`mean`", "statistics are f32"],
        ),
        (
            running,
            vec![float(&[4, 6])?],
            vec![float(&[4, 6])?, float(&[4, 1])?, float(&[4, 1])?, float(&[4, 1])?],
            &["running statistics need a mean"],
        ),
        (plain, vec![of(DataType::I32, &[4, 6])?], vec![float(&[4, 6])?], &["`x`", "f32, f16 or bf16"]),
    ] {
        let mut outputs = outputs;
        let (inputs, mut outputs): (Vec<_>, Vec<_>) = (inputs.iter().collect(), outputs.iter_mut().collect());
        let error = compute(device, operation, &inputs, &mut outputs)
            .err()
            .map_or_else(String::new, |e| e.to_string());
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
    Ok(())
}
