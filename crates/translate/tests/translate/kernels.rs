//! Whole kernels: their translations compute what is computed here.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use crate::support::{expect_portable, translated};
use elinvar::{Device, Grid, Library, Source, Threadgroup};

fn library(text: &str) -> (Device, Library) {
    let translation = translated(text);
    expect_portable(&translation);
    let device = Device::cpu().expect("a CPU");
    let source = Source::named("test.metal", translation.msl.as_str());
    let library = device.compile(source).unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    (device, library)
}

#[test]
fn positions_pass_through_functions() {
    let text = "
static uint where(void) { return get_local_id(0) + 10 * get_local_id(1); }
static uint size(uint d) { return get_global_size(d) * 100 + get_local_size(d) * 10 + get_num_groups(d); }
uint both(uint d) { return where() + 1000 * get_group_id(1) + size(d) * 10000; }
__kernel void places(__global uint *out) {
    uint i = get_global_id(1) * get_global_size(0) + get_global_id(0) + get_global_offset(0);
    out[i] = both(i % 4);
}";
    let (device, library) = library(text);
    let kernel = library.checked_kernel("places").unwrap();
    let mut out = device.buffer::<u32>(32).unwrap();
    let stream = device.stream().unwrap();
    kernel.launch(&stream, Grid::threads((8, 4)).group((4, 2)), (&mut out,)).unwrap().wait().unwrap();
    for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
        let (x, y) = (i as u32 % 8, i as u32 / 8);
        let (global, local) = ([8, 4, 1, 1], [4, 2, 1, 1]);
        let d = i % 4;
        let size = global[d] * 100 + local[d] * 10 + global[d] / local[d];
        assert_eq!(value, x % 4 + 10 * (y % 2) + 1000 * (y / 2) + size * 10000, "thread {i}");
    }
}

#[test]
fn local_memory_barriers_and_atomics() {
    let text = "
// A histogram by threadgroups.
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void histogram(__global const uchar *data, __global uint *bins, __local uint *own, uint n) {
    __local uint total;
    uint id = get_local_id(0);
    for (uint k = id; k < 16; k += get_local_size(0)) own[k] = 0;
    if (id == 0) total = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_global_id(0) < n) {
        atomic_inc(&own[data[get_global_id(0)] & 15]);
        atomic_add(&total, 1);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    n = 16;
    for (uint k = id; k < n; k += get_local_size(0)) atomic_add(bins + k, own[k]);
    if (id == 0) { atomic_max(&bins[16], total); atomic_cmpxchg(&bins[17], 0u, 7u); atomic_xchg((volatile __global float *)&bins[18], 2.5f); }
}";
    let (device, library) = library(text);
    let kernel = library.kernel("histogram").unwrap();
    let data: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let input = device.buffer_with_data(&data).unwrap();
    let mut bins = device.buffer::<u32>(19).unwrap();
    let stream = device.stream().unwrap();
    let grid = Grid::threads(1024).group(64);
    // SAFETY: threads beyond the data do not read it.
    let done = unsafe { kernel.launch(&stream, grid, (&input, &mut bins, Threadgroup::bytes(64), 1000_u32)) };
    done.unwrap().wait().unwrap();
    let mut expected = vec![0_u32; 19];
    data.iter().for_each(|byte| expected[(byte & 15) as usize] += 1);
    (expected[16], expected[17], expected[18]) = (64, 7, 2.5_f32.to_bits());
    assert_eq!(bins.to_vec().unwrap(), expected);
}

#[test]
fn names_that_msl_reserves() {
    let text = "
typedef struct { int device, half_; float3 ray_data; } metal;
static int thread(int vertex, int template) { return vertex + template; }
float saturate(float fragment) { return fragment * 3.0f; }
static int max3(int a, int b, int c) { return a * b * c; }
enum class { new = 4, operator };
#define DEFINE(name, op) __kernel void name(__global int *this, int cl_x, __constant metal *threadgroup) { \\
    int i = get_global_id(0), local_id = 7, global_id = 1; \\
    metal m = threadgroup[0]; \\
    this[i] = thread(i, m.device) op max3(i, 2, cl_x) op (int)saturate(m.ray_data.y) op local_id op new op operator op global_id; }
DEFINE(add, +)
DEFINE(mul, ^)";
    let (device, library) = library(text);
    let record: Vec<u32> = vec![5, 6, 0, 0, 0, 4.0_f32.to_bits(), 0, 0];
    let bytes: Vec<u8> = record.iter().flat_map(|word| word.to_le_bytes()).collect();
    let record = device.buffer_with_data(bytemuck::cast_slice::<u8, [u32; 8]>(&bytes)).unwrap();
    let mut out = device.buffer::<i32>(100).unwrap();
    let stream = device.stream().unwrap();
    for (name, op) in [("add", (|a, b| a + b) as fn(i32, i32) -> i32), ("mul", |a, b| a ^ b)] {
        let kernel = library.kernel(name).unwrap();
        // SAFETY: as many threads as elements.
        let done = unsafe { kernel.launch(&stream, Grid::threads(100), (&mut out, 3_i32, &record)) };
        done.unwrap().wait().unwrap();
        for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
            let i = i as i32;
            let expected = [i * 6, 12, 7, 4, 5, 1].into_iter().fold(i + 5, op);
            assert_eq!(value, expected, "{name}, thread {i}");
        }
    }
}

#[test]
fn copies_by_threadgroups_and_structs() {
    let text = "
struct Pair { uchar tag; union { uint word; float value; } u; short4 v; };
__kernel void reverse(__global const float *in, __global float *out, __local float *tile) {
    event_t e = async_work_group_copy(tile, in + get_group_id(0) * 32, 32, 0);
    wait_group_events(1, &e);
    struct Pair pairs[2] = { { 1, { 5 }, (short4)(1, 2, 3, 4) }, { .tag = 2, .v = (short4)(7) } };
    pairs[1].u.value = 0.5f;
    uint id = get_local_id(0);
    out[get_global_id(0)] = tile[31 - id] + pairs[id & 1].tag + (id & 1 ? as_float(pairs[1].u.word) : pairs[0].u.word) + pairs[id & 1].v.hi.y;
}";
    let (device, library) = library(text);
    let kernel = library.kernel("reverse").unwrap();
    let values: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let input = device.buffer_with_data(&values).unwrap();
    let mut out = device.buffer::<f32>(128).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: each threadgroup reads and writes its 32 elements.
    let done = unsafe {
        kernel.launch(&stream, Grid::threads(128).group(32), (&input, &mut out, Threadgroup::bytes(128)))
    };
    done.unwrap().wait().unwrap();
    for (i, value) in out.to_vec().unwrap().into_iter().enumerate() {
        let extra = if i % 2 == 1 { 2.0 + 0.5 + 7.0 } else { 1.0 + 5.0 + 4.0 };
        assert_eq!(value, (i / 32 * 32 + 31 - i % 32) as f32 + extra, "thread {i}");
    }
}

#[test]
fn faults_name_the_original_line() {
    let text = "#define STORE(p, i) p[i] = 1\n\n\n__kernel void wild(__global int *out, int n) {\n  int i = get_global_id(0);\n\n  STORE(out, i * n);\n}";
    let (device, library) = library(text);
    let kernel = library.checked_kernel("wild").unwrap();
    let mut out = device.buffer::<i32>(8).unwrap();
    let stream = device.stream().unwrap();
    let error =
        kernel.launch(&stream, Grid::threads(8), (&mut out, 2_i32)).unwrap().wait().unwrap_err().to_string();
    assert!(error.contains("test.cl:7"), "{error}");
}

#[test]
fn printf_is_the_log() {
    let text = "kernel void k(global const float4 *p, global int *out) {
    int i = get_global_id(0);
    if (i > 1) printf(\"%d: %v4f %s %5.2f%%\\n\", i, p[i], \"text\", p[i].y);
    printf(\"plain\");
    out[i] = i;
}";
    let (device, library) = library(text);
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let to = lines.clone();
    let subscription =
        device.on_log(move |line| to.lock().unwrap().push((line.thread, line.message.clone()))).unwrap();
    let values: Vec<[f32; 4]> = (0..3).map(|i| [i as f32, 1.5, 2.0, -3.0]).collect();
    let input = device.buffer_with_data(&values).unwrap();
    let mut out = device.buffer::<i32>(3).unwrap();
    let stream = device.stream().unwrap();
    let kernel = library.checked_kernel("k").unwrap();
    kernel.launch(&stream, Grid::threads(3), (&input, &mut out)).unwrap().wait().unwrap();
    drop(subscription);
    let mut lines: Vec<String> = lines.lock().unwrap().iter().map(|(_, message)| message.clone()).collect();
    lines.sort();
    assert_eq!(lines, ["2: 2.000000,1.500000,2.000000,-3.000000 text  1.50%", "plain", "plain", "plain"]);
}

#[test]
fn opencl_is_compiled_at_run_time() {
    let device = Device::cpu().unwrap();
    let text = "#define TWICE(x) ((x) * SCALE)\nkernel void k(global int *p, int n) {\n    int i = get_global_id(0);\n\n    p[i * n] = TWICE(i);\n}";
    let source = Source::opencl(text).define("SCALE", Some("3"));
    let library = device.compile(&source).unwrap();
    let kernel = library.checked_kernel("k").unwrap();
    let mut out = device.buffer::<i32>(8).unwrap();
    let stream = device.stream().unwrap();
    kernel.launch(&stream, Grid::threads(8), (&mut out, 1_i32)).unwrap().wait().unwrap();
    assert_eq!(out.to_vec().unwrap(), (0..8).map(|i| i * 3).collect::<Vec<_>>());
    let fault = kernel.launch(&stream, Grid::threads(8), (&mut out, 2_i32)).unwrap().wait().unwrap_err();
    assert!(fault.to_string().contains("kernel.cl:5"), "{fault}");
    let place = |source: Source| match device.compile(source) {
        Err(elinvar::Error::Compile(all)) => {
            let first = all.first().expect("an error");
            (first.file.clone(), first.line, first.column, first.message.clone())
        }
        other => panic!("{other:?}"),
    };
    let (file, line, column, message) = place(Source::opencl("kernel void k(global int *p) {\n  *p = q;\n}"));
    assert_eq!((file.as_str(), line, column), ("kernel.cl", 2, 8), "{message}");
    assert!(message.contains("undeclared identifier 'q'"), "{message}");
    let (file, line, column, message) =
        place(Source::opencl("kernel void k(global int *p) {\n  *p = get_work_dim();\n}"));
    assert_eq!((file.as_str(), line, column), ("kernel.cl", 2, 8), "{message}");
    // The same text is no MSL.
    assert!(device.compile(Source::msl(text)).is_err());
}

#[test]
fn contraction_is_off_where_the_source_says_so() {
    let kernel = "kernel void k(global const float *x, global float *out) {
    PRAGMA
    int i = get_global_id(0);
    out[i] = x[i] * x[i] + x[i + 1];
}";
    let a = 1.0 + 1.0 / 4096.0_f32;
    for (head, body) in [("#pragma OPENCL FP_CONTRACT OFF\n", ""), ("", "\n#pragma OPENCL FP_CONTRACT OFF\n")]
    {
        let (device, library) = library(&format!("{head}{}", kernel.replace("PRAGMA", body)));
        let x = device.buffer_with_data(&[a, -(a * a)]).unwrap();
        let mut out = device.buffer_with_data(&[1.0_f32]).unwrap();
        let stream = device.stream().unwrap();
        let kernel = library.checked_kernel("k").unwrap();
        kernel.launch(&stream, Grid::threads(1), (&x, &mut out)).unwrap().wait().unwrap();
        // With a fused operation it would be the error of the product.
        assert_eq!(out.to_vec().unwrap(), [0.0]);
    }
}

#[test]
fn structs_without_names_in_each_address_space() {
    let text = "
__constant struct { int dx, dy; } steps[4] = { {1, 0}, {-1, 0}, {0, 1}, {0, -1} };
__kernel void unnamed(__global int *out) {
    struct { int a, b; } pair[2] = { {1, 2}, {3, 4} }, one = { 5, 6 };
    const struct { short s; } fixed[1] = { { 7 } };
    __local struct { int v; float w[2]; } shared[4];
    int id = get_local_id(0);
    shared[id].v = steps[id].dx * 10 + steps[id].dy;
    barrier(CLK_LOCAL_MEM_FENCE);
    out[id] = shared[3 - id].v + pair[id & 1].b * 100 + one.b * 1000 + fixed[0].s * 10000;
}";
    let (device, library) = library(text);
    let kernel = library.checked_kernel("unnamed").unwrap();
    let mut out = device.buffer::<i32>(4).unwrap();
    let stream = device.stream().unwrap();
    kernel.launch(&stream, Grid::threads(4).group(4), (&mut out,)).unwrap().wait().unwrap();
    assert_eq!(out.to_vec().unwrap(), [76_199, 76_401, 76_190, 76_410]);
}

#[test]
fn lists_that_are_shorter_than_their_arrays() {
    let text = "
typedef struct { int a[3]; short b; } Pair;
__constant char word[4] = \"a'\\x01\\n\";
__kernel void lists(__global int *out, int n) {
    int i = get_global_id(0);
    int first[6] = { get_global_id(0), n };
    int placed[6] = { [2] = get_local_id(0) + n, [4] = 7.9f };
    Pair pairs[3] = { { { n, 2 }, i }, { .b = get_local_id(0) } };
    int rows[2][3] = { { i } };
    int sum = 0;
    for (int k = 0; k < 6; k++) sum = 3 * sum + first[k] + 100 * placed[k] + word[k & 3];
    for (int k = 0; k < 3; k++) sum += (pairs[k].a[0] + 5 * pairs[k].a[1] + pairs[k].a[2] + 11 * pairs[k].b) << k;
    out[i] = sum + rows[0][0] * 1000 + rows[0][1] + rows[1][0] + rows[1][2];
}";
    let (device, library) = library(text);
    let mut out = device.buffer::<i32>(8).unwrap();
    let stream = device.stream().unwrap();
    let kernel = library.checked_kernel("lists").unwrap();
    kernel.launch(&stream, Grid::threads(8).group(4), (&mut out, 9)).unwrap().wait().unwrap();
    for (i, found) in (0..).zip(out.to_vec().unwrap()) {
        let (first, placed) = ([i, 9, 0, 0, 0, 0], [0, 0, i % 4 + 9, 0, 7, 0]);
        let word = [97, 39, 1, 10];
        let sum = (0..6).fold(0, |sum, k| 3 * sum + first[k] + 100 * placed[k] + word[k & 3]);
        assert_eq!(found, sum + 9 + 10 + 11 * i + 2 * 11 * (i % 4) + 1000 * i, "thread {i}");
    }
}
