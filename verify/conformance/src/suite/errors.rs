//! Invalid input: each error has the right variant, and its message names the cause.

use std::sync::{Mutex, PoisonError};

use elinvar::{Device, Error, Grid, Kernel, Source, Threadgroup};

use super::{CaseResult, expect_all, kernel, launch, run};

cases!("errors": syntax_error, undefined_name, missing_entry_point, argument_count, element_type,
    read_only_to_writer, buffer_too_small_for_reference, threadgroup_over_the_limit, too_much_threadgroup_memory,
    launch_while_mapped, double_in_source, double_as_argument, texture_is_unsupported, captures, the_device_works_after_errors);

const COPY: &str =
    "kernel void copy_some(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
        constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) { if (i < n) out[i] = in[i]; }";

/// Compiles invalid source; returns file, line, column and message of the first diagnostic.
#[track_caller]
fn diagnostic(device: &Device, text: &str) -> (String, u32, u32, String) {
    match device.compile(Source::named("bad.metal", text)) {
        Err(Error::Compile(diagnostics)) => {
            let d = diagnostics.into_iter().next().expect("a compile error has a diagnostic");
            (d.file, d.line, d.column, d.message)
        }
        Err(other) => panic!("expected diagnostics, got {other:?}"),
        Ok(_) => panic!("expected diagnostics, the source compiled"),
    }
}

/// Checks that the result is `InvalidArgument` and that its message has all parts.
#[track_caller]
fn invalid<T>(result: elinvar::Result<T>, parts: &[&str]) {
    match result {
        Err(Error::InvalidArgument(message)) => {
            for part in parts {
                assert!(message.contains(part), "`{part}` is missing in: {message}");
            }
        }
        Err(other) => panic!("expected an invalid argument, got {other:?}"),
        Ok(_) => panic!("expected an invalid argument, the call passed"),
    }
}

fn copy_kernel(device: &Device) -> elinvar::Result<Kernel> {
    kernel(device, "copy_some", COPY)
}

fn syntax_error(device: &Device) -> CaseResult {
    let text =
        "#include <metal_stdlib>\nkernel void f(device float* a [[buffer(0)]]) {\n    a[0] = 1.0f +;\n}\n";
    let (file, line, column, message) = diagnostic(device, text);
    assert_eq!((file.as_str(), line, column), ("bad.metal", 3, 18));
    assert!(message.contains("expected expression"), "{message}");
    Ok(())
}

fn undefined_name(device: &Device) -> CaseResult {
    let text =
        "#include <metal_stdlib>\nusing namespace metal;\n\nkernel void f(device float* a [[buffer(0)]],
        uint i [[thread_position_in_grid]]) {\n    a[i]  =  sin(a[i]) + missing_thing;\n}\n";
    let (file, line, column, message) = diagnostic(device, text);
    assert_eq!((file.as_str(), line, column), ("bad.metal", 6, 26));
    assert!(message.contains("missing_thing"), "{message}");
    Ok(())
}

fn missing_entry_point(device: &Device) -> CaseResult {
    invalid(kernel(device, "copy_all", COPY), &["copy_all", "copy_some"]);
    Ok(())
}

fn argument_count(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let (a, mut b) = (device.buffer::<f32>(4)?, device.buffer::<f32>(4)?);
    invalid(run(device, &kernel, Grid::threads(4), (&a, &mut b)), &["copy_some", "3", "2", "n"]);
    Ok(())
}

fn element_type(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let (a, mut b) = (device.buffer::<i32>(4)?, device.buffer::<f32>(4)?);
    let result = run(device, &kernel, Grid::threads(4), (&a, &mut b, 4_u32));
    invalid(result, &["copy_some", "`in`", "0", "float", "i32"]);
    let a = device.buffer::<f32>(4)?;
    let result = run(device, &kernel, Grid::threads(4), (&a, &mut b, 4.0_f32));
    invalid(result, &["copy_some", "`n`", "2", "uint", "f32"]);
    Ok(())
}

fn read_only_to_writer(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let (a, b) = (device.buffer::<f32>(4)?, device.buffer::<f32>(4)?);
    let result = run(device, &kernel, Grid::threads(4), (&a, &b, 4_u32));
    invalid(result, &["copy_some", "`out`", "1", "&mut"]);
    Ok(())
}

fn buffer_too_small_for_reference(device: &Device) -> CaseResult {
    let body = "struct Big { float4 a[8]; };
        kernel void first(constant Big& big [[buffer(0)]], device float* out [[buffer(1)]]) { *out = big.a[7].w; }";
    let kernel = kernel(device, "first", body)?;
    let (small, mut out) = (device.buffer::<u8>(127)?, device.buffer::<f32>(1)?);
    invalid(
        run(device, &kernel, Grid::threads(1), (&small, &mut out)),
        &["first", "`big`", "0", "127", "128"],
    );
    let enough = device.buffer::<u8>(128)?;
    run(device, &kernel, Grid::threads(1), (&enough, &mut out))?;
    Ok(())
}

fn threadgroup_over_the_limit(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let max = device.caps().limits.max_threads_per_threadgroup;
    let (a, mut b) = (device.buffer::<f32>(4)?, device.buffer::<f32>(4)?);
    for group in [(max + 1, 1, 1), (max / 2, 3, 1), (1, max / 4, 5), (u32::MAX, u32::MAX, u32::MAX)] {
        let result = run(device, &kernel, Grid::threads(4).group(group), (&a, &mut b, 4_u32));
        invalid(result, &["copy_some", &max.to_string()]);
    }
    invalid(run(device, &kernel, Grid::threads(4).group(0_u32), (&a, &mut b, 4_u32)), &["copy_some"]);
    Ok(())
}

fn too_much_threadgroup_memory(device: &Device) -> CaseResult {
    let body =
        "kernel void shares(device float* out [[buffer(0)]], threadgroup float* part [[threadgroup(0)]],
        uint i [[thread_position_in_grid]]) { part[i] = i; out[i] = part[i]; }";
    let kernel = kernel(device, "shares", body)?;
    let mut out = device.buffer::<f32>(4)?;
    let limit = device.caps().limits.max_threadgroup_memory as usize;
    let result = run(device, &kernel, Grid::threads(4), (&mut out, Threadgroup::bytes(limit + 1)));
    invalid(result, &["shares", &limit.to_string()]);
    run(device, &kernel, Grid::threads(4), (&mut out, Threadgroup::bytes(limit)))?;
    expect_all(&out.to_vec()?, |i| i as f32);
    Ok(())
}

fn launch_while_mapped(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let stream = device.stream()?;
    let a = device.buffer_with_data(&[1.0_f32, 2.0, 3.0, 4.0])?;
    let mut b = device.buffer::<f32>(4)?;
    let mut same = b.clone();
    let guard = b.map()?;
    let result = launch(&kernel, &stream, Grid::threads(4), (&a, &mut same, 4_u32));
    invalid(result, &["copy_some", "`out`", "map"]);
    assert_eq!(*guard, [0.0; 4]);
    drop(guard);
    let guard = b.map_mut()?;
    let mut other = device.buffer::<f32>(4)?;
    invalid(launch(&kernel, &stream, Grid::threads(4), (&same, &mut other, 4_u32)), &["`in`", "map"]);
    drop(guard);
    launch(&kernel, &stream, Grid::threads(4), (&a, &mut same, 4_u32))?.wait()?;
    assert_eq!(b.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

fn double_in_source(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>\nkernel void f(device float* a [[buffer(0)]]) {\n  double x = a[0];\n  a[0] = x;\n}\n";
    let (file, line, column, message) = diagnostic(device, text);
    assert_eq!((file.as_str(), line, column), ("bad.metal", 3, 3));
    assert!(message.contains("double"), "{message}");
    Ok(())
}

fn double_as_argument(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let (a, mut b) = (device.buffer::<f64>(4)?, device.buffer::<f32>(4)?);
    invalid(run(device, &kernel, Grid::threads(4), (&a, &mut b, 4_u32)), &["copy_some", "`in`", "double"]);
    let scale = kernel_with_float(device)?;
    invalid(run(device, &scale, Grid::threads(4), (&mut b, 2.0_f64)), &["scale_by", "`factor`", "double"]);
    Ok(())
}

fn kernel_with_float(device: &Device) -> elinvar::Result<Kernel> {
    let body = "kernel void scale_by(device float* a [[buffer(0)]], constant float& factor [[buffer(1)]],
        uint i [[thread_position_in_grid]]) { a[i] *= factor; }";
    kernel(device, "scale_by", body)
}

/// Drivers without textures refuse them with the function's name and line.
fn texture_is_unsupported(device: &Device) -> CaseResult {
    let body = "kernel void reads(texture2d<float> image [[texture(0)]], device float4* a [[buffer(0)]],
            uint2 p [[thread_position_in_grid]]) { a[p.x] = image.read(p); }";
    let message = match kernel(device, "reads", body) {
        Err(Error::Unsupported(message)) => message,
        Err(Error::Compile(diagnostics)) => diagnostics[0].to_string(),
        other => panic!("expected a refusal, got {:?}", other.map(drop)),
    };
    assert!(message.contains("texture"), "{message}");
    Ok(())
}

/// Only the Metal driver supports captures, and only in a process that may write them.
fn captures(device: &Device) -> CaseResult {
    // A process can have one capture at a time, and the case may run on several devices concurrently.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("suite.gputrace");
    let capture = device.capture(&path);
    if let Err(Error::Unsupported(text)) = &capture {
        assert!(text.contains(&device.caps().name) && text.contains("suite.gputrace"), "{text}");
    }
    let capture = capture?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(4)?;
    stream.fill(&mut x, 7)?;
    stream.synchronize()?;
    capture.end()?;
    assert!(path.exists());
    expect_all(&x.to_vec()?, |_| 7);
    Ok(())
}

fn the_device_works_after_errors(device: &Device) -> CaseResult {
    let kernel = copy_kernel(device)?;
    let a = device.buffer_with_data(&(0..100).map(|i| i as f32).collect::<Vec<_>>())?;
    let mut b = device.buffer::<f32>(100)?;
    let stream = device.stream()?;
    invalid(launch(&kernel, &stream, Grid::threads(100), (&a, &a, 50_u32)), &["`out`"]);
    launch(&kernel, &stream, Grid::threads(100), (&a, &mut b, 50_u32))?.wait()?;
    expect_all(&b.to_vec()?, |i| if i < 50 { i as f32 } else { 0.0 });
    Ok(())
}
