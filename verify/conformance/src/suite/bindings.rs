//! Buffers that a launch leaves unbound, that end with a part of an element, and that are padded.

use elinvar::{Arg, Device, Error, Graph, Grid, Source};

use super::{CaseResult, expect_all, kernel, run};

cases!("bindings": unbound_buffers, unbound_references, unbound_in_a_graph, accesses_of_unbound_buffers,
    threadgroup_memory_must_be_bound, parts_of_elements, accesses_of_a_part, padding);

/// A layer whose bias and scale are optional.
const LAYER: &str = "
    struct Scale { float by; uint kind; };
    kernel void layer(device const float* x [[buffer(0)]], device const float* bias [[buffer(1)]],
                      constant Scale& scale [[buffer(2)]], device float* y [[buffer(3)]], constant uint& uses [[buffer(4)]],
                      uint i [[thread_position_in_grid]]) {
        float value = x[i];
        if (uses & 1u) { value += bias[i]; }
        if (uses & 2u) { value *= scale.by; }
        y[i] = value;
    }";

fn unbound_buffers(device: &Device) -> CaseResult {
    let layer = kernel(device, "layer", LAYER)?;
    let x: Vec<f32> = (0..100).map(|i| i as f32).collect();
    let (x, bias) = (device.buffer_with_data(&x)?, device.buffer_with_data(&[5_f32; 100])?);
    let mut y = device.buffer::<f32>(100)?;
    let scale = || Arg::bytes([2_f32.to_ne_bytes(), [0; 4]].concat());
    run(device, &layer, Grid::threads(100), (&x, Arg::unbound(), scale(), &mut y, 2_u32))?;
    expect_all(&y.to_vec()?, |i| 2.0 * i as f32);
    run(device, &layer, Grid::threads(100), (&x, &bias, scale(), &mut y, 3_u32))?;
    expect_all(&y.to_vec()?, |i| 2.0 * (i as f32 + 5.0));
    // After a launch with all buffers, none of them is left bound.
    run(device, &layer, Grid::threads(100), (&x, Arg::unbound(), scale(), &mut y, 0_u32))?;
    expect_all(&y.to_vec()?, |i| i as f32);
    Ok(())
}

fn unbound_references(device: &Device) -> CaseResult {
    let layer = kernel(device, "layer", LAYER)?;
    let (x, bias) = (device.buffer_with_data(&[3_f32; 64])?, device.buffer_with_data(&[5_f32; 64])?);
    let mut y = device.buffer::<f32>(64)?;
    run(device, &layer, Grid::threads(64), (&x, &bias, Arg::unbound(), &mut y, 1_u32))?;
    expect_all(&y.to_vec()?, |_| 8.0);
    run(device, &layer, Grid::threads(64), (&x, Arg::unbound(), Arg::unbound(), &mut y, 0_u32))?;
    expect_all(&y.to_vec()?, |_| 3.0);
    run(device, &layer, Grid::threads(64), (&x, &bias, Arg::unbound(), &mut y, 3_u32))?;
    expect_all(&y.to_vec()?, |_| 0.0);
    Ok(())
}

fn unbound_in_a_graph(device: &Device) -> CaseResult {
    let layer = kernel(device, "layer", LAYER)?;
    let (mut x, mut y) = (device.buffer_with_data(&[3_f32; 64])?, device.buffer::<f32>(64)?);
    let stream = device.stream()?;
    let mut graph = Graph::new();
    let args = (&x, Arg::unbound(), Arg::unbound(), &mut y, 0_u32);
    // SAFETY: with these arguments, the kernel accesses 64 elements of `x` and `y` only.
    #[allow(unsafe_code)]
    unsafe { graph.launch(&layer, Grid::threads(64), args) }?;
    let mut plan = graph.plan()?;
    for round in 0..3 {
        x.fill(round as f32)?;
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { plan.run(&stream) }?.wait()?;
        expect_all(&y.to_vec()?, |_| round as f32);
    }
    Ok(())
}

fn accesses_of_unbound_buffers(device: &Device) -> CaseResult {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{LAYER}");
    let layer = device.compile(Source::named("layer.metal", text))?.checked_kernel("layer")?;
    let (x, mut y) = (device.buffer_with_data(&[3_f32; 64])?, device.buffer::<f32>(64)?);
    let stream = device.stream()?;
    for (uses, name) in [(1_u32, "`bias`"), (0, "")] {
        let args = (&x, Arg::unbound(), Arg::unbound(), &mut y, uses);
        let outcome = layer.launch(&stream, Grid::threads(64), args)?.wait();
        if uses == 0 {
            outcome?;
            expect_all(&y.to_vec()?, |_| 3.0);
            continue;
        }
        let Err(Error::Fault(fault)) = outcome else {
            return Err(format!("expected a fault, got {outcome:?}").into());
        };
        assert!(fault.kernel == "layer", "{fault}");
        if device.caps().features.names_accesses {
            assert!(fault.message.contains(name) && fault.message.contains("unbound or empty"), "{fault}");
        }
        stream.acknowledge();
    }
    Ok(())
}

fn threadgroup_memory_must_be_bound(device: &Device) -> CaseResult {
    let text = "kernel void shared(threadgroup uint* part [[threadgroup(0)]], device uint* y [[buffer(0)]],
                                   uint i [[thread_position_in_grid]]) { part[0] = i; y[i] = part[0]; }";
    let shared = kernel(device, "shared", text)?;
    let mut y = device.buffer::<u32>(1)?;
    let refused = run(device, &shared, Grid::threads(1), (Arg::unbound(), &mut y));
    let text = refused.expect_err("threadgroup memory is needed").to_string();
    assert!(text.contains("argument 0 `part`") && text.contains("cannot be unbound"), "{text}");
    Ok(())
}

/// Reads element `at` of 4-byte elements.
const READ: &str = "
    kernel void read(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], constant uint& at [[buffer(2)]],
                     uint i [[thread_position_in_grid]]) { y[i] = x[at + i]; }";

fn parts_of_elements(device: &Device) -> CaseResult {
    let read = kernel(device, "read", READ)?;
    let bytes: Vec<u8> = (0..11).collect();
    let (x, mut y) = (device.buffer_with_data(&bytes)?, device.buffer::<u32>(2)?);
    run(device, &read, Grid::threads(2), (Arg::from(&x).of(elinvar::Scalar::U32), &mut y, 0_u32))?;
    assert_eq!(y.to_vec()?, [0x0302_0100, 0x0706_0504]);
    Ok(())
}

fn accesses_of_a_part(device: &Device) -> CaseResult {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{READ}");
    let read = device.compile(Source::named("read.metal", text))?.checked_kernel("read")?;
    let (x, mut y) = (device.buffer_with_data(&[1_u8; 11])?, device.buffer::<u32>(2)?);
    let stream = device.stream()?;
    let x = || Arg::from(&x).of(elinvar::Scalar::U32);
    read.launch(&stream, Grid::threads(2), (x(), &mut y, 0_u32))?.wait()?;
    assert_eq!(y.to_vec()?, [0x0101_0101; 2]);
    let outcome = read.launch(&stream, Grid::threads(2), (x(), &mut y, 1_u32))?.wait();
    let Err(Error::Fault(fault)) = outcome else {
        return Err(format!("expected a fault, got {outcome:?}").into());
    };
    let names = device.caps().features.names_accesses;
    assert!(!names || fault.message.contains("element 2 of argument 0 `x` (uint, 2 elements)"), "{fault}");
    Ok(())
}

/// Reads past the end of a padded buffer, where Metal's allocations are rounded up to pages: zeros, also in reused memory.
fn padding(device: &Device) -> CaseResult {
    let read = kernel(device, "read", READ)?;
    const BYTES: u64 = 1 << 16;
    device.pool().set_padding(BYTES);
    let count = (BYTES / 4) as usize;
    let mut y = device.buffer::<u32>(count)?;
    for round in 0..3 {
        let x = device.buffer_with_data(&vec![7_u32 + round; 4096])?;
        drop(x);
        let x = device.buffer::<u32>(4096)?;
        y.fill(9)?;
        run(device, &read, Grid::threads(count), (&x, &mut y, 4096_u32))?;
        expect_all(&y.to_vec()?, |_| 0);
    }
    device.pool().set_padding(0);
    Ok(())
}
