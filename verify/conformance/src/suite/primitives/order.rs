//! Primitives among other work: between kernels, copies and fills, recorded and in graphs, on several streams.

use elinvar::driver::primitive::{DataType, MatMul};
use elinvar::{Buffer, CommandBuffer, Device, Graph, Grid, Kernel, Primitive, Stream};

use super::{CaseResult, computed, kernel, launch, taken};

cases!("primitives": between_kernels, submitted_one_by_one, recorded_once, in_a_graph, streams_side_by_side,
    shapes_come_again);

const SIDE: u32 = 24;
const COUNT: usize = (SIDE * SIDE) as usize;

const ADD: &str =
    "kernel void add(device float* data, constant float& value, uint i [[thread_position_in_grid]]) {
        data[i] += value;
    }";

fn product() -> Primitive {
    Primitive::MatMul(MatMul::packed(DataType::F32, SIDE, SIDE, SIDE))
}

/// Two factors and a result. All elements of `a` are `value`, and the columns of `b` are constant, so an element of the product is its
/// column index times `SIDE * value`.
struct Factors {
    a: Buffer<f32>,
    b: Buffer<f32>,
    result: Buffer<f32>,
}

impl Factors {
    fn new(device: &Device, value: f32) -> elinvar::Result<Self> {
        let column = |i: usize| (i % SIDE as usize) as f32;
        let a = device.buffer_with_data(&[value; COUNT])?;
        let b = device.buffer_with_data(&std::array::from_fn::<f32, COUNT, _>(column))?;
        Ok(Self { a, b, result: device.buffer::<f32>(COUNT)? })
    }

    #[track_caller]
    fn expect(&self, value: f32, more: f32) -> elinvar::Result<()> {
        for (i, got) in self.result.to_vec()?.into_iter().enumerate() {
            let expected = (i % SIDE as usize) as f32 * SIDE as f32 * value + more;
            assert_eq!(got, expected, "element {i}");
        }
        Ok(())
    }

    /// Records a fill and a kernel that set `a` to 3, the product, a copy, and a kernel that adds 5.
    fn record(&mut self, commands: &mut CommandBuffer, add: &Kernel) -> elinvar::Result<()> {
        let grid = || Grid::threads(COUNT);
        commands.fill(&mut self.a, 1.0)?;
        // SAFETY: the kernel modifies one element per thread of the grid.
        #[allow(unsafe_code)]
        unsafe { commands.launch(add, grid(), (&mut self.a, 2.0f32)) }?;
        commands.primitive(&product(), (&self.a, &self.b, &mut self.result))?;
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { commands.launch(add, grid(), (&mut self.result, 5.0f32)) }?;
        commands.copy(&self.result, &mut self.a)?;
        commands.copy(&self.a, &mut self.result)
    }
}

fn between_kernels(device: &Device) -> CaseResult {
    let (add, stream) = (kernel(device, "add", ADD)?, device.stream()?);
    let mut factors = Factors::new(device, 9.0)?;
    let mut commands = stream.command_buffer();
    taken(device, &product(), factors.record(&mut commands, &add))?;
    commands.submit()?.wait()?;
    factors.expect(3.0, 5.0)?;
    Ok(())
}

fn submitted_one_by_one(device: &Device) -> CaseResult {
    let (add, stream) = (kernel(device, "add", ADD)?, device.stream()?);
    let mut factors = Factors::new(device, 0.0)?;
    for round in 1..=10u8 {
        launch(&add, &stream, Grid::threads(COUNT), (&mut factors.a, 1.0f32))?;
        let done = stream.primitive(&product(), (&factors.a, &factors.b, &mut factors.result));
        taken(device, &product(), done)?;
        launch(&add, &stream, Grid::threads(COUNT), (&mut factors.result, 0.5f32))?;
        // The read waits for the work.
        factors.expect(round.into(), 0.5)?;
    }
    Ok(())
}

fn recorded_once(device: &Device) -> CaseResult {
    let (add, stream) = (kernel(device, "add", ADD)?, device.stream()?);
    let mut factors = Factors::new(device, 0.0)?;
    let mut commands = stream.command_buffer();
    taken(device, &product(), factors.record(&mut commands, &add))?;
    let recording = commands.record()?;
    for _ in 0..3 {
        factors.result.fill(-1.0)?;
        // SAFETY: no other work uses its memory; for its kernels see `Factors::record`.
        #[allow(unsafe_code)]
        unsafe { stream.replay(&recording) }?;
        factors.expect(3.0, 5.0)?;
    }
    Ok(())
}

fn in_a_graph(device: &Device) -> CaseResult {
    let (add, stream) = (kernel(device, "add", ADD)?, device.stream()?);
    let mut factors = Factors::new(device, 0.0)?;
    let graph = Graph::capture(&stream, |commands| factors.record(commands, &add));
    let mut plan = taken(device, &product(), graph)?.plan()?;
    for _ in 0..3 {
        factors.result.fill(-1.0)?;
        // SAFETY: as for the recording.
        #[allow(unsafe_code)]
        unsafe { plan.run(&stream) }?.wait()?;
        factors.expect(3.0, 5.0)?;
    }
    Ok(())
}

fn streams_side_by_side(device: &Device) -> CaseResult {
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3u8)
            .map(|number| {
                scope.spawn(move || -> elinvar::Result<()> {
                    let stream = device.stream()?;
                    for round in 0..10u8 {
                        let value = f32::from(number * 16 + round);
                        let mut factors = Factors::new(device, value)?;
                        computed(&stream, &product(), (&factors.a, &factors.b, &mut factors.result))?;
                        factors.expect(value, 0.0)?;
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
    });
    for result in results {
        result.map_err(|_| "a thread panicked")??;
    }
    Ok(())
}

/// More shapes than a driver caches, twice, without waits between submissions.
fn shapes_come_again(device: &Device) -> CaseResult {
    let stream = device.stream()?;
    let mut results = Vec::new();
    for size in (1..=40).chain(1..=40) {
        let side = size as usize;
        let (a, b) =
            (device.buffer_with_data(&vec![2.0f32; side])?, device.buffer_with_data(&vec![0.5f32; side])?);
        let mut result = device.buffer::<f32>(side * side)?;
        let outer = Primitive::MatMul(MatMul::packed(DataType::F32, size, 1, size));
        taken(device, &outer, submitted(&stream, &outer, [&a, &b], &mut result))?;
        results.push(result);
    }
    for result in results {
        assert!(result.to_vec()?.iter().all(|value| *value == 1.0));
    }
    Ok(())
}

fn submitted(
    stream: &Stream,
    primitive: &Primitive,
    [a, b]: [&Buffer<f32>; 2],
    result: &mut Buffer<f32>,
) -> elinvar::Result<()> {
    stream.primitive(primitive, (a, b, result)).map(drop)
}
