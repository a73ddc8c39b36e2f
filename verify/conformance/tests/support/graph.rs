//! Common code of the graph tests: kernels over whole buffers, nodes, runs.

use elinvar::driver::{Access, Command, Scalar};
use elinvar::{Buffer, Completion, Error, Graph, Grid, Kernel, Node, Plan, Stream};

use super::{Bench, constant, pointer, signature};

pub const N: usize = 64;

/// `map(device const uint* a, device uint* b, constant uint& k)`: `b[i] = 3 * a[i] + k`.
pub fn map(bench: &Bench) -> Kernel {
    let args = vec![
        pointer("a", Scalar::U32, Access::Read),
        pointer("b", Scalar::U32, Access::ReadWrite),
        constant("k", Scalar::U32),
    ];
    bench.declare(signature("map", args), |launch| {
        let (a, k) = (launch.bytes(0)?, launch.bytes(2)?);
        let k: u32 = bytemuck::pod_read_unaligned(&k);
        let mapped: Vec<u32> = words(&a).iter().map(|a| a.wrapping_mul(3).wrapping_add(k)).collect();
        launch.write(1, bytemuck::cast_slice(&mapped))
    })
}

/// `mix(device const uint* a, device const uint* b, device uint* c)`: `c[i] += a[i] ^ 5 * b[i]`.
pub fn mix(bench: &Bench) -> Kernel {
    let args = vec![
        pointer("a", Scalar::U32, Access::Read),
        pointer("b", Scalar::U32, Access::Read),
        pointer("c", Scalar::U32, Access::ReadWrite),
    ];
    bench.declare(signature("mix", args), |launch| {
        let (a, b, c) = (words(&launch.bytes(0)?), words(&launch.bytes(1)?), words(&launch.bytes(2)?));
        let mixed: Vec<u32> = (0..c.len()).map(|i| c[i].wrapping_add(a[i] ^ b[i].wrapping_mul(5))).collect();
        launch.write(2, bytemuck::cast_slice(&mixed))
    })
}

pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

pub fn mapped(a: &[u32], k: u32) -> Vec<u32> {
    a.iter().map(|a| a.wrapping_mul(3).wrapping_add(k)).collect()
}

pub fn ramp() -> Vec<u32> {
    (0..N as u32).map(|i| i * i + 7).collect()
}

#[allow(unsafe_code)] // launches
pub fn node(graph: &mut Graph, kernel: &Kernel, args: impl elinvar::Args) -> Node {
    // SAFETY: the kernels of these tests stay within their arguments by construction.
    unsafe { graph.launch(kernel, Grid::threads(N), args) }.unwrap()
}

#[allow(unsafe_code)] // a transient whose nodes write it before they read it
pub fn scratch(graph: &mut Graph, bench: &Bench) -> Buffer<u32> {
    // SAFETY: the nodes of these tests write the whole transient before they read it.
    unsafe { graph.transient_uninit(&bench.device, N) }.unwrap()
}

#[allow(unsafe_code)] // runs launches
pub fn submit(plan: &mut Plan, stream: &Stream) -> Result<Completion, Error> {
    // SAFETY: as for `node`.
    unsafe { plan.run(stream) }
}

pub fn run(plan: &mut Plan, bench: &Bench) {
    submit(plan, &bench.stream).unwrap().wait().unwrap();
}

pub fn ran(bench: &Bench) -> Vec<String> {
    let name = |command: &Command| match command {
        Command::Dispatch(dispatch) => {
            let label = dispatch.label.as_ref().map(|label| label.name.clone());
            Some(label.unwrap_or_else(|| dispatch.pipeline.signature().name.clone()))
        }
        Command::Copy { .. } => Some("copy".into()),
        Command::Fill { .. } => Some("fill".into()),
        _ => None,
    };
    bench.sim.commands().iter().filter_map(name).collect()
}
