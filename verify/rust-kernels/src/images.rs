//! Pictures.

use elinvar::kernel::*;

/// Iterations until the point leaves the circle of radius two.
#[elinvar::kernel]
pub fn mandelbrot(
    counts: &mut [u32],
    width: u32,
    height: u32,
    center: Vec2<f32>,
    scale: f32,
    #[function_constant] most: u32,
    #[thread_position_in_grid] at: Vec2<u32>,
) {
    if at.x >= width || at.y >= height {
        return;
    }
    let half = Vec2::new(width as f32, height as f32) * 0.5;
    let c = center + (Vec2::new(at.x as f32, at.y as f32) - half) * scale;
    let mut z = Vec2::splat(0.0f32);
    let count = 'escape: {
        for k in 0..most {
            if z.x * z.x + z.y * z.y > 4.0 {
                break 'escape k;
            }
            z = Vec2::new(z.x * z.x - z.y * z.y, 2.0 * z.x * z.y) + c;
        }
        most
    };
    counts[(at.y * width + at.x) as usize] = count;
}

/// How pixels beyond the edge are read.
#[derive(Clone, Copy, Debug, PartialEq, elinvar::KernelType)]
#[repr(u32)]
pub enum Edge {
    /// As zero.
    Zero,
    /// As the nearest pixel.
    Clamp,
    /// As by a mirror at the edge.
    Mirror,
}

/// The edge of this number.
#[elinvar::device]
fn edge_of(number: u32) -> Edge {
    match number {
        0 => Edge::Zero,
        1 => Edge::Clamp,
        _ => Edge::Mirror,
    }
}

/// A coordinate within the picture; negative if it reads as zero.
#[elinvar::device]
fn inside(at: i32, size: i32, edge: Edge) -> i32 {
    if at >= 0 && at < size {
        return at;
    }
    match edge {
        Edge::Zero => -1,
        Edge::Clamp => at.clamp(0, size - 1),
        Edge::Mirror => {
            if at < 0 {
                -at - 1
            } else {
                2 * size - at - 1
            }
        }
    }
}

/// A convolution with `N · N` weights.
#[elinvar::kernel]
pub fn convolve<const N: usize>(
    image: &[f32],
    weights: &[f32],
    out: &mut [f32],
    size: Vec2<i32>,
    edge: u32,
    #[thread_position_in_grid] at: Vec2<u32>,
) {
    let edge = edge_of(edge);
    let reach = (N / 2) as i32;
    let mut sum = 0.0f32;
    for row in 0..N {
        let y = inside(at.y as i32 + row as i32 - reach, size.y, edge);
        for column in 0..N {
            let x = inside(at.x as i32 + column as i32 - reach, size.x, edge);
            if x < 0 || y < 0 {
                continue;
            }
            sum = image[(y * size.x + x) as usize].mul_add(weights[row * N + column], sum);
        }
    }
    out[(at.y as i32 * size.x + at.x as i32) as usize] = sum;
}

/// RGBA bytes to gray, with Rec. 709 weights in 16 bits of fraction.
#[elinvar::kernel]
pub fn gray(pixels: &[Vec4<u8>], out: &mut [u8], #[thread_position_in_grid] i: usize) {
    let pixel = pixels[i];
    let sum = pixel.x as u32 * 13933 + pixel.y as u32 * 46871 + pixel.z as u32 * 4732;
    out[i] = (sum >> 16) as u8;
}

/// The median of nine, by a sorting network.
#[elinvar::kernel]
pub fn median(image: &[u16], out: &mut [u16], width: u32, #[thread_position_in_grid] at: Vec2<usize>) {
    let width = width as usize;
    let mut v = [0u16; 9];
    for row in 0..3 {
        for column in 0..3 {
            v[row * 3 + column] = image[(at.y + row) * (width + 2) + at.x + column];
        }
    }
    // Insertion sort.
    for i in 1..9 {
        let mut k = i;
        while k > 0 && v[k - 1] > v[k] {
            (v[k - 1], v[k]) = (v[k], v[k - 1]);
            k -= 1;
        }
    }
    out[at.y * width + at.x] = v[4];
}
