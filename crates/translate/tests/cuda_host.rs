//! Launches `<<<>>>` as Rust: the text that the translation writes is compiled here, and computes what the host's code would.
#![allow(unsafe_code)] // launches

#[path = "support/cuda_launches.rs"]
mod launches;

use elinvar::{Device, Source};
use elinvar_msl::Toolchain;
use elinvar_translate::CudaOptions;

const TEXT: &str = "__constant__ float weight;
template <class T> __global__ void scale(const T *in, T *out, T by, int n) {
    extern __shared__ float copy[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    copy[threadIdx.x] = weight;
    __syncthreads();
    if (i < n) out[i] = in[i] * by + (T)copy[blockDim.x - 1 - threadIdx.x];
}
void run(const float *in, float *out, int n, unsigned char *bytes) {
    scale<float><<<dim3(3, 1), 8, 32>>>(in, out, 2.0f, n);
    scale<unsigned char><<<n / 8, 8, 8 * sizeof(float)>>>(bytes, bytes, 3, n);
}
";

#[test]
fn the_text_compiles_and_launches() {
    let source = elinvar_driver::Source::named("scale.cu", TEXT);
    let options = CudaOptions { host_stub: true, ..CudaOptions::default() };
    let translation = elinvar_translate::cuda(&Toolchain::find().unwrap(), &source, &options).unwrap();
    assert!(translation.errors.is_empty(), "{:?}", translation.errors);
    let text = translation.host.unwrap();
    // rustfmt has changed the file's white space.
    let dense =
        |text: &str| text.split_whitespace().collect::<String>().replace(",)", ")").replace(",]", "]");
    let kept = include_str!("support/cuda_launches.rs");
    assert_eq!(dense(&text), dense(kept), "{text}");
    let device = Device::cpu().unwrap();
    let library = device.compile(Source::named("scale.metal", translation.msl.as_str())).unwrap();
    let stream = device.stream().unwrap();
    let input: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let (data, mut out) = (device.buffer_with_data(&input).unwrap(), device.buffer::<f32>(24).unwrap());
    let mut weight = device.buffer_with_data(&[5f32]).unwrap();
    // SAFETY: the buffers have 24 elements.
    let done =
        unsafe { launches::launch_1_scale_float(&library, &stream, &data, &mut out, 2.0, 24, &mut weight) };
    done.unwrap().wait().unwrap();
    assert_eq!(out.to_vec().unwrap(), input.iter().map(|x| 2.0 * x + 5.0).collect::<Vec<f32>>());
    let numbers: Vec<u8> = (0..24).collect();
    let mut bytes = device.buffer_with_data(&numbers).unwrap();
    let copy = device.buffer_with_data(&numbers).unwrap();
    // SAFETY: as above.
    let done = unsafe {
        launches::launch_2_scale_uchar(
            &library,
            &stream,
            (3, 1, 1),
            &copy,
            &mut bytes,
            3,
            24,
            32,
            &mut weight,
        )
    };
    done.unwrap().wait().unwrap();
    assert_eq!(bytes.to_vec().unwrap(), numbers.iter().map(|x| 3 * x + 5).collect::<Vec<u8>>());
}
