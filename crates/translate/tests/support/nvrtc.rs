//! Runs the original CUDA C++: compiled by NVRTC, launched by the CUDA driver. Both libraries are loaded at run time.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};

use cudarc::driver::{CudaContext, result, sys};
use cudarc::nvrtc::{self, CompileOptions};

/// Headers of the C library that NVRTC does not have, as far as the sources use them.
const HEADERS: &[(&str, &str)] = &[
    (
        "stdint.h",
        "#pragma once\ntypedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;\n\
         typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long uint64_t;\n\
         #ifndef assert\n#define assert(...) ((void)0)\n#endif\n",
    ),
    ("cstdint", "#include <stdint.h>\n"),
    (
        "math.h",
        "#pragma once\n#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif\n#ifndef M_PI\n#define M_PI 3.14159265358979323846\n#endif\n\
         #ifndef M_2_SQRTPI\n#define M_2_SQRTPI 1.12837916709551257390\n#define M_SQRT1_2 0.707106781186547524401\n#endif\n\
         #ifndef CHAR_BIT\n#define CHAR_BIT 8\n#endif\n",
    ),
    ("cmath", "#include <math.h>\n"),
];

/// The folder with `cuda_fp16.h`.
fn include() -> Option<PathBuf> {
    let of = |name: &str, rest: &str| std::env::var_os(name).map(|path| PathBuf::from(path).join(rest));
    let places = [
        of("ELINVAR_CUDA_INCLUDE", ""),
        of("CUDA_HOME", "include"),
        of("CUDA_PATH", "include"),
        Some("/usr/local/cuda/include".into()),
        Some("/usr/include".into()),
    ];
    places.into_iter().flatten().find(|folder| folder.join("cuda_fp16.h").is_file())
}

/// Why the originals cannot be run, if so.
pub fn absence() -> Option<String> {
    // SAFETY: loading the libraries runs only their initializers.
    let (driver, compiler) = unsafe { (sys::is_culib_present(), nvrtc::sys::is_culib_present()) };
    if !driver || result::init().is_err() || result::device::get_count().unwrap_or(0) == 0 {
        return Some("there is no NVIDIA GPU".into());
    }
    if !compiler {
        return Some("NVRTC is not installed: the library `libnvrtc` cannot be loaded".into());
    }
    let missing = "no folder has `cuda_fp16.h`: ELINVAR_CUDA_INCLUDE names CUDA's folder `include`";
    include().is_none().then(|| missing.into())
}

/// An argument: memory, or the bytes of a number.
pub enum Value {
    Memory(Vec<u8>),
    Number(Vec<u8>),
}

/// Compiles a file and runs one of its kernels. Returns the arguments' memory afterwards.
pub fn run(
    file: &Path,
    includes: &[PathBuf],
    kernel: &str,
    [groups, group]: [[u32; 3]; 2],
    shared: u32,
    args: &[Value],
) -> Result<Vec<Vec<u8>>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let own = tempfile::tempdir().map_err(|error| error.to_string())?;
    for (name, text) in HEADERS {
        std::fs::write(own.path().join(name), text).map_err(|error| error.to_string())?;
    }
    let mut options = vec!["--fmad=false".to_owned(), "--std=c++17".into()];
    let folders = includes.iter().cloned().chain([own.path().to_owned()]).chain(include());
    options.extend(folders.map(|folder| format!("--include-path={}", folder.display())));
    let options = CompileOptions { arch: Some("compute_80"), options, ..CompileOptions::default() };
    let ptx = nvrtc::compile_ptx_with_opts(text, options).map_err(|error| format!("NVRTC: {error:?}"))?;
    let failed = |error: cudarc::driver::DriverError| format!("CUDA: {error}");
    let context = CudaContext::new(0).map_err(failed)?;
    context.bind_to_thread().map_err(failed)?;
    let image = CString::new(ptx.to_src()).map_err(|error| error.to_string())?;
    let name = CString::new(kernel).map_err(|error| error.to_string())?;
    let mut memory = Vec::new();
    // SAFETY: the context is current, the image is PTX, and each copy has its allocation's size. The arguments are those of the kernel.
    unsafe {
        let module = result::module::load_data(image.as_ptr().cast()).map_err(failed)?;
        let function = result::module::get_function(module, name).map_err(failed)?;
        let mut numbers: Vec<Vec<u8>> = Vec::new();
        for arg in args {
            match arg {
                Value::Memory(bytes) => {
                    let place = result::malloc_sync(bytes.len().max(1)).map_err(failed)?;
                    result::memcpy_htod_sync(place, bytes).map_err(failed)?;
                    memory.push((place, bytes.len()));
                    numbers.push(place.to_le_bytes().to_vec());
                }
                Value::Number(bytes) => numbers.push(bytes.clone()),
            }
        }
        let mut params: Vec<*mut c_void> =
            numbers.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
        let ([gx, gy, gz], [x, y, z], none) = (groups, group, std::ptr::null_mut::<c_void>());
        let params = params.as_mut_ptr();
        let launched =
            sys::cuLaunchKernel(function, gx, gy, gz, x, y, z, shared, none.cast(), params, none.cast());
        launched.result().map_err(failed)?;
        sys::cuCtxSynchronize().result().map_err(failed)?;
        let mut found = Vec::new();
        for (place, length) in memory {
            let mut bytes = vec![0; length];
            result::memcpy_dtoh_sync(&mut bytes, place).map_err(failed)?;
            result::free_sync(place).map_err(failed)?;
            found.push(bytes);
        }
        result::module::unload(module).map_err(failed)?;
        Ok(found)
    }
}
