//! Matrix products of oneDNN, if it is installed.
//!
//! <https://uxlfoundation.github.io/oneDNN/v2/dev_guide_matmul.html>: `dnnl_sgemm`, for matrices with contiguous rows.

use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

use libloading::Library;

use super::problem::Argument;
use super::team::Team;

type Sgemm = unsafe extern "C" fn(
    c_char,
    c_char,
    i64,
    i64,
    i64,
    f32,
    *const f32,
    i64,
    *const f32,
    i64,
    f32,
    *mut f32,
    i64,
) -> c_int;

/// Functions of oneDNN and of the OpenMP library that it uses.
pub struct OneDnn {
    sgemm: Sgemm,
    set_threads: unsafe extern "C" fn(c_int),
    _libraries: [Library; 2],
}

/// oneDNN, or the reason why it is unavailable.
pub fn onednn() -> Result<&'static OneDnn, &'static str> {
    static LOADED: LazyLock<Result<OneDnn, String>> = LazyLock::new(load);
    LOADED.as_ref().map_err(String::as_str)
}

#[allow(unsafe_code)] // loads a library of the system
fn load() -> Result<OneDnn, String> {
    // SAFETY: the system's oneDNN and OpenMP; the symbols have the types of their documented C interfaces.
    unsafe {
        let open = |name: &str| Library::new(name).map_err(|error| format!("{name}: {error}"));
        let (openmp, onednn) =
            (open("libgomp.so.1")?, open("libdnnl.so.3").or_else(|_| open("libdnnl.so.2"))?);
        let absent = |error: libloading::Error| format!("oneDNN: {error}");
        let sgemm = *onednn.get::<Sgemm>(b"dnnl_sgemm\0").map_err(absent)?;
        let set_threads = *openmp.get(b"omp_set_num_threads\0").map_err(absent)?;
        Ok(OneDnn { sgemm, set_threads, _libraries: [onednn, openmp] })
    }
}

/// `c = a * b` of square matrices.
pub fn sgemm(args: &mut [Argument], team: &Team) {
    let [a, b, c, n] = args else { return };
    let n = n.word() as usize;
    product(team.threads(), [n; 3], 1.0, a.floats(), (b.floats(), false), c.floats_mut());
}

/// [`Product`](super::blas::Product) with oneDNN.
pub fn sgemm_of(sizes: [usize; 3], scale: f32, a: &[f32], b: (&[f32], bool), c: &mut [f32]) {
    product(1, sizes, scale, a, b, c);
}

#[allow(unsafe_code)] // calls C
fn product(
    threads: usize,
    [m, n, k]: [usize; 3],
    scale: f32,
    a: &[f32],
    (b, transposed): (&[f32], bool),
    c: &mut [f32],
) {
    let Ok(onednn) = onednn() else { return };
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "three matrices");
    let [no, order] = [b'N', if transposed { b'T' } else { b'N' }].map(|letter| letter as c_char);
    let b_row = if transposed { k } else { n } as i64;
    let [m, n, k] = [m, n, k].map(|n| n as i64);
    let (c, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    // SAFETY: each matrix has contiguous rows of these lengths; c is borrowed exclusively.
    let status = unsafe {
        (onednn.set_threads)(threads as c_int);
        (onednn.sgemm)(no, order, m, n, k, scale, a, k, b, b_row, 0.0, c, n)
    };
    assert_eq!(status, 0, "dnnl_sgemm");
}
