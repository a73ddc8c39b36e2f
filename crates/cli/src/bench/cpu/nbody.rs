//! `nbody`: accelerations of all bodies by all bodies.

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::problem::{Agreement, Argument, Problem, scattered};
use super::team::Team;

const N: usize = 4096;
/// Of one pair: 3 differences, 6 for the softened square, 2 for the inverse root, 3 for the factor, 6 for the sums.
const FLOPS: usize = 20;

pub fn nbody() -> Problem {
    let mut numbers = scattered(4 * N, 1000).map(|v| v as f32 / 1000.0);
    let mut next = || numbers.next().unwrap_or_default();
    let bodies = (0..N).map(|_| [next(), next(), next(), next() + 0.1]).collect();
    Problem {
        name: "nbody",
        size: "4096 bodies, group 256",
        file: "nbody",
        metal: include_str!("../kernels/nbody.metal"),
        opencl: include_str!("../kernels/nbody.cl"),
        kernel: "nbody",
        threads: [N, 1, 1],
        group: [256, 1, 1],
        args: vec![
            Argument::Quads(bodies),
            Argument::Quads(vec![[0.0; 4]; N]),
            Argument::Word(N as u32),
            Argument::Float(0.01),
        ],
        bytes: Some(32 * N as u64),
        flops: Some((FLOPS * N * N) as u64),
        native,
        others: vec![],
        result: |args| args[1].numbers(),
        agreement: Agreement::Within(1e-4),
    }
}

/// Number of bodies whose sums are computed at once.
const LANES: usize = 32;

fn native(args: &mut [Argument], team: &Team) {
    let [bodies, out, _, softening] = args else { return };
    let (bodies, softening) = (bodies.quads(), softening.float());
    team.share(out.quads_mut(), LANES, |first, out| accelerate(bodies, first, out, softening));
}

/// Accelerations of a multiple of [`LANES`] bodies from `first` on.
#[multiversion(targets = "simd")]
fn accelerate(bodies: &[[f32; 4]], first: usize, out: &mut [[f32; 4]], softening: f32) {
    const FMA: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let fused = |a: f32, b: f32, c: f32| if FMA { a.mul_add(b, c) } else { a * b + c };
    for (chunk, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let here = &bodies[first + chunk * LANES..][..LANES];
        let axis = |axis: usize| -> [f32; LANES] { std::array::from_fn(|i| here[i][axis]) };
        let (x, y, z) = (axis(0), axis(1), axis(2));
        let (mut ax, mut ay, mut az) = ([0.0f32; LANES], [0.0f32; LANES], [0.0f32; LANES]);
        for [ox, oy, oz, mass] in bodies {
            for i in 0..LANES {
                let (dx, dy, dz) = (ox - x[i], oy - y[i], oz - z[i]);
                let square = fused(dx, dx, fused(dy, dy, fused(dz, dz, softening)));
                let factor = mass / (square * square.sqrt());
                ax[i] = fused(dx, factor, ax[i]);
                ay[i] = fused(dy, factor, ay[i]);
                az[i] = fused(dz, factor, az[i]);
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = [ax[i], ay[i], az[i], 0.0];
        }
    }
}
