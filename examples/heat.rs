//! The heat equation on a square plate, its rows divided among the processes of a job:
//!
//! ```text
//! cargo run --example heat -- 200 500
//! elinvar launch -n 4 -- target/debug/examples/heat 200 500
//! mpirun -n 4 target/debug/examples/heat 200 500
//! ```
//!
//! The arguments are the number of rows and columns, and that of steps. Neighbors exchange their rows at the border in every step. The result does not
//! depend on the number of processes: rank 0 prints the sum of all temperatures, and a hash of their bits.

use elinvar::{Communicator, Device, Environment, Grid, Operation, Source};

/// Rows 1 to `rows` are this process'; those before and behind are its neighbors', or the plate's edge.
const STEP: &str = "
kernel void step(device const float* now [[buffer(0)]], device float* next [[buffer(1)]], constant uint& width [[buffer(2)]],
                 uint2 at [[thread_position_in_grid]]) {
    uint i = (at.y + 1) * width + at.x;
    if (at.x == 0 || at.x == width - 1) {
        next[i] = now[i];
        return;
    }
    next[i] = now[i] + 0.2f * (now[i - 1] + now[i + 1] + now[i - width] + now[i + width] - 4.0f * now[i]);
}";

/// The first temperature of a cell.
fn initial(row: usize, column: usize, size: usize) -> f32 {
    if row == 0 || column == 0 || row == size - 1 || column == size - 1 {
        return 100.0 * column as f32 / size as f32;
    }
    ((row * 31 + column * 17) % 101) as f32
}

#[allow(unsafe_code)] // launches
pub fn main() -> elinvar::Result<()> {
    let number = |at| std::env::args().nth(at).and_then(|text| text.parse().ok());
    let (size, steps): (usize, usize) = (number(1).unwrap_or(64).max(8), number(2).unwrap_or(100));
    let environment = Environment::read()?;
    let device = match &environment {
        Some(environment) => Device::of_rank(environment)?,
        None => Device::system_default()?,
    };
    let world = Communicator::world(&device)?;
    let (rank, ranks) = world.as_ref().map_or((0, 1), |world| (world.rank() as usize, world.size() as usize));
    // The rows between the edges, and this process' part of them.
    let bound = |rank: usize| 1 + (size - 2) * rank / ranks;
    let (begin, end) = (bound(rank), bound(rank + 1));
    let rows = end - begin;
    let cells: Vec<f32> =
        (begin - 1..=end).flat_map(|row| (0..size).map(move |column| initial(row, column, size))).collect();
    let (mut now, mut next) = (device.buffer_with_data(&cells)?, device.buffer_with_data(&cells)?);
    let step = device.compile(Source::msl(STEP))?.kernel("step")?;
    let stream = device.stream()?;
    for _ in 0..steps {
        // SAFETY: thread (x, y) writes one cell of row y + 1, and reads its neighbors.
        unsafe { step.launch(&stream, Grid::threads((size, rows)), (&now, &mut next, size as u32)) }?;
        std::mem::swap(&mut now, &mut next);
        let Some(world) = &world else { continue };
        // The first and the last row of each to its neighbors, even ranks with the one behind first.
        for turn in [rank % 2, 1 - rank % 2] {
            if turn == 0 && rank + 1 < ranks {
                let other = rank as u32 + 1;
                stream
                    .collective(world, Operation::send(other, now.slice(rows * size..(rows + 1) * size)?))?;
                stream.collective(
                    world,
                    Operation::receive(other, now.slice_mut((rows + 1) * size..(rows + 2) * size)?),
                )?;
            } else if turn == 1 && rank > 0 {
                let other = rank as u32 - 1;
                stream.collective(world, Operation::receive(other, now.slice_mut(0..size)?))?;
                stream.collective(world, Operation::send(other, now.slice(size..2 * size)?))?;
            }
        }
    }
    stream.synchronize()?;
    // The parts have different lengths: rank 0 receives them one after the other.
    let mut all = vec![0.0_f32; size * size];
    match &world {
        Some(world) if rank > 0 => {
            stream.collective(world, Operation::send(0, now.slice(size..(rows + 1) * size)?))?.wait()?;
            return Ok(());
        }
        _ => all[begin * size..end * size].copy_from_slice(&now.to_vec()?[size..(rows + 1) * size]),
    }
    for other in 1..ranks {
        let Some(world) = &world else { break };
        let (begin, end) = (bound(other) * size, bound(other + 1) * size);
        let mut part = device.buffer::<f32>(end - begin)?;
        stream.collective(world, Operation::receive(other as u32, &mut part))?;
        all[begin..end].copy_from_slice(&part.to_vec()?);
    }
    let sum: f64 = all.iter().map(|cell| f64::from(*cell)).sum();
    let hash = all.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, cell| {
        (hash ^ u64::from(cell.to_bits())).wrapping_mul(0x0100_0000_01b3)
    });
    println!("{size} x {size}, {steps} steps: sum {sum:.3}, bits {hash:016x}");
    Ok(())
}
