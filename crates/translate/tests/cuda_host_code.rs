//! Sources whose host code needs headers that are not there: kernels translate, what they cannot do without is named with its line.

use elinvar::{Buffer, Device, Grid};
use elinvar_driver::Source;
use elinvar_msl::Toolchain;
use elinvar_translate::{CudaOptions, Error, Translation};

/// As PyTorch's extensions are written.
const EXTENSION: &str = r#"#include <torch/extension.h>
#include "../nowhere/utils.cuh"
#include <vector>

template <typename scalar_t, int N>
__global__ void scale(const scalar_t *x, scalar_t *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * N;
}
__global__ void plain(float *x) { x[threadIdx.x] += 1.f; }

at::Tensor run(at::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x");
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
        scale<scalar_t, 2><<<1, 2>>>(x.data_ptr<scalar_t>(), x.data_ptr<scalar_t>(), 3);
    }));
    return x;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"#;

fn translate(text: &str, instances: &[&str]) -> Result<Translation, Error> {
    let instances = instances.iter().map(|name| (*name).to_owned()).collect();
    let options = CudaOptions { skip_host: true, instances, ..CudaOptions::default() };
    elinvar_translate::cuda(&Toolchain::find().expect("clang"), &Source::named("k.cu", text), &options)
}

/// The errors with their lines.
fn errors(text: &str) -> Vec<String> {
    let translation = translate(text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let place = |error: &elinvar_driver::Diagnostic| format!("{}: {}", error.line, error.message);
    translation.errors.iter().map(place).collect()
}

#[test]
fn kernels_of_an_extension_compute_without_its_headers() {
    let translation =
        translate(EXTENSION, &["scale<float, 3>", "scale<int, 5>"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(translation.errors.is_empty(), "{:?}", translation.errors);
    let names: Vec<&str> = translation.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["scale_float_3", "scale_int_5", "plain"]);
    let device = Device::cpu().expect("a CPU");
    let library = device.compile(elinvar::Source::named("k.metal", translation.msl)).expect("a library");
    let stream = device.stream().expect("a stream");
    let kernel = |name: &str| library.checked_kernel(name).expect("a kernel");
    let x: Vec<f32> = (0..100).map(|i| i as f32 - 30.5).collect();
    let input = device.buffer_with_data(&x).expect("memory");
    let mut output: Buffer<f32> = device.buffer_with_data(&[-1.0; 100]).expect("memory");
    let grid = Grid::groups(4).group(32);
    let done = kernel("scale_float_3").launch(&stream, grid, (&input, &mut output, 90i32));
    done.and_then(|done| done.wait()).expect("a launch");
    let expected: Vec<f32> = x.iter().enumerate().map(|(i, x)| if i < 90 { 3.0 * x } else { -1.0 }).collect();
    assert_eq!(output.to_vec().expect("results"), expected);

    let mut input = device.buffer_with_data(&x).expect("memory");
    let done = kernel("plain").launch(&stream, Grid::groups(1).group(100), (&mut input,));
    done.and_then(|done| done.wait()).expect("a launch");
    let expected: Vec<f32> = x.iter().map(|x| x + 1.0).collect();
    assert_eq!(input.to_vec().expect("results"), expected);
}

#[test]
fn without_the_option_a_header_that_is_not_found_is_an_error() {
    let source = Source::named("k.cu", EXTENSION);
    let result = elinvar_translate::cuda(&Toolchain::find().unwrap(), &source, &CudaOptions::default());
    let Err(Error::Compile(errors)) = result else { panic!("{result:?}") };
    assert_eq!((errors[0].line, errors[0].message.as_str()), (1, "'torch/extension.h' file not found"));
}

#[test]
fn a_template_without_an_instance_is_in_the_report() {
    let translation = translate(EXTENSION, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(translation.kernels.len(), 1);
    assert_eq!(translation.templates, ["scale<float, 1>"]);
    let translation = translate(EXTENSION, &["scale<float, 1>"]).unwrap_or_else(|error| panic!("{error}"));
    assert!(translation.templates.is_empty(), "{:?}", translation.templates);
}

#[test]
fn errors_count_in_kernels_and_in_what_they_use() {
    // In the kernel, in a function that it calls, in a struct that it uses; not in others.
    assert_eq!(
        errors("__global__ void k(float *x) {\n  *x = at::f(*x); }\nvoid host() { at::g(); }"),
        ["2: use of undeclared identifier 'at'"]
    );
    assert_eq!(
        errors(
            "__device__ float f(float x) {\n  return at::f(x); }\n__global__ void k(float *x) { *x = f(*x); }"
        ),
        ["2: use of undeclared identifier 'at'"]
    );
    let errors = errors(
        "struct S { int a;\n  at::Tensor t; };\n__global__ void k(int *x) { S s; s.a = 1; *x = s.a; }",
    );
    assert!(
        errors.iter().any(|error| error.starts_with("2: use of undeclared identifier 'at'")),
        "{errors:?}"
    );
}

#[test]
fn a_kernel_that_cannot_be_read_is_refused() {
    let translation = translate(
        "at::\n__global__ void lost(float *x) { *x = 1; }\n__global__ void k(float *x) { *x = 1; }",
        &[],
    );
    let translation = translation.unwrap_or_else(|error| panic!("{error}"));
    assert!(translation.refused.contains(&"lost".to_owned()), "{translation:?}");
}

#[test]
fn an_instance_that_does_not_exist_is_an_error() {
    for (name, expected) in
        [("scale<nothing, 1>", "use of undeclared identifier 'nothing'"), ("none<int>", "none")]
    {
        let result = translate(EXTENSION, &[name]);
        let Err(Error::Compile(errors)) = result else { panic!("{result:?}") };
        assert_eq!(errors[0].file, "instances");
        assert!(errors[0].message.contains(expected), "{}", errors[0].message);
    }
}
