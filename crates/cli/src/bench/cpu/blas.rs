//! Matrix multiplication libraries: the crate `gemm`, and OpenBLAS if it is installed.

use std::ffi::c_int;
use std::sync::LazyLock;

use libloading::Library;

use super::problem::Argument;
use super::team::Team;

/// `c = a * b` with the crate `gemm`.
#[allow(unsafe_code)] // the crate takes pointers
pub fn gemm(args: &mut [Argument], team: &Team) {
    let [a, b, c, n] = args else { return };
    let (a, b, n) = (a.floats(), b.floats(), n.word() as usize);
    let c = c.floats_mut();
    assert!(a.len() == n * n && b.len() == n * n && c.len() == n * n, "three matrices of n by n");
    let parallelism = match team.threads() {
        1 => gemm::Parallelism::None,
        threads => gemm::Parallelism::Rayon(threads),
    };
    let row = n as isize;
    // SAFETY: each matrix has n contiguous rows of n elements; c is borrowed exclusively.
    unsafe {
        gemm::gemm(
            n,
            n,
            n,
            c.as_mut_ptr(),
            1,
            row,
            false,
            a.as_ptr(),
            1,
            row,
            b.as_ptr(),
            1,
            row,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// A product `c = scale * a * b` on one thread: rows and columns of `c`, columns of `a`; whether `b` is transposed.
pub type Product = fn([usize; 3], f32, &[f32], (&[f32], bool), &mut [f32]);

/// [`Product`] with the crate `gemm`.
#[allow(unsafe_code)] // the crate takes pointers
pub fn gemm_of([m, n, k]: [usize; 3], scale: f32, a: &[f32], (b, transposed): (&[f32], bool), c: &mut [f32]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "three matrices");
    let (column, row) = if transposed { (k as isize, 1) } else { (1, n as isize) };
    let (c, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    let (no, alone) = (false, gemm::Parallelism::None);
    // SAFETY: each matrix has the size that the strides imply; c is borrowed exclusively.
    unsafe {
        let (c_row, a_row) = (n as isize, k as isize);
        gemm::gemm(m, n, k, c, 1, c_row, no, a, 1, a_row, b, column, row, 0.0, scale, no, no, no, alone);
    }
}

/// [`Product`] with OpenBLAS.
pub fn sgemm_of(sizes: [usize; 3], scale: f32, a: &[f32], b: (&[f32], bool), c: &mut [f32]) {
    sgemm_by(1, sizes, scale, a, b, c);
}

/// [`Product`] with OpenBLAS on several threads.
#[allow(unsafe_code)] // calls C
pub fn sgemm_by(
    threads: usize,
    [m, n, k]: [usize; 3],
    scale: f32,
    a: &[f32],
    (b, transposed): (&[f32], bool),
    c: &mut [f32],
) {
    let Ok(blas) = openblas() else { return };
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "three matrices");
    let order = if transposed { TRANS } else { NO_TRANS };
    let b_row = if transposed { k } else { n } as c_int;
    let [m, n, k] = [m, n, k].map(|n| n as c_int);
    let (c, a, b) = (c.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    // SAFETY: each matrix has contiguous rows of these lengths; c is borrowed exclusively.
    unsafe {
        (blas.set_threads)(threads as c_int);
        (blas.sgemm)(ROW_MAJOR, NO_TRANS, order, m, n, k, scale, a, k, b, b_row, 0.0, c, n);
    }
}

/// The product of a matrix, the fourth argument, and a vector, the second, with OpenBLAS.
#[allow(unsafe_code)] // calls C
pub fn sgemv(args: &mut [Argument], team: &Team) {
    let (Ok(blas), [_, x, y, a]) = (openblas(), args) else { return };
    let (a, x, y) = (a.floats(), x.floats(), y.floats_mut());
    assert_eq!(a.len(), x.len() * y.len(), "a matrix and two vectors");
    let (m, n) = (y.len() as c_int, x.len() as c_int);
    let (a, x, y) = (a.as_ptr(), x.as_ptr(), y.as_mut_ptr());
    // SAFETY: the matrix has m contiguous rows of n elements; y is borrowed exclusively.
    unsafe {
        (blas.set_threads)(team.threads() as c_int);
        (blas.sgemv)(ROW_MAJOR, NO_TRANS, m, n, 1.0, a, n, x, 1, 0.0, y, 1);
    }
}

const ROW_MAJOR: c_int = 101;
const NO_TRANS: c_int = 111;
const TRANS: c_int = 112;

type Sgemv = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

type Sgemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

/// Functions of OpenBLAS, with 32-bit integers.
pub struct OpenBlas {
    sgemm: Sgemm,
    sgemv: Sgemv,
    set_threads: unsafe extern "C" fn(c_int),
    _library: Library,
}

/// OpenBLAS, or the reason why it is unavailable.
pub fn openblas() -> Result<&'static OpenBlas, &'static str> {
    static LOADED: LazyLock<Result<OpenBlas, String>> = LazyLock::new(load);
    LOADED.as_ref().map_err(String::as_str)
}

#[allow(unsafe_code)] // loads a library of the system
fn load() -> Result<OpenBlas, String> {
    let name = if cfg!(target_os = "macos") { "libopenblas.dylib" } else { "libopenblas.so.0" };
    let absent = |error: libloading::Error| format!("{name}: {error}");
    // Otherwise its threads would spin after each call and disturb the next measurement.
    // SAFETY: no other thread of this program changes the environment, or reads it other than through `std`.
    unsafe { std::env::set_var("OPENBLAS_THREAD_TIMEOUT", "4") };
    // SAFETY: the system's OpenBLAS; the symbols have the types of its documented C interface.
    unsafe {
        let library = Library::new(name).map_err(absent)?;
        let sgemm = *library.get::<Sgemm>(b"cblas_sgemm\0").map_err(absent)?;
        let sgemv = *library.get::<Sgemv>(b"cblas_sgemv\0").map_err(absent)?;
        let set_threads = library.get(b"openblas_set_num_threads\0").map_err(absent)?;
        Ok(OpenBlas { sgemm, sgemv, set_threads: *set_threads, _library: library })
    }
}

/// `c = a * b` with OpenBLAS.
#[allow(unsafe_code)] // calls C
pub fn sgemm(args: &mut [Argument], team: &Team) {
    let (Ok(blas), [a, b, c, n]) = (openblas(), args) else { return };
    let (a, b, n) = (a.floats(), b.floats(), n.word() as usize);
    let c = c.floats_mut();
    assert!(a.len() == n * n && b.len() == n * n && c.len() == n * n, "three matrices of n by n");
    let (threads, n) = (team.threads() as c_int, n as c_int);
    // SAFETY: each matrix has n contiguous rows of n elements; c is borrowed exclusively.
    unsafe {
        (blas.set_threads)(threads);
        (blas.sgemm)(
            ROW_MAJOR,
            NO_TRANS,
            NO_TRANS,
            n,
            n,
            n,
            1.0,
            a.as_ptr(),
            n,
            b.as_ptr(),
            n,
            0.0,
            c.as_mut_ptr(),
            n,
        );
    }
}
