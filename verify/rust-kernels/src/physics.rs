//! Bodies and fields.

use elinvar::kernel::*;

/// A body.
#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(C)]
pub struct Body {
    /// Position, and mass as `w`.
    pub position: Vec4<f32>,
    /// Velocity.
    pub velocity: Vec4<f32>,
}

/// What a step needs.
#[derive(Clone, Copy, Debug, elinvar::KernelType)]
#[repr(C)]
pub struct Step {
    /// Seconds.
    pub seconds: f32,
    /// Added to squares of distances.
    pub softening: f32,
}

/// The acceleration of a body by another.
#[elinvar::device]
pub fn attraction(at: Vec3<f32>, other: Vec4<f32>, softening: f32) -> Vec3<f32> {
    let d = other.xyz() - at;
    let square = dot(d, d) + softening;
    let inverse = 1.0 / square.sqrt();
    d * (other.w * inverse * inverse * inverse)
}

/// One step of an n-body simulation.
#[elinvar::kernel]
pub fn nbody(bodies: &[Body], next: &mut [Body], step: Step, #[thread_position_in_grid] i: usize) {
    let me = bodies[i];
    let mut force = Vec3::splat(0.0f32);
    for k in 0..bodies.len() {
        force += attraction(me.position.xyz(), bodies[k].position, step.softening);
    }
    let velocity = me.velocity.xyz() + force * step.seconds;
    let position = me.position.xyz() + velocity * step.seconds;
    next[i] = Body {
        velocity: Vec4::new(velocity.x, velocity.y, velocity.z, 0.0),
        position: Vec4::new(position.x, position.y, position.z, me.position.w),
    };
}

/// One step of the heat equation.
#[elinvar::kernel]
pub fn heat(
    from: &[f32],
    to: &mut [f32],
    width: u32,
    height: u32,
    rate: f32,
    #[thread_position_in_grid] at: Vec2<u32>,
) {
    if at.x >= width || at.y >= height {
        return;
    }
    let read = |x: u32, y: u32| from[(y.min(height - 1) * width + x.min(width - 1)) as usize];
    let here = read(at.x, at.y);
    let around = read(at.x + 1, at.y)
        + read(at.x.saturating_sub(1), at.y)
        + read(at.x, at.y + 1)
        + read(at.x, at.y.saturating_sub(1));
    to[(at.y * width + at.x) as usize] = here + rate * (around - 4.0 * here);
}

/// The game of life on a torus.
#[elinvar::kernel]
pub fn life(from: &[u8], to: &mut [u8], width: u32, height: u32, #[thread_position_in_grid] at: Vec2<u32>) {
    let mut neighbors = 0u32;
    for dy in -1i32..=1 {
        for dx in -1i32..=1 {
            if dx == 0 && dy == 0 {
                continue;
            }
            let x = (at.x as i32 + dx).rem_euclid(width as i32) as u32;
            let y = (at.y as i32 + dy).rem_euclid(height as i32) as u32;
            neighbors += from[(y * width + x) as usize] as u32;
        }
    }
    let here = (at.y * width + at.x) as usize;
    to[here] = match (from[here], neighbors) {
        (1, 2 | 3) => 1,
        (0, 3) => 1,
        _ => 0,
    };
}
