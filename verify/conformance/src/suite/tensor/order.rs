//! Tensor operations with other work: streams, command buffers, recordings and graphs.

use elinvar::tensor::{Map, Plan, Reduce, Route, Softmax, Unary};
use elinvar::{Device, Graph};

use super::super::CaseResult;

cases! { "tensor": in_one_submission, recorded, in_a_graph, profiles, kernels_are_released }

const X: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

/// Each operation reads what the one before has written.
fn in_one_submission(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let x = device.buffer_with_data(&X)?;
    let (mut squares, mut sums) = (device.buffer::<f32>(6)?, device.buffer::<f32>(2)?);
    let mut commands = stream.command_buffer();
    let square = Map::Unary(Unary::Square);
    commands.tensor(square, &[&x.tensor(&[2, 3])?], &mut [&mut squares.tensor_mut(&[2, 3])?])?;
    commands.tensor(Reduce::sum(&[1]), &[&squares.tensor(&[2, 3])?], &mut [&mut sums.tensor_mut(&[2])?])?;
    commands.submit()?;
    assert_eq!(sums.to_vec()?, [14.0, 77.0]);
    Ok(())
}

/// A recording runs again, with what its inputs hold then.
fn recorded(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&X)?;
    let mut out = device.buffer::<f32>(3)?;
    let mut commands = stream.command_buffer();
    commands.tensor(Reduce::sum(&[0]), &[&x.tensor(&[2, 3])?], &mut [&mut out.tensor_mut(&[3])?])?;
    let recording = commands.record()?;
    for round in 0..3 {
        x.fill(round as f32)?;
        // SAFETY: the operation accesses its operands only.
        #[allow(unsafe_code)]
        unsafe {
            stream.replay(&recording)?;
        }
        assert_eq!(out.to_vec()?, [2.0 * round as f32; 3]);
    }
    Ok(())
}

/// Operations are nodes of a graph, with transients between them.
fn in_a_graph(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let mut x = device.buffer_with_data(&X)?;
    let (mut out, mut sum) = (device.buffer::<f32>(6)?, device.buffer::<f32>(1)?);
    let mut graph = Graph::new();
    let mut between = graph.transient::<f32>(device, 6)?;
    let mut commands = stream.command_buffer();
    commands.tensor(
        Map::MULTIPLY,
        &[&x.tensor(&[6])?, &x.tensor(&[6])?],
        &mut [&mut between.tensor_mut(&[6])?],
    )?;
    commands.tensor(
        Map::ADD,
        &[&between.tensor(&[6])?, &x.tensor(&[6])?],
        &mut [&mut out.tensor_mut(&[6])?],
    )?;
    commands.tensor(Reduce::sum(&[0]), &[&between.tensor(&[6])?], &mut [&mut sum.tensor_mut(&[])?])?;
    graph.append(commands)?;
    let mut plan = graph.plan()?;
    for factor in [1.0f32, 2.0] {
        x.write(&X.map(|x| x * factor))?;
        // SAFETY: the operations access their operands only.
        #[allow(unsafe_code)]
        unsafe {
            plan.run(&stream)?.wait()?;
        }
        assert_eq!(out.to_vec()?, X.map(|x| x * factor * (x * factor + 1.0)));
        assert_eq!(sum.to_vec()?, [91.0 * factor * factor]);
    }
    Ok(())
}

/// A plan tells route, work and time.
fn profiles(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let x = device.buffer::<f32>(70_000)?;
    let mut out = device.buffer::<f32>(1)?;
    let plan = Plan::new(
        Reduce::sum(&[0]),
        &[&x.tensor(&[70_000])?],
        &mut [&mut out.tensor_mut(&[])?],
        Route::Kernel,
    )?;
    assert_eq!((plan.route(), plan.flops(), plan.bytes()), (Route::Kernel, 70_000, 280_004));
    assert_eq!(plan.steps() > 1, plan.workspace_bytes() > 0);
    let profile = stream.profile_tensor(&plan, 3)?;
    assert_eq!((profile.operation, profile.route, profile.flops), ("sum", Route::Kernel, 70_000));
    assert!(profile.device_ns > 0);
    assert!((profile.gflops() - 70_000.0 / profile.device_ns as f64).abs() < 1e-9);
    let timing = stream.tensor_plan(&plan)?.wait()?;
    assert_eq!(plan.profile(timing).device_ns, timing.end_ns - timing.start_ns);
    Ok(())
}

/// Compiled kernels can be released, and are compiled again.
fn kernels_are_released(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let x = device.buffer_with_data(&[1.0f32; 4])?;
    let mut out = device.buffer::<f32>(4)?;
    for _ in 0..2 {
        stream.tensor(Softmax::new(1), &[&x.tensor(&[1, 4])?], &mut [&mut out.tensor_mut(&[1, 4])?])?;
        assert_eq!(out.to_vec()?, [0.25; 4]);
        device.release_tensor_kernels();
    }
    Ok(())
}
