//! Launches of the kernels, written by `elinvar translate --from cuda --host-stub`.

use elinvar::{Arg, Buffer, Completion, Grid, Library, Result, Stream, Threadgroup};

/// `scale<float><<<dim3(3, 1), 8, 32>>>(in, out, 2.0f, n)` in `scale.cu`, line 10.
///
/// # Safety
/// The kernel stays within its arguments.
#[allow(clippy::too_many_arguments, unsafe_code)]
pub unsafe fn launch_1_scale_float(
    library: &Library,
    stream: &Stream,
    in_: &Buffer<f32>,
    out: &mut Buffer<f32>,
    by: f32,
    n: i32,
    weight: &mut Buffer<f32>,
) -> Result<Completion> {
    let grid = Grid::groups((3, 1, 1)).group((8, 1, 1));
    let args: Vec<Arg> = vec![
        Arg::from(in_),
        Arg::from(out),
        Arg::from(by),
        Arg::from(n),
        Threadgroup::bytes(32).into(),
        Arg::from(weight),
    ];
    // SAFETY: guaranteed by the caller.
    unsafe { library.kernel("scale_float")?.launch(stream, grid, args) }
}

/// `scale<unsigned char><<<n / 8, 8, 8 * sizeof(float)>>>(bytes, bytes, 3, n)` in `scale.cu`, line 11.
///
/// # Safety
/// The kernel stays within its arguments.
#[allow(clippy::too_many_arguments, unsafe_code)]
pub unsafe fn launch_2_scale_uchar(
    library: &Library,
    stream: &Stream,
    groups: (usize, usize, usize),
    in_: &Buffer<u8>,
    out: &mut Buffer<u8>,
    by: u8,
    n: i32,
    shared_bytes: usize,
    weight: &mut Buffer<f32>,
) -> Result<Completion> {
    let grid = Grid::groups(groups).group((8, 1, 1));
    let args: Vec<Arg> = vec![
        Arg::from(in_),
        Arg::from(out),
        Arg::from(by),
        Arg::from(n),
        Threadgroup::bytes(shared_bytes).into(),
        Arg::from(weight),
    ];
    // SAFETY: guaranteed by the caller.
    unsafe { library.kernel("scale_uchar")?.launch(stream, grid, args) }
}
