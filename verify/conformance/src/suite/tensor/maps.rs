//! Element-wise maps, casts, copies to other strides.

use elinvar::Device;
use elinvar::tensor::{Binary, DataType, Map, Ternary, Unary};

use super::super::CaseResult;
use super::{Layout, Near, Random, Stored, UNIT, broadcast, compute, indices};

cases! { "tensor": unary_functions, binary_functions, ternary_functions, integers, casts, broadcasts, copies, transposes, in_place }

const SHAPE: [usize; 2] = [3, 37];

/// A function of `f32` arithmetic: 16 roundings cover the bounds of the numerics page for arguments up to 2.
fn rounded(value: f64) -> Near {
    Near { value, error: 16.0 * UNIT * value.abs() }
}

fn erf(x: f64) -> f64 {
    // Maclaurin series, which converges fast for arguments up to 2.
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn unary(function: Unary, x: f64) -> Near {
    let sigmoid = 1.0 / (1.0 + (-x).exp());
    match function {
        Unary::Copy => Near::exact(x),
        Unary::Negate => Near::exact(-x),
        Unary::Abs => Near::exact(x.abs()),
        Unary::Exp => rounded(x.exp()),
        Unary::Log => rounded(x.ln()),
        Unary::Sqrt => rounded(x.sqrt()),
        Unary::Rsqrt => rounded(1.0 / x.sqrt()),
        // Absolute: the error of the reduced argument.
        Unary::Sin => Near { value: x.sin(), error: 16.0 * UNIT },
        Unary::Cos => Near { value: x.cos(), error: 16.0 * UNIT },
        Unary::Floor => Near::exact(x.floor()),
        Unary::Ceil => Near::exact(x.ceil()),
        Unary::Round => Near::exact(x.round_ties_even()),
        Unary::Reciprocal => rounded(1.0 / x),
        Unary::Square => Near::exact(x * x),
        // The documented bound of the approximation, and roundings of values up to 1.
        Unary::Erf => Near { value: erf(x), error: 1.5e-7 + 16.0 * UNIT },
        Unary::Relu => Near::exact(x.max(0.0)),
        Unary::Gelu => Near {
            value: 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
            error: x.abs() * (1.5e-7 + 16.0 * UNIT),
        },
        Unary::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            Near { value: 0.5 * x * (1.0 + inner.tanh()), error: x.abs() * 32.0 * UNIT }
        }
        Unary::Silu => rounded(x * sigmoid),
        Unary::Sigmoid => rounded(sigmoid),
        Unary::Tanh => rounded(x.tanh()),
        other => panic!("{other:?}"),
    }
}

fn unary_functions(device: &Device) -> CaseResult {
    let mut random = Random::new(1);
    for function in Unary::ALL {
        // Every function for one type, and one function for every type: conversions do not depend on the function.
        let types = if *function == Unary::Silu { &DataType::FLOATS[..] } else { &[DataType::F32] };
        for data_type in types {
            let (x, mut values) =
                Stored::random(device, *data_type, &SHAPE, Layout::row_major(), &mut random)?;
            let mut x = x;
            if matches!(function, Unary::Log | Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal) {
                values.iter_mut().for_each(|value| *value = value.abs() + 0.0625);
                x = Stored::new(device, *data_type, &SHAPE, Layout::row_major(), &values)?;
            }
            let mut out = Stored::new(device, *data_type, &SHAPE, Layout::row_major(), &[])?;
            compute(device, Map::Unary(*function), &[&x], &mut [&mut out])?;
            out.expect(function.name(), |at| unary(*function, values[at]))?;
        }
    }
    Ok(())
}

fn binary(function: Binary, a: f64, b: f64) -> Near {
    let truth = |value: bool| Near::exact(f64::from(u8::from(value)));
    match function {
        Binary::Add => Near::exact(a + b),
        Binary::Subtract => Near::exact(a - b),
        Binary::Multiply => Near::exact(a * b),
        Binary::Divide if b == 0.0 => Near::exact(a / b),
        Binary::Divide => rounded(a / b),
        Binary::Min => Near::exact(if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }),
        Binary::Max => Near::exact(if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }),
        Binary::Power => rounded(a.powf(b)),
        Binary::Equal => truth(a == b),
        Binary::NotEqual => truth(a != b),
        Binary::Less => truth(a < b),
        Binary::LessEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterEqual => truth(a >= b),
        other => panic!("{other:?}"),
    }
}

fn binary_functions(device: &Device) -> CaseResult {
    let mut random = Random::new(2);
    for function in Binary::ALL {
        let is_comparison = *function as u32 >= Binary::Equal as u32;
        let (a_type, b_type) =
            if is_comparison { (DataType::F16, DataType::BF16) } else { (DataType::F32, DataType::F32) };
        let out_type = if is_comparison { DataType::U8 } else { DataType::F32 };
        let (mut a, mut b) = (random.values(111, a_type), random.values(111, b_type));
        if *function == Binary::Power {
            a.iter_mut().for_each(|a| *a = a.abs() + 0.0625);
        } else {
            // NaN on either side, an infinity, and equal numbers.
            (a[0], b[1], a[2]) = (f64::NAN, f64::NAN, f64::INFINITY);
            b[3] = a[3];
        }
        if *function == Binary::Divide {
            b.iter_mut().for_each(|b| *b = if *b == 0.0 { 1.0 } else { *b });
        }
        let left = Stored::new(device, a_type, &SHAPE, Layout::row_major(), &a)?;
        let right = Stored::new(device, b_type, &SHAPE, Layout::transposed(2), &b)?;
        let mut out = Stored::new(device, out_type, &SHAPE, Layout::row_major(), &[])?;
        compute(device, Map::Binary(*function), &[&left, &right], &mut [&mut out])?;
        out.expect(function.name(), |at| binary(*function, a[at], b[at]))?;
    }
    Ok(())
}

fn ternary_functions(device: &Device) -> CaseResult {
    let mut random = Random::new(3);
    let (mask, m) = Stored::random(device, DataType::U8, &SHAPE, Layout::row_major(), &mut random)?;
    let (a, x) = Stored::random(device, DataType::F16, &SHAPE, Layout::row_major(), &mut random)?;
    let (b, y) = Stored::random(device, DataType::F32, &[37], Layout::row_major(), &mut random)?;
    let mut out = Stored::new(device, DataType::F32, &SHAPE, Layout::row_major(), &[])?;
    compute(device, Map::SELECT, &[&mask, &a, &b], &mut [&mut out])?;
    out.expect("select", |at| Near::exact(if m[at] != 0.0 { x[at] } else { y[at % 37] }))?;
    compute(device, Map::Ternary(Ternary::Fma), &[&a, &b, &mask], &mut [&mut out])?;
    out.expect("fma", |at| Near::exact(x[at] * y[at % 37] + m[at]))
}

/// Integers wrap, and divisions by 0 are 0.
fn integers(device: &Device) -> CaseResult {
    let a = [i32::MAX, i32::MIN, -7, 7, 100, -100, 0, i32::MIN];
    let b = [1, -1, 2, 0, 100, 3, -5, i32::MIN];
    let (left, right) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let stream = device.stream()?;
    type Function = fn(i32, i32) -> i32;
    let functions: [(Binary, Function); 6] = [
        (Binary::Add, i32::wrapping_add),
        (Binary::Subtract, i32::wrapping_sub),
        (Binary::Multiply, i32::wrapping_mul),
        (Binary::Divide, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
        (Binary::Max, i32::max),
        (Binary::Less, |a, b| i32::from(a < b)),
    ];
    for (function, expected) in functions {
        let mut out = device.buffer::<i32>(8)?;
        let views = [left.tensor(&[8])?, right.tensor(&[8])?];
        stream.tensor(Map::Binary(function), &[&views[0], &views[1]], &mut [&mut out.tensor_mut(&[8])?])?;
        let wanted: Vec<i32> = a.iter().zip(&b).map(|(a, b)| expected(*a, *b)).collect();
        assert_eq!(out.to_vec()?, wanted, "{function:?}");
    }
    Ok(())
}

/// Every type to every other; floats saturate, integers wrap.
fn casts(device: &Device) -> CaseResult {
    for from in DataType::ALL {
        for to in DataType::ALL {
            let mut values = vec![0.0, 1.0, 2.0, 100.0, 127.0];
            if from.is_float() {
                values.extend([-1.75, 1.75, -0.5, 300.0, -300.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            } else if from != DataType::U8 {
                values.extend([-1.0, -128.0]);
            }
            if from == DataType::I32 {
                values.extend([
                    255.0,
                    256.0,
                    -129.0,
                    65_536.0 + 5.0,
                    f64::from(i32::MAX),
                    f64::from(i32::MIN),
                ]);
            }
            let shape = [values.len()];
            let x = Stored::new(device, from, &shape, Layout::row_major(), &values)?;
            let mut out = Stored::new(device, to, &shape, Layout::row_major(), &[])?;
            compute(device, Map::COPY, &[&x], &mut [&mut out])?;
            let cast = |x: f64| match (from.is_float(), to) {
                (true, DataType::I32) => f64::from(x as i32),
                (true, DataType::I8) => f64::from(x as i8),
                (true, DataType::U8) => f64::from(x as u8),
                (false, DataType::I8) => f64::from(x as i32 as i8),
                (false, DataType::U8) => f64::from(x as i32 as u8),
                _ => x,
            };
            // 300 in bf16 is 300; in f16 too. Other values are exact, or compared with the rounding of their type.
            out.expect(&format!("{from} to {to}"), |at| Near { value: cast(values[at]), error: 0.0 })?;
        }
    }
    Ok(())
}

/// Random shapes, strides and broadcast axes.
fn broadcasts(device: &Device) -> CaseResult {
    let mut random = Random::new(4);
    for round in 0..12 {
        let rank = round % 6;
        let shape: Vec<usize> = (0..rank).map(|_| random.pick(&[1, 2, 3, 5, 7, 65])).collect();
        let shape = if shape.iter().product::<usize>() > 4000 { vec![3; rank] } else { shape };
        let part = |random: &mut Random| -> Vec<usize> {
            let skip = random.below(rank + 1).saturating_sub(rank / 2);
            shape[skip..].iter().map(|size| if random.below(3) == 0 { 1 } else { *size }).collect()
        };
        let shapes = [part(&mut random), part(&mut random)];
        let types = [random.pick(&DataType::FLOATS), random.pick(&DataType::FLOATS)];
        let [layout_a, layout_b] =
            [&shapes[0], &shapes[1]].map(|shape| Layout::random(shape.len(), &mut random));
        let (a, x) = Stored::random(device, types[0], &shapes[0], layout_a, &mut random)?;
        let (b, y) = Stored::random(device, types[1], &shapes[1], layout_b, &mut random)?;
        let layout = Layout::random(rank, &mut random);
        let mut out = Stored::new(device, DataType::F32, &shape, layout, &[])?;
        compute(device, Map::MULTIPLY, &[&a, &b], &mut [&mut out])?;
        let index: Vec<Vec<usize>> = indices(&shape).collect();
        out.expect(&format!("round {round}: {shapes:?}"), |at| {
            Near::exact(x[broadcast(&index[at], &shapes[0])] * y[broadcast(&index[at], &shapes[1])])
        })?;
    }
    Ok(())
}

/// Copies between random strides, of every type.
fn copies(device: &Device) -> CaseResult {
    let mut random = Random::new(5);
    for (round, data_type) in DataType::ALL.into_iter().chain(DataType::FLOATS).enumerate() {
        let shape = [[5, 2, 67], [33, 3, 2], [1, 70, 3]][round % 3];
        let layout = Layout::random(3, &mut random);
        let (x, values) = Stored::random(device, data_type, &shape, layout, &mut random)?;
        let layout = Layout::random(3, &mut random);
        let mut out = Stored::new(device, data_type, &shape, layout, &[])?;
        compute(device, Map::COPY, &[&x], &mut [&mut out])?;
        out.expect("copy", |at| Near::exact(values[at]))?;
    }
    Ok(())
}

/// Copies that exchange axes, at sizes around that of a tile, of a threadgroup and of a block of rows, with margins, of several matrices,
/// and to another type.
fn transposes(device: &Device) -> CaseResult {
    let mut random = Random::new(6);
    use DataType::{BF16, F16, F32, I8, I32, U8};
    for (data_type, to, shape) in [
        (F32, F32, vec![31, 33]),
        (F32, F32, vec![17, 16]),
        (F32, F32, vec![1031, 18]),
        (F32, F32, vec![19, 2053]),
        (F16, F16, vec![64, 97]),
        (F16, F16, vec![257, 23]),
        (BF16, BF16, vec![3, 40, 35]),
        (I8, I8, vec![2, 3, 33, 65]),
        (U8, U8, vec![271, 48]),
        (I32, I32, vec![33, 40]),
        (I32, I32, vec![2, 256, 32]),
        (I8, F32, vec![47, 289]),
        (BF16, F32, vec![2, 50, 37]),
        (I8, F16, vec![16, 275]),
    ] {
        let margins = vec![(1, 2); shape.len()];
        let layout = Layout { margins, ..Layout::transposed(shape.len()) };
        let (x, values) = Stored::random(device, data_type, &shape, layout, &mut random)?;
        let layout = Layout { margins: vec![(2, 1); shape.len()], ..Layout::default() };
        let mut out = Stored::new(device, to, &shape, layout, &[])?;
        compute(device, Map::COPY, &[&x], &mut [&mut out])?;
        out.expect(&format!("transpose of {shape:?}, {data_type} to {to}"), |at| Near::exact(values[at]))?;
    }
    Ok(())
}

/// The result of a map may be one of its operands.
fn in_place(device: &Device) -> CaseResult {
    let mut buffer = device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let other = device.buffer_with_data(&[10.0f32, 20.0])?;
    let handle = buffer.clone();
    // The second column of a matrix of three.
    let column = handle.tensor(&[2, 3])?.index(1, 1)?;
    let mut target = buffer.tensor_mut(&[2, 3])?.index(1, 1)?;
    device.stream()?.tensor(Map::ADD, &[&column, &other.tensor(&[2])?], &mut [&mut target])?;
    assert_eq!(buffer.to_vec()?, [1.0, 12.0, 3.0, 4.0, 25.0, 6.0]);
    Ok(())
}
