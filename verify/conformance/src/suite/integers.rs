//! Integer arithmetic that C++ leaves undefined: nothing traps, and the optimizer does not exploit it.

use elinvar::{Device, Grid};

use super::{CaseResult, expect_all, kernel, run};

cases!("integers": a_check_behind_a_division, every_division, shifts_beyond_the_width, constant_operands);

fn a_check_behind_a_division(device: &Device) -> CaseResult {
    let text = "
        kernel void later(device const int* a, device const int* d, device int* out,
                          uint i [[thread_position_in_grid]]) {
            int q = a[i] / d[i];
            if (d[i] == 0) q = 77;
            int r = int(uint(a[i]) % uint(d[i]));
            if (d[i] != 0) r += 1000; else r = -5;
            int s = 1 << (d[i] & 63);
            if ((d[i] & 63) > 31) s = -9;
            out[3 * i] = q;
            out[3 * i + 1] = r;
            out[3 * i + 2] = s;
        }";
    let kernel = kernel(device, "later", text)?;
    let a: Vec<i32> = (0..64).map(|i| i * 37 + 5).collect();
    let d: Vec<i32> = (0..64).map(|i| if i % 3 == 0 { 0 } else { i }).collect();
    let (a_buffer, d_buffer) = (device.buffer_with_data(&a)?, device.buffer_with_data(&d)?);
    let mut out = device.buffer::<i32>(192)?;
    run(device, &kernel, Grid::threads(64), (&a_buffer, &d_buffer, &mut out))?;
    expect_all(&out.to_vec()?, |e| {
        let (a, d) = (a[e / 3], d[e / 3]);
        match e % 3 {
            0 => a.checked_div(d).unwrap_or(77),
            1 => a.checked_rem(d).map_or(-5, |r| r + 1000),
            _ => 1_i32.checked_shl(d as u32).unwrap_or(-9),
        }
    });
    Ok(())
}

const OPERANDS: [i64; 9] = [0, 1, -1, 7, -7, i32::MIN as i64, i32::MAX as i64, i64::MIN, i64::MAX];

fn every_division(device: &Device) -> CaseResult {
    let text = "
        template <typename T> kernel void divide(device const long* in, device long* out, constant uint& n,
                                                 uint i [[thread_position_in_grid]]) {
            T a = T(in[i / n]), b = T(in[i % n]);
            out[2 * i] = long(a / b);
            out[2 * i + 1] = long(a % b);
        }
        template [[host_name(\"i32\")]] kernel void divide<int>(device const long*, device long*, constant uint&, uint);
        template [[host_name(\"u32\")]] kernel void divide<uint>(device const long*, device long*, constant uint&, uint);
        template [[host_name(\"i64\")]] kernel void divide<long>(device const long*, device long*, constant uint&, uint);
        template [[host_name(\"u64\")]] kernel void divide<ulong>(device const long*, device long*, constant uint&, uint);";
    fn check<T: Copy>(
        device: &Device,
        (name, text): (&str, &str),
        narrow: fn(i64) -> T,
        divide: fn(T, T) -> [i64; 2],
    ) -> CaseResult {
        let n = OPERANDS.len();
        let input = device.buffer_with_data(&OPERANDS)?;
        let mut out = device.buffer::<i64>(2 * n * n)?;
        run(device, &kernel(device, name, text)?, Grid::threads(n * n), (&input, &mut out, n as u32))?;
        let pair = |i: usize| divide(narrow(OPERANDS[i / n]), narrow(OPERANDS[i % n]));
        expect_all(&out.to_vec()?, |e| pair(e / 2)[e % 2]);
        Ok(())
    }
    let signed = |a: i64, b: i64| if b == 0 { [0, 0] } else { [a.wrapping_div(b), a.wrapping_rem(b)] };
    check(device, ("i64", text), |x| x, signed)?;
    check(
        device,
        ("i32", text),
        |x| x as i32,
        |a, b| if b == 0 { [0, 0] } else { [a.wrapping_div(b).into(), a.wrapping_rem(b).into()] },
    )?;
    check(
        device,
        ("u32", text),
        |x| x as u32,
        |a, b| [a.checked_div(b).unwrap_or(0).into(), a.checked_rem(b).unwrap_or(0).into()],
    )?;
    check(
        device,
        ("u64", text),
        |x| x as u64,
        |a, b| [a.checked_div(b).unwrap_or(0) as i64, a.checked_rem(b).unwrap_or(0) as i64],
    )
}

fn shifts_beyond_the_width(device: &Device) -> CaseResult {
    let text = "
        kernel void shift(device const uint* by, device ulong* out, uint i [[thread_position_in_grid]]) {
            uint n = by[i];
            out[4 * i] = 0x12345678u << n;
            out[4 * i + 1] = 0xf2345678u >> n;
            out[4 * i + 2] = ulong(int(0xf2345678u) >> n);
            out[4 * i + 3] = 0xf23456789abcdef0ul >> n;
        }";
    let by: Vec<u32> = (0..140).chain([u32::MAX, 1 << 31]).collect();
    let by_buffer = device.buffer_with_data(&by)?;
    let mut out = device.buffer::<u64>(4 * by.len())?;
    run(device, &kernel(device, "shift", text)?, Grid::threads(by.len()), (&by_buffer, &mut out))?;
    expect_all(&out.to_vec()?, |e| {
        let n = by[e / 4];
        match e % 4 {
            0 => 0x1234_5678_u32.wrapping_shl(n).into(),
            1 => 0xf234_5678_u32.wrapping_shr(n).into(),
            2 => i64::from((0xf234_5678_u32 as i32).wrapping_shr(n)) as u64,
            _ => 0xf234_5678_9abc_def0_u64.wrapping_shr(n),
        }
    });
    Ok(())
}

fn constant_operands(device: &Device) -> CaseResult {
    let text = "
        kernel void constants(device const int* a, device int* out) {
            int zero = a[0] - a[0];
            out[0] = a[0] / zero;
            out[1] = a[0] % zero;
            int beyond = 33;
            out[2] = a[0] << beyond;
            out[3] = a[1] / -1;
            out[4] = a[1] % -1;
            if (zero == 0) out[5] = 6;
        }";
    let a = device.buffer_with_data(&[5, i32::MIN])?;
    let mut out = device.buffer_with_data(&[9_i32; 6])?;
    run(device, &kernel(device, "constants", text)?, Grid::threads(1), (&a, &mut out))?;
    expect_all(&out.to_vec()?, |e| [0, 0, 10, i32::MIN, 0, 6][e]);
    Ok(())
}
