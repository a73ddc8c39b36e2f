//! Results that `docs/rust-kernels.md` defines.

use elinvar::{Device, Error, Grid, Result};
use elinvar_rust_kernels::semantics::{beyond, careful, casts, defined, names, one_rounding, two_roundings};

#[test]
fn what_panics_on_the_host_is_defined_on_devices() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let a = [7, i32::MIN, i32::MIN, i32::MAX, 1, -9];
    let b = [0, 0, -1, 1, 33, 2];
    let (x, y) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut out = device.buffer::<i32>(24)?;
    defined.launch(&stream, Grid::threads(6), (&x, &y, &mut out))?.wait()?;
    let expected: Vec<i32> = a
        .iter()
        .zip(&b)
        .flat_map(|(a, b)| {
            let quotient = if *b == 0 { 0 } else { a.wrapping_div(*b) };
            let remainder = if *b == 0 { 0 } else { a.wrapping_rem(*b) };
            [quotient, remainder, a.wrapping_add(*b), a.wrapping_shl(*b as u32)]
        })
        .collect();
    assert_eq!(out.to_vec()?, expected);
    let host = std::panic::catch_unwind(|| defined.host(Grid::threads(6), (&a, &b, &mut [0; 24])));
    assert!(host.is_err(), "the host divides by zero");
    Ok(())
}

#[test]
fn casts_saturate() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let mut xs = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.9, -0.9, -0.0, 1e30, -1e30];
    for bits in [7, 8, 15, 16, 31, 32, 63, 64] {
        let power = 2.0f32.powi(bits);
        xs.extend([
            power,
            -power,
            power.next_down(),
            -power.next_down(),
            power.next_up(),
            power - 1.0,
            0.5 - power,
        ]);
    }
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<i64>(8 * xs.len())?;
    casts.launch(&stream, Grid::threads(xs.len()), (&x, &mut out))?.wait()?;
    let mut host = vec![0; 8 * xs.len()];
    casts.host(Grid::threads(xs.len()), (&xs, &mut host));
    let out = out.to_vec()?;
    for (at, (found, expected)) in out.iter().zip(&host).enumerate() {
        assert_eq!(found, expected, "cast {} of {}", at % 8, xs[at / 8]);
    }
    assert_eq!(out[..8], [0; 8], "NaN is 0");
    Ok(())
}

#[test]
fn out_of_bounds_reads_are_zero_and_faults() -> Result<()> {
    let device = Device::system_default()?;
    for (at, out_length) in [(4u32, 4usize), (u32::MAX, 4), (0, 3)] {
        let stream = device.stream()?;
        let x = device.buffer_with_data(&[9u32; 4])?;
        let mut out = device.buffer::<u32>(out_length)?;
        let failure =
            beyond.launch(&stream, Grid::threads(4), (&x, &mut out, at))?.wait().expect_err("out of bounds");
        assert!(matches!(&failure, Error::Fault(fault) if fault.kernel == "beyond"), "{failure}");
        assert!(failure.to_string().contains("semantics.rs:"), "{failure}");
    }
    Ok(())
}

#[test]
fn names_that_msl_reserves() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs = [0u32, 5, 70];
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<u32>(3)?;
    names.launch(&stream, Grid::threads(3), (&x, &mut out))?.wait()?;
    let mut host = [0; 3];
    names.host(Grid::threads(3), (&xs, &mut host));
    let expected: Vec<u32> = xs.iter().map(|x| (((x + 1) * 2 + 1) << 3) + x + 1).collect();
    assert_eq!((out.to_vec()?, host.to_vec()), (expected.clone(), expected));
    Ok(())
}

#[test]
fn math_modes_are_those_of_the_attribute() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let (tiny, n) = (f32::EPSILON, 100);
    let values: Vec<f32> =
        (0..=n).map(|i| if i % 2 == 0 { 1.0 + (i + 1) as f32 * tiny } else { -1.0 }).collect();
    let x = device.buffer_with_data(&values)?;
    let (mut two, mut one) = (device.buffer::<f32>(n)?, device.buffer::<f32>(n)?);
    two_roundings.launch(&stream, Grid::threads(n), (&x, &mut two))?.wait()?;
    one_rounding.launch(&stream, Grid::threads(n), (&x, &mut one))?.wait()?;
    let (two, one) = (two.to_vec()?, one.to_vec()?);
    for i in 0..n {
        let (a, b) = (values[i], values[i + 1]);
        assert_eq!((two[i], one[i]), (a * a + b, a.mul_add(a, b)), "element {i}");
    }
    assert_ne!(two, one, "the modes differ");
    assert!(two_roundings::MSL.contains("math_mode(safe)") && one_rounding::MSL.contains("math_mode(fast)"));
    Ok(())
}

/// Units in the last place between two numbers; 0 for two NaNs.
fn distance(a: f32, b: f32) -> u32 {
    let order = |x: f32| {
        if x.to_bits() >> 31 == 1 { -((x.to_bits() & 0x7fff_ffff) as i64) } else { x.to_bits() as i64 }
    };
    if a.is_nan() && b.is_nan() { 0 } else { order(a).abs_diff(order(b)).try_into().unwrap() }
}

#[test]
fn hypot_and_powi_of_hostile_values() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let mut values =
        vec![0.0, 1.0, 1.0f32.next_up(), 1.0f32.next_down(), 0.3, 3.0, 1e-45, 7e-45, 1.1e-38, 1e-20, 1e19];
    values.extend([f32::MIN_POSITIVE, f32::MAX, f32::MAX / 1.5, f32::INFINITY, f32::NAN, 8_388_609.0]);
    for edge in [2.0f32.powi(60), 2.0f32.powi(-60), 2.0f32.powi(64), 2.0f32.powi(-75), 2.0f32.powi(-140)] {
        values.extend([edge, edge.next_up(), edge.next_down()]);
    }
    values.extend(values.clone().iter().map(|x| -x));
    let exponents = [0, 1, -1, 2, -2, 3, -3, 7, 31, -40, 127, -149, 1 << 24, (1 << 24) + 1, -(1 << 24) - 1];
    let exponents = [&exponents[..], &[0x7fff_fffe, i32::MAX, -i32::MAX, i32::MIN]].concat();
    let pairs: Vec<(f32, f32)> = values.iter().flat_map(|x| values.iter().map(|y| (*x, *y))).collect();
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
    let n: Vec<i32> = (0..x.len()).map(|i| exponents[i % exponents.len()]).collect();
    let (dx, dy) = (device.buffer_with_data(&x)?, device.buffer_with_data(&y)?);
    let dn = device.buffer_with_data(&n)?;
    let mut out = device.buffer::<f32>(2 * x.len())?;
    careful.launch(&stream, Grid::threads(x.len()), (&dx, &dy, &dn, &mut out))?.wait()?;
    let mut host = vec![0.0; 2 * x.len()];
    careful.host(Grid::threads(x.len()), (&x, &y, &n, &mut host));
    let out = out.to_vec()?;
    for i in 0..x.len() {
        let exact = f64::from(x[i]).hypot(f64::from(y[i])) as f32;
        for reference in [exact, host[2 * i]] {
            let (found, far) = (out[2 * i], distance(out[2 * i], reference));
            assert!(far <= 1, "hypot({:e}, {:e}) is {found:e}, not {reference:e}", x[i], y[i]);
        }
        let (found, expected) = (out[2 * i + 1], host[2 * i + 1]);
        let equal = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(equal, "powi({:e}, {}) is {found:e}, not {expected:e}", x[i], n[i]);
    }
    // Every number has every exponent: their counts have no common factor.
    assert_eq!((values.len() % exponents.len() != 0, x.len()), (true, 64 * 64));
    Ok(())
}
