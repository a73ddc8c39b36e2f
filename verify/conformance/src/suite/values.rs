//! Values in kernels: vectors, half and bfloat, integer edge cases, atomics, library functions.

use elinvar::{Device, Grid, bf16, f16};

use super::{CaseResult, expect_all, kernel, run};

cases!("values": vectors_and_swizzles, half_arithmetic, bfloat_arithmetic, integer_corners, conversions,
    atomic_integers, atomic_float_add, compare_exchange, threadgroup_atomics, float_functions, matrices);

fn vectors_and_swizzles(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "swizzle",
        "kernel void swizzle(device const float4* in [[buffer(0)]], device float4* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            float4 v = in[i];
            v.xy = v.zw + float2(1.0f, 2.0f);
            float3 c = cross(v.xyz, float3(1, 2, 3));
            v.w = dot(c, c.zyx) + length_squared(v.xz);
            bool4 m = v > float4(0.0f);
            out[i] = select(-v.wzyx, v, m) + float4(c, 1.0f);
        }",
    )?;
    let input: Vec<[f32; 4]> = (0..64).map(|i| [i as f32, 3.0 - i as f32, (i % 5) as f32, -2.0]).collect();
    let buffer = device.buffer_with_data(&input)?;
    let mut out = device.buffer::<[f32; 4]>(64)?;
    run(device, &kernel, Grid::threads(64), (&buffer, &mut out))?;
    expect_all(&out.to_vec()?, |i| {
        let [_, _, z, w] = input[i];
        let (x, y) = (z + 1.0, w + 2.0);
        let c = [y * 3.0 - z * 2.0, z - x * 3.0, x * 2.0 - y];
        let w = c[0] * c[2] + c[1] * c[1] + c[2] * c[0] + (x * x + z * z);
        let v = [x, y, z, w];
        std::array::from_fn(|k| {
            let chosen = if v[k] > 0.0 { v[k] } else { -v[3 - k] };
            chosen + if k < 3 { c[k] } else { 1.0 }
        })
    });
    Ok(())
}

fn half_arithmetic(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "halves",
        "kernel void halves(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
                device half* sum [[buffer(2)]], device half* product [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
            sum[i] = a[i] + b[i];
            product[i] = a[i] * b[i];
        }",
    )?;
    let a: Vec<f16> = (0..500).map(|i| f16::from_f32((i as f32 - 250.0) * 0.37)).collect();
    let b: Vec<f16> = (0..500).map(|i| f16::from_f32(100.0 / (i as f32 + 1.0))).collect();
    let (a_buffer, b_buffer) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let (mut sum, mut product) = (device.buffer::<f16>(500)?, device.buffer::<f16>(500)?);
    run(device, &kernel, Grid::threads(500), (&a_buffer, &b_buffer, &mut sum, &mut product))?;
    // A sum or product of two halves is exact in f64, so one rounding gives the half result.
    expect_all(&sum.to_vec()?, |i| f16::from_f64(a[i].to_f64() + b[i].to_f64()));
    expect_all(&product.to_vec()?, |i| f16::from_f64(a[i].to_f64() * b[i].to_f64()));
    Ok(())
}

fn bfloat_arithmetic(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "bfloats",
        "kernel void bfloats(device const bfloat* a [[buffer(0)]], device const bfloat* b [[buffer(1)]],
                device bfloat* sum [[buffer(2)]], device bfloat* product [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
            sum[i] = a[i] + b[i];
            product[i] = a[i] * b[i];
        }",
    )?;
    let a: Vec<bf16> = (0..500).map(|i| bf16::from_f32((i as f32 - 250.0) * 0.37)).collect();
    let b: Vec<bf16> = (0..500).map(|i| bf16::from_f32(100.0 / (i as f32 + 1.0))).collect();
    let (a_buffer, b_buffer) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let (mut sum, mut product) = (device.buffer::<bf16>(500)?, device.buffer::<bf16>(500)?);
    run(device, &kernel, Grid::threads(500), (&a_buffer, &b_buffer, &mut sum, &mut product))?;
    expect_all(&sum.to_vec()?, |i| bf16::from_f64(a[i].to_f64() + b[i].to_f64()));
    expect_all(&product.to_vec()?, |i| bf16::from_f64(a[i].to_f64() * b[i].to_f64()));
    Ok(())
}

/// Division by zero and of the least integer by -1, and shifts by at least the width: defined, without a trap.
fn integer_corners(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "corners",
        "kernel void corners(device const int* a [[buffer(0)]], device const int* b [[buffer(1)]],
                device int* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            int x = a[i], y = b[i];
            uint ux = uint(x), uy = uint(y);
            device int* o = out + 7 * i;
            o[0] = x / y; o[1] = x % y; o[2] = int(ux / uy); o[3] = int(ux % uy);
            o[4] = x << y; o[5] = x >> y; o[6] = int(ux >> uy);
        }",
    )?;
    let values = [0, 1, -1, 7, -7, i32::MIN, i32::MAX, 31, 32, 33, 64, -32];
    let pairs: Vec<(i32, i32)> = values.iter().flat_map(|a| values.iter().map(|b| (*a, *b))).collect();
    let a = device.buffer_with_data(&pairs.iter().map(|p| p.0).collect::<Vec<_>>())?;
    let b = device.buffer_with_data(&pairs.iter().map(|p| p.1).collect::<Vec<_>>())?;
    let mut out = device.buffer::<i32>(7 * pairs.len())?;
    run(device, &kernel, Grid::threads(pairs.len()), (&a, &b, &mut out))?;
    expect_all(&out.to_vec()?, |e| {
        let (x, y) = pairs[e / 7];
        let (ux, uy) = (x as u32, y as u32);
        match e % 7 {
            0 if y == 0 => 0,
            0 => x.wrapping_div(y),
            1 if y == 0 => 0,
            1 => x.wrapping_rem(y),
            2 => ux.checked_div(uy).unwrap_or(0) as i32,
            3 => ux.checked_rem(uy).unwrap_or(0) as i32,
            4 => x.wrapping_shl(uy),
            5 => x.wrapping_shr(uy),
            _ => ux.wrapping_shr(uy) as i32,
        }
    });
    Ok(())
}

fn conversions(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "convert",
        "kernel void convert(device const int* in [[buffer(0)]], device long* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            int v = in[i];
            device long* o = out + 8 * i;
            o[0] = char(v); o[1] = uchar(v); o[2] = short(v); o[3] = ushort(v); o[4] = long(uint(v));
            o[5] = as_type<int>(float(v)); o[6] = long(half(short(v) / 16)); o[7] = bool(v);
        }",
    )?;
    let values: Vec<i32> = (-40_i32..40).map(|i| i.wrapping_mul(123_456_789)).collect();
    let input = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<i64>(8 * values.len())?;
    run(device, &kernel, Grid::threads(values.len()), (&input, &mut out))?;
    expect_all(&out.to_vec()?, |e| {
        let v = values[e / 8];
        match e % 8 {
            0 => i64::from(v as i8),
            1 => i64::from(v as u8),
            2 => i64::from(v as i16),
            3 => i64::from(v as u16),
            4 => i64::from(v as u32),
            5 => i64::from((v as f32).to_bits() as i32),
            6 => f16::from_f32(f32::from(v as i16 / 16)).to_f32() as i64,
            _ => i64::from(v != 0),
        }
    });
    Ok(())
}

fn atomic_integers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "tally",
        "kernel void tally(device atomic_uint* u [[buffer(0)]], device atomic_int* s [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&u[0], i, memory_order_relaxed);
            atomic_fetch_sub_explicit(&u[1], 1u, memory_order_relaxed);
            atomic_fetch_max_explicit(&u[2], i ^ 0x55u, memory_order_relaxed);
            atomic_fetch_min_explicit(&u[3], i + 17u, memory_order_relaxed);
            atomic_fetch_or_explicit(&u[4], 1u << (i % 32u), memory_order_relaxed);
            atomic_fetch_and_explicit(&u[5], ~(1u << (i % 16u)), memory_order_relaxed);
            atomic_fetch_xor_explicit(&u[6], i, memory_order_relaxed);
            atomic_fetch_min_explicit(&s[0], -int(i), memory_order_relaxed);
            atomic_fetch_max_explicit(&s[1], int(i) - 5000, memory_order_relaxed);
            if (i == 77u) atomic_store_explicit(&s[2], -9, memory_order_relaxed);
            if (i == 78u) {
                int before = atomic_exchange_explicit(&s[4], 12, memory_order_relaxed);
                atomic_store_explicit(&s[3], before, memory_order_relaxed);
            }
        }",
    )?;
    let n = 10_000_u32;
    let mut u = device.buffer_with_data(&[0, n, 0, u32::MAX, 0, u32::MAX, 0])?;
    let mut s = device.buffer_with_data(&[0, i32::MIN, 0, 0, 11])?;
    run(device, &kernel, Grid::threads(n), (&mut u, &mut s))?;
    let max = (0..n).map(|i| i ^ 0x55).max().unwrap_or(0);
    let xor = (0..n).fold(0, |a, i| a ^ i);
    assert_eq!(u.to_vec()?, [n * (n - 1) / 2, 0, max, 17, u32::MAX, 0xffff_0000, xor]);
    assert_eq!(s.to_vec()?, [-(n as i32 - 1), n as i32 - 1 - 5000, -9, 11, 12]);
    Ok(())
}

fn atomic_float_add(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "float_tally",
        "kernel void float_tally(device atomic_float* sums [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&sums[i % 3u], float(i % 8u), memory_order_relaxed);
        }",
    )?;
    let mut sums = device.buffer::<f32>(3)?;
    run(device, &kernel, Grid::threads(24_000), (&mut sums,))?;
    let expected = |k: usize| (0..24_000).filter(|i| i % 3 == k).map(|i| (i % 8) as f32).sum();
    expect_all(&sums.to_vec()?, expected);
    Ok(())
}

fn compare_exchange(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "cas_add",
        "kernel void cas_add(device atomic_uint* value [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            uint seen = atomic_load_explicit(value, memory_order_relaxed);
            while (!atomic_compare_exchange_weak_explicit(value, &seen, seen + i, memory_order_relaxed,
                                                          memory_order_relaxed)) {}
        }",
    )?;
    let mut value = device.buffer_with_data(&[5_u32])?;
    run(device, &kernel, Grid::threads(5000), (&mut value,))?;
    assert_eq!(value.to_vec()?, [5 + 5000 * 4999 / 2]);
    Ok(())
}

fn threadgroup_atomics(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "histogram",
        "kernel void histogram(device const uchar* in [[buffer(0)]], device atomic_uint* out [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]]) {
            threadgroup atomic_uint bins[256];
            atomic_store_explicit(&bins[local], 0u, memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            atomic_fetch_add_explicit(&bins[in[i]], 1u, memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint count = atomic_load_explicit(&bins[local], memory_order_relaxed);
            atomic_fetch_add_explicit(&out[local], count, memory_order_relaxed);
        }",
    )?;
    let data: Vec<u8> = (0..256 * 40).map(|i: u32| (i.wrapping_mul(i) >> 5) as u8).collect();
    let input = device.buffer_with_data(&data)?;
    let mut bins = device.buffer::<u32>(256)?;
    run(device, &kernel, Grid::threads(data.len()).group(256), (&input, &mut bins))?;
    expect_all(&bins.to_vec()?, |bin| data.iter().filter(|d| usize::from(**d) == bin).count() as u32);
    Ok(())
}

/// Compared with f64, with a bound far above the error of the functions but far below that of a wrong function.
fn float_functions(device: &Device) -> CaseResult {
    type Function = (&'static str, fn(f64) -> f64);
    let functions: [Function; 17] = [
        ("exp(v)", f64::exp),
        ("log(v)", f64::ln),
        ("exp2(v)", f64::exp2),
        ("log2(v)", f64::log2),
        ("sin(v)", f64::sin),
        ("cos(v)", f64::cos),
        ("tan(v)", f64::tan),
        ("sqrt(v)", f64::sqrt),
        ("rsqrt(v)", |v| 1.0 / v.sqrt()),
        ("pow(v, 1.5f)", |v| v.powf(1.5)),
        ("tanh(v)", f64::tanh),
        ("atan(v)", f64::atan),
        ("floor(v)", f64::floor),
        ("fract(v)", |v| v - v.floor()),
        ("clamp(v, 1.0f, 2.0f)", |v| v.clamp(1.0, 2.0)),
        ("mix(v, 10.0f, 0.25f)", |v| v + (10.0 - v) * 0.25),
        ("fma(v, v, -1.0f)", |v| v * v - 1.0),
    ];
    let list: String =
        functions.iter().enumerate().map(|(k, (text, _))| format!("o[{k}] = {text};\n")).collect();
    let body = format!(
        "kernel void functions(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {{ float v = in[i]; device float* o = out + {} * i; {list} }}",
        functions.len()
    );
    let kernel = kernel(device, "functions", &body)?;
    let values: Vec<f32> = (1..200).map(|i| i as f32 * 0.031).collect();
    let input = device.buffer_with_data(&values)?;
    let mut out = device.buffer::<f32>(functions.len() * values.len())?;
    run(device, &kernel, Grid::threads(values.len()), (&input, &mut out))?;
    for (e, got) in out.to_vec()?.iter().enumerate() {
        let (value, (text, function)) = (values[e / functions.len()], functions[e % functions.len()]);
        let expected = function(f64::from(value));
        let error = (f64::from(*got) - expected).abs();
        assert!(error <= 1e-5 * expected.abs().max(0.1), "{text} of {value}: {got} instead of {expected}");
    }
    Ok(())
}

fn matrices(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "rotate",
        "kernel void rotate(constant float4x4& m [[buffer(0)]], device float4* v [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { v[i] = m * v[i] + transpose(m)[i % 4u]; }",
    )?;
    let m: [[f32; 4]; 4] = std::array::from_fn(|c| std::array::from_fn(|r| (3 * c + r) as f32 - 4.0));
    let input: Vec<[f32; 4]> = (0..20).map(|i| [i as f32, 1.0, -1.0, 2.0 * i as f32]).collect();
    let mut v = device.buffer_with_data(&input)?;
    run(device, &kernel, Grid::threads(20), (elinvar::Arg::value(&m), &mut v))?;
    expect_all(&v.to_vec()?, |i| {
        std::array::from_fn(|r| (0..4).map(|c| m[c][r] * input[i][c]).sum::<f32>() + m[r][i % 4])
    });
    Ok(())
}
