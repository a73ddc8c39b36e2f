//! Function constants: specialization, optional constants, arguments that depend on a constant.

use elinvar::{
    Constants, Device, ElementType, Error, Grid, Library, Scalar, Source, TunedKernel, Tuning, Variants,
};
use elinvar_cache::Cache;

use super::{CaseResult, expect_all, run};

cases!("constants": scalars_and_vectors, by_index_and_derived, optional, conditional_arguments, many_absent_arguments, shared_indices,
    arrays_by_value,
    one_source_many_kernels, listed, refused, variants_are_measured);

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn library(device: &Device, body: &str) -> elinvar::Result<Library> {
    device.compile(Source::named("constants.metal", format!("{HEAD}{body}")))
}

const SCALARS: &str = "
    constant bool flag [[function_constant(0)]];
    constant char c [[function_constant(1)]];
    constant ushort s [[function_constant(2)]];
    constant int i [[function_constant(3)]];
    constant ulong l [[function_constant(4)]];
    constant half h [[function_constant(5)]];
    constant float f [[function_constant(6)]];
    constant float4 v [[function_constant(7)]];
    constant uchar2 u [[function_constant(8)]];
    kernel void read(device float* out) {
        out[0] = flag; out[1] = c; out[2] = s; out[3] = i; out[4] = l; out[5] = h; out[6] = f;
        for (int k = 0; k < 4; ++k) out[7 + k] = v[k];
        out[11] = u.x; out[12] = u.y;
    }";

fn scalars_and_vectors(device: &Device) -> CaseResult {
    let constants = Constants::new()
        .set("flag", true)
        .set("c", -100_i8)
        .set("s", 65535_u16)
        .set("i", -123_456_i32)
        .set("l", 1_u64 << 40)
        .set("h", elinvar::f16::from_f32(-0.375))
        .set("f", f32::MIN_POSITIVE)
        .set("v", [1.5_f32, f32::NEG_INFINITY, -0.0, 3.0e38])
        .set("u", [7_u8, 255]);
    let kernel = library(device, SCALARS)?.kernel_with("read", &constants)?;
    let mut out = device.buffer::<f32>(13)?;
    run(device, &kernel, Grid::threads(1), (&mut out,))?;
    let expected = [
        1.0,
        -100.0,
        65535.0,
        -123_456.0,
        (1_u64 << 40) as f32,
        -0.375,
        f32::MIN_POSITIVE,
        1.5,
        f32::NEG_INFINITY,
        -0.0,
        3.0e38,
        7.0,
        255.0,
    ];
    expect_all(&out.to_vec()?.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), |e| expected[e].to_bits());
    Ok(())
}

fn by_index_and_derived(device: &Device) -> CaseResult {
    let text = "
        namespace settings { constant int width [[function_constant(10)]]; constant uint mode [[function_constant(1)]]; }
        int area(int a, int b) { return a * b; }
        constant int pixels = area(settings::width, settings::width + 1);
        constant float3 scale = float3(settings::mode) * 0.5;
        kernel void f(device float* out, uint i [[thread_position_in_grid]]) {
            switch (settings::mode) {
                case 2: out[i] = pixels + scale.y; break;
                default: out[i] = -float(settings::width); break;
            }
        }";
    let library = library(device, text)?;
    for (width, mode) in [(3_i32, 2_u32), (-5, 2), (7, 0)] {
        let constants = Constants::new().set(10, width).set("settings::mode", mode);
        let kernel = library.kernel_with("f", &constants)?;
        let mut out = device.buffer::<f32>(5)?;
        run(device, &kernel, Grid::threads(5), (&mut out,))?;
        let expected = if mode == 2 { (width * (width + 1)) as f32 + 1.0 } else { -width as f32 };
        expect_all(&out.to_vec()?, |_| expected);
    }
    Ok(())
}

fn optional(device: &Device) -> CaseResult {
    let text = "
        constant int limit [[function_constant(4)]];
        constant int chosen = is_function_constant_defined(limit) ? limit : 100;
        constant bool given = is_function_constant_defined(limit);
        kernel void f(device int* out) { out[0] = chosen; out[1] = given; if (given) out[2] = limit + 1; }";
    let library = library(device, text)?;
    for (constants, expected) in
        [(Constants::new(), [100, 0, -1]), (Constants::new().set("limit", 9_i32), [9, 1, 10])]
    {
        let kernel = library.kernel_with("f", &constants)?;
        let mut out = device.buffer_with_data(&[-1_i32; 3])?;
        run(device, &kernel, Grid::threads(1), (&mut out,))?;
        expect_all(&out.to_vec()?, |e| expected[e]);
    }
    Ok(())
}

/// Many arguments, of which none or some are present.
fn many_absent_arguments(device: &Device) -> CaseResult {
    let argument =
        |i: u32| format!("device const int* a{i} [[buffer({}), function_constant(on{})]], ", i + 1, i % 2);
    let use_of = |i: u32| format!("if (on{}) sum += a{i}[0];", i % 2);
    let (arguments, uses): (String, String) =
        ((0..12).map(argument).collect(), (0..12).map(use_of).collect());
    let text = format!(
        "constant bool on0 [[function_constant(0)]]; constant bool on1 [[function_constant(1)]];\n\
         kernel void f({arguments} device int* out [[buffer(0)]]) {{ int sum = 1; {uses} out[0] = sum; }}"
    );
    let library = library(device, &text)?;
    let mut out = device.buffer::<i32>(1)?;
    let none = library.kernel_with("f", &Constants::new().set("on0", false).set("on1", false))?;
    assert_eq!(none.signature().args.len(), 1);
    run(device, &none, Grid::threads(1), (&mut out,))?;
    assert_eq!(out.to_vec()?, [1]);
    let some = library.kernel_with("f", &Constants::new().set("on0", true).set("on1", false))?;
    let indices: Vec<u32> = some.signature().args.iter().map(|arg| arg.index).collect();
    assert_eq!(indices, [1, 3, 5, 7, 9, 11, 0]);
    Ok(())
}

const CONDITIONAL: &str = "
    constant bool has_bias [[function_constant(0)]];
    constant bool has_mask [[function_constant(1)]];
    constant bool has_both = has_bias && has_mask;
    kernel void f(device const float* in [[buffer(0)]],
                  device const float* bias [[buffer(1), function_constant(has_bias)]],
                  constant float& mask [[function_constant(has_mask)]],
                  device float* out [[buffer(5)]],
                  threadgroup float* part [[threadgroup(0), function_constant(has_both)]],
                  uint i [[thread_position_in_grid]]) {
        float x = in[i];
        if (has_bias) x += bias[i];
        if (has_mask) x *= mask;
        if (has_both) { part[i] = x; x = part[i] + 0.5; }
        out[i] = x;
    }";

fn conditional_arguments(device: &Device) -> CaseResult {
    let library = library(device, CONDITIONAL)?;
    assert_eq!(library.kernels()[0].args.len(), 5);
    let input = device.buffer_with_data(&[1.0_f32, 2.0, 3.0, 4.0])?;
    let bias = device.buffer_with_data(&[10.0_f32, 20.0, 30.0, 40.0])?;
    let kernel = |bias: bool, mask: bool| {
        library.kernel_with("f", &Constants::new().set("has_bias", bias).set("has_mask", mask))
    };
    let names = |kernel: &elinvar::Kernel| {
        kernel.signature().args.iter().map(|arg| (arg.name.clone(), arg.index)).collect::<Vec<_>>()
    };

    let plain = kernel(false, false)?;
    assert_eq!(names(&plain), [("in".into(), 0), ("out".into(), 5)]);
    let mut out = device.buffer::<f32>(4)?;
    run(device, &plain, Grid::threads(4), (&input, &mut out))?;
    expect_all(&out.to_vec()?, |i| (i + 1) as f32);

    let masked = kernel(false, true)?;
    run(device, &masked, Grid::threads(4), (&input, 3.0_f32, &mut out))?;
    expect_all(&out.to_vec()?, |i| (i + 1) as f32 * 3.0);

    let both = kernel(true, true)?;
    assert_eq!(names(&both)[4].0, "part");
    let part = elinvar::Threadgroup::of::<f32>(4);
    run(device, &both, Grid::threads(4).group(4), (&input, &bias, 2.0_f32, &mut out, part))?;
    expect_all(&out.to_vec()?, |i| (i + 1) as f32 * 22.0 + 0.5);
    Ok(())
}

/// Arguments of which only one is present may share an index. The conditions use vectors and other conditions.
fn shared_indices(device: &Device) -> CaseResult {
    let text = "
        constant int which [[function_constant(1)]];
        constant bool2 both [[function_constant(2)]];
        constant bool one = which == 1;
        constant bool two = which == 2 && !both.y;
        constant bool scaled = both.x && both.y;
        kernel void f(device const float* x [[buffer(1), function_constant(one)]],
                device const half* y [[function_constant(two), buffer(1)]],
                constant float4& z [[buffer(2)]] [[function_constant(scaled)]],
                device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            out[i] = i;
            if (one) out[i] += x[i];
            if (two) out[i] += y[i];
            if (scaled) out[i] *= z.y;
        }
        constant bool second [[function_constant(3)]];
        constant bool first = is_function_constant_defined(second) ? !second : true;
        kernel void g(device float* a [[buffer(0), function_constant(first)]],
                device float* b [[buffer(0), function_constant(one)]]) { if (one) b[0] = 1; else a[0] = 2; }";
    let library = library(device, text)?;
    let f = |which: i32, both: [bool; 2]| {
        library.kernel_with("f", &Constants::new().set("which", which).set("both", both))
    };
    let x = device.buffer_with_data(&[10.0_f32, 20.0, 30.0])?;
    let y = device.buffer_with_data(&[0.5_f32, 1.5, 2.5].map(elinvar::f16::from_f32))?;
    let mut out = device.buffer::<f32>(3)?;
    let z = elinvar::Arg::value(&[0.0_f32, 2.0, 0.0, 0.0]);
    run(device, &f(1, [true, true])?, Grid::threads(3), (&x, z, &mut out))?;
    expect_all(&out.to_vec()?, |i| (i as f32 * 11.0 + 10.0) * 2.0);
    run(device, &f(2, [true, false])?, Grid::threads(3), (&y, &mut out))?;
    expect_all(&out.to_vec()?, |i| i as f32 * 2.0 + 0.5);
    run(device, &f(3, [false, true])?, Grid::threads(3), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| i as f32);

    let g = |which: i32, second: bool| {
        library.kernel_with("g", &Constants::new().set("which", which).set("second", second))
    };
    run(device, &g(1, true)?, Grid::threads(1), (&mut out,))?;
    assert_eq!(out.to_vec()?[0], 1.0);
    run(device, &g(0, false)?, Grid::threads(1), (&mut out,))?;
    assert_eq!(out.to_vec()?[0], 2.0);
    let clash = g(1, false).map(drop).unwrap_err().to_string();
    assert!(clash.contains("kernel `g`: arguments `a` and `b` have the same index"), "{clash}");
    Ok(())
}

fn arrays_by_value(device: &Device) -> CaseResult {
    let text = "
        constant uint rounds [[function_constant(0)]];
        kernel void f(device uint* out, uint i [[thread_position_in_grid]]) {
            uint seen[8] = {};
            for (uint k = 0; k < rounds; ++k) seen[k & 7] += k + i;
            uint sum = 0;
            for (uint k = 0; k < 8; ++k) sum += seen[k] * (k + 1);
            out[i] = sum;
        }";
    let library = library(device, text)?;
    for rounds in [0_u32, 1, 8, 29] {
        let kernel = library.kernel_with("f", &Constants::new().set(0, rounds))?;
        let mut out = device.buffer::<u32>(33)?;
        run(device, &kernel, Grid::threads(33), (&mut out,))?;
        expect_all(&out.to_vec()?, |i| (0..rounds).map(|k| (k + i as u32) * (k % 8 + 1)).sum());
    }
    Ok(())
}

fn one_source_many_kernels(device: &Device) -> CaseResult {
    let text = "
        constant int k [[function_constant(0)]];
        kernel void plain(device int* out) { out[0] = 5; }
        template <typename T> kernel void scaled(device T* out) { out[0] = T(k) * 2; }
        template [[host_name(\"scaled_int\")]] kernel void scaled<int>(device int*);
        template [[host_name(\"scaled_float\")]] kernel void scaled<float>(device float*);";
    let library = library(device, text)?;
    let mut out = device.buffer::<i32>(1)?;
    run(device, &library.kernel("plain")?, Grid::threads(1), (&mut out,))?;
    assert_eq!(out.to_vec()?, [5]);
    for k in [3, 4] {
        let constants = Constants::new().set("k", k);
        run(device, &library.kernel_with("scaled_int", &constants)?, Grid::threads(1), (&mut out,))?;
        assert_eq!(out.to_vec()?, [k * 2]);
        let mut floats = device.buffer::<f32>(1)?;
        run(device, &library.kernel_with("scaled_float", &constants)?, Grid::threads(1), (&mut floats,))?;
        assert_eq!(floats.to_vec()?, [(k * 2) as f32]);
    }
    Ok(())
}

fn listed(device: &Device) -> CaseResult {
    let library = library(device, SCALARS)?;
    let all: Vec<_> =
        library.constants().iter().map(|c| (c.name.as_str(), c.index, c.ty.to_string())).collect();
    assert_eq!(all.len(), 9);
    assert_eq!(all[1], ("c", 1, "char".to_owned()));
    assert_eq!(all[7], ("v", 7, "float4".to_owned()));
    assert_eq!(library.constants()[0].ty, ElementType::Scalar(Scalar::Bool));
    Ok(())
}

fn refused(device: &Device) -> CaseResult {
    let library = library(device, CONDITIONAL)?;
    let refused = |constants: Constants| match library.kernel_with("f", &constants) {
        Err(Error::InvalidArgument(why)) => why,
        Err(other) => panic!("another kind of error: {other}"),
        Ok(_) => panic!("made"),
    };
    let list = "the source has `has_bias` (index 0, bool), `has_mask` (index 1, bool)";
    assert_eq!(refused(Constants::new().set("bias", true)), format!("no function constant `bias`; {list}"));
    assert_eq!(refused(Constants::new().set(7, true)), format!("no function constant with index 7; {list}"));
    let wrong = refused(Constants::new().set("has_bias", 1_u32));
    assert_eq!(wrong, "function constant `has_bias` has type `bool`, not `uint`");
    let missing = refused(Constants::new().set("has_bias", true));
    assert!(missing.contains("`mask` depends on `has_mask`, which has no value"), "{missing}");
    let scalars = self::library(device, SCALARS)?;
    match scalars.kernel("read") {
        Err(Error::InvalidArgument(why)) => {
            assert!(why.starts_with("kernel `read` needs a value for function constant `"), "{why}")
        }
        Err(other) => panic!("another kind of error: {other}"),
        Ok(_) => panic!("made"),
    }
    Ok(())
}

/// Variants of which those with `STEPS` of 0 do the same in much less time. A thread has `TILE` elements.
#[allow(unsafe_code)] // launches
fn variants_are_measured(device: &Device) -> CaseResult {
    const COUNT: u32 = 1 << 12;
    // What other runs have measured is of another source.
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    let text = format!(
        "// {} {now}
        constant uint STEPS [[function_constant(0)]];
        constant uint TILE [[function_constant(1)]];
        kernel void add(device uint* data, uint i [[thread_position_in_grid]]) {{
            uint state = i + 1;
            for (uint s = 0; s < STEPS; ++s) {{ state ^= state << 13; state ^= state >> 17; state ^= state << 5; }}
            for (uint e = 0; e < TILE; ++e) data[i * TILE + e] += state != 0 ? 1 : 2;
        }}",
        std::process::id()
    );
    let library = library(device, &text)?;
    let stream = device.stream()?;
    let mut data = device.buffer_with_data(&(0..COUNT).collect::<Vec<u32>>())?;
    // A threadgroup of `TILE` 64 is beyond every device's limit.
    let grid = |constants: &Constants| {
        let tile = constants.get::<u32>("TILE").unwrap_or(1);
        let grid = Grid::threads(COUNT / tile);
        if tile == 64 { grid.group(1 << 20) } else { grid }
    };
    let mut tune = |variants: &Variants, tuning| -> elinvar::Result<TunedKernel> {
        // SAFETY: the threads of a grid have all elements, one each.
        unsafe { library.tune(&stream, "add", variants, grid, (&mut data,), tuning) }
    };
    let all = Variants::new().constant("STEPS", [1_u32 << 12, 0, 1 << 13]).constant("TILE", [1_u32, 64, 4]);
    let all = all.retain(|constants| {
        constants.get("STEPS") != Some(1_u32 << 13) || constants.get("TILE") == Some(1_u32)
    });
    assert_eq!(all.list().len(), 7);
    let default = tune(&all, Tuning::Predicted)?;
    assert_eq!((&default.constants, &*default.reason), (&all.list()[0], "the default, not measured"));
    let tuned = tune(&all, Tuning::Remembered)?;
    assert_eq!(tuned.constants.get::<u32>("STEPS"), Some(0), "{}", tuned.reason);
    assert_ne!(tuned.constants.get::<u32>("TILE"), Some(64), "{}", tuned.reason);
    assert!(tuned.reason.ends_with(" ns, the fastest of 7 variants"), "{}", tuned.reason);
    let again = tune(&all, Tuning::Remembered)?;
    // Without the user's cache, which may be off or in a folder that cannot be written, it is measured again.
    if Cache::examine().is_ok_and(|folder| folder.is_some()) {
        let reason = format!("{}, measured earlier", tuned.reason);
        assert_eq!((&again.constants, again.reason), (&tuned.constants, reason));
    } else {
        assert!(again.reason.ends_with(" ns, the fastest of 7 variants"), "{}", again.reason);
    }
    let of = |error: elinvar::Result<TunedKernel>| error.expect_err("nothing to choose from").to_string();
    let refused =
        of(tune(&all.clone().retain(|constants| constants.get("TILE") == Some(64_u32)), Tuning::Measured));
    assert!(refused.contains("`add`") && refused.contains("1048576"), "{refused}");
    let many = Variants::new().constant("STEPS", 0..257_u32).constant("TILE", [1_u32]);
    for (variants, count) in [(all.retain(|_| false), 0), (many, 257)] {
        let expected = format!("kernel `add`: tune: {count} variants; allowed are 1 to 256");
        assert_eq!(of(tune(&variants, Tuning::Measured)), expected);
    }
    expect_all(&data.to_vec()?, |e| e as u32);
    // SAFETY: as above.
    unsafe { tuned.kernel.launch(&stream, tuned.grid, (&mut data,)) }?.wait()?;
    expect_all(&data.to_vec()?, |e| e as u32 + 1);
    Ok(())
}
