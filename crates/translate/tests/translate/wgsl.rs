//! Compute shaders in WGSL, GLSL and SPIR-V: their translations compute what is computed here.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Library, Source, Threadgroup};
use elinvar_translate::{Error, Language, Translation, shader, spirv};

fn translated(text: &str) -> Translation {
    shader(&Source::named("k.wgsl", text), Language::Wgsl).unwrap_or_else(|error| panic!("{error}"))
}

fn library(translation: &Translation) -> (Device, Library) {
    let device = Device::cpu().expect("a CPU");
    let source = Source::named("k.metal", translation.msl.as_str()).check_spaces();
    let library = device.compile(source).unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    assert!(library.warnings().is_empty(), "{:?}", library.warnings());
    (device, library)
}

#[test]
fn collatz() {
    let text = "
@group(0) @binding(0) var<storage, read_write> v_indices: array<u32>;
fn collatz_iterations(n_base: u32) -> u32 {
    var n: u32 = n_base;
    var i: u32 = 0u;
    loop {
        if n <= 1u { break; }
        if n % 2u == 0u { n = n / 2u; } else { n = 3u * n + 1u; }
        i = i + 1u;
    }
    return i;
}
@compute @workgroup_size(64)
fn steps(@builtin(global_invocation_id) id: vec3<u32>) {
    v_indices[id.x] = collatz_iterations(v_indices[id.x]);
}";
    let translation = translated(text);
    let [kernel] = &translation.kernels[..] else { panic!("{:?}", translation.kernels) };
    assert_eq!((kernel.name.as_str(), kernel.group_size), ("steps", Some([64, 1, 1])));
    let (device, library) = library(&translation);
    let kernel = library.kernel("steps").unwrap();
    let mut data = device.buffer_with_data(&(1..=100_u32).collect::<Vec<_>>()).unwrap();
    let sizes = device.buffer_with_data(&[400_u32]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: accesses beyond the size that is given are not made.
    let done = unsafe { kernel.launch(&stream, Grid::threads(128).group(64), (&mut data, &sizes)) };
    done.unwrap_or_else(|error| panic!("{error}\n{}", translation.msl)).wait().unwrap();
    for (i, value) in data.to_vec().unwrap().into_iter().enumerate() {
        let (mut n, mut steps) = (i + 1, 0);
        while n > 1 {
            n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        assert_eq!(value, steps, "{i}");
    }
}

#[test]
fn a_reduction_with_workgroup_memory_and_atomics() {
    let text = "
struct Params { count: u32, scale: f32 }
@group(1) @binding(3) var<storage, read_write> total: atomic<u32>;
@group(0) @binding(1) var<storage, read> input: array<f32>;
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> sums: array<f32>;
var<workgroup> tile: array<f32, 64>;
@compute @workgroup_size(64)
fn reduce(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32,
          @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    var value = 0.0;
    if id.x < params.count { value = input[id.x] * params.scale; atomicAdd(&total, 1u); }
    tile[local] = value;
    workgroupBarrier();
    for (var step = 32u; step > 0u; step >>= 1u) {
        if local < step { tile[local] += tile[local + step]; }
        workgroupBarrier();
    }
    if local == 0u { sums[group.x] = tile[0] + f32(groups.x); }
}";
    let translation = translated(text);
    let (device, library) = library(&translation);
    let kernel = library.kernel("reduce").unwrap();
    let names: Vec<&str> = kernel.signature().args.iter().map(|arg| arg.name.as_str()).collect();
    assert_eq!(names, ["total", "input", "params", "sums", "tile", "_buffer_sizes"]);
    let listed: Vec<&str> =
        translation.kernels[0].arguments.iter().map(|argument| argument.source.as_str()).collect();
    assert_eq!(listed, names);
    assert!(translation.kernels[0].arguments[2].msl.ends_with("[[buffer(0)]]"), "{:?}", translation.kernels);
    let params = device.buffer_with_data(&[[200_u32, 0.5_f32.to_bits()]]).unwrap();
    let input = device.buffer_with_data(&(0..200).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut sums = device.buffer::<f32>(4).unwrap();
    let mut total = device.buffer::<u32>(1).unwrap();
    let sizes = device.buffer_with_data(&[[800_u32, 16]]).unwrap();
    let stream = device.stream().unwrap();
    let grid = Grid::threads(256).group(64);
    // SAFETY: the sizes are those of the buffers.
    let done = unsafe {
        kernel.launch(
            &stream,
            grid,
            (&mut total, &input, &params, &mut sums, Threadgroup::bytes(256), &sizes),
        )
    };
    done.unwrap_or_else(|error| panic!("{error}\n{}", translation.msl)).wait().unwrap();
    let expected: Vec<f32> = (0..4)
        .map(|g| (g * 64..(g + 1) * 64).filter(|i| *i < 200).map(|i| i as f32 * 0.5).sum::<f32>() + 4.0)
        .collect();
    assert_eq!((sums.to_vec().unwrap(), total.to_vec().unwrap()), (expected, vec![200]));
}

#[test]
fn matrices_vectors_and_functions() {
    let text = "
struct Particle { position: vec3<f32>, mass: f32, flags: vec2<i32> }
@group(0) @binding(0) var<storage, read_write> particles: array<Particle, 16>;
@group(0) @binding(1) var<uniform> turn: mat3x3<f32>;
fn clampedShift(x: i32, by: u32) -> i32 { return (x << by) / select(2, 0, by == 3u); }
@compute @workgroup_size(16)
fn main(@builtin(local_invocation_id) id: vec3<u32>) {
    let p = particles[id.x];
    particles[id.x].position = turn * p.position + vec3(p.mass);
    particles[id.x].flags = vec2(clampedShift(p.flags.x, id.x % 4u), i32(dot(p.position, p.position)));
}";
    let translation = translated(text);
    assert_eq!(
        translation.renamed.iter().next().map(|(from, to)| (from.as_str(), to.as_str())),
        Some(("main", "main_"))
    );
    let (device, library) = library(&translation);
    let kernel = library.kernel("main_").unwrap();
    let words = |i: u32| {
        let f = |x: f32| x.to_bits();
        [f(i as f32), f(2.0), f(-1.0), f(0.5), i + 10, 0, 0, 0]
    };
    let all: [[u32; 8]; 16] = std::array::from_fn(|i| words(i as u32));
    let mut particles = device.buffer_with_data(&[all]).unwrap();
    let turn: [f32; 12] = [0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let turn = device.buffer_with_data(&[turn]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: the kernel checks its accesses.
    let done = unsafe { kernel.launch(&stream, Grid::threads(16).group(16), (&mut particles, &turn)) };
    done.unwrap_or_else(|error| panic!("{error}\n{}", translation.msl)).wait().unwrap();
    for (i, found) in particles.to_vec().unwrap()[0].into_iter().enumerate() {
        let x = i as f32;
        let by = i % 4;
        // Division by zero is the dividend in WGSL.
        let shifted = ((i as i32) + 10) << by;
        let shifted = if by == 3 { shifted } else { shifted / 2 };
        let expected = [
            (-2.0 + 0.5_f32).to_bits(),
            (x + 0.5).to_bits(),
            (-0.5_f32).to_bits(),
            0.5_f32.to_bits(),
            shifted as u32,
            (x * x + 5.0) as u32,
        ];
        assert_eq!(found[..6], expected, "particle {i}");
    }
}

#[test]
fn accesses_beyond_a_buffer() {
    let text = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1)
fn k(@builtin(global_invocation_id) id: vec3<u32>) {
    out[id.x * 1000u] = 7u;
    var own = array<u32, 4>(1u, 2u, 3u, 4u);
    out[id.x] = own[id.x] + out[id.x + 100000u];
}";
    let translation = translated(text);
    let (device, library) = library(&translation);
    let kernel = library.kernel("k").unwrap();
    let mut out = device.buffer::<u32>(8).unwrap();
    let sizes = device.buffer_with_data(&[32_u32]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: the size is the buffer's, so that no access is outside.
    let done = unsafe { kernel.launch(&stream, Grid::threads(8).group(1), (&mut out, &sizes)) };
    done.unwrap().wait().unwrap();
    assert_eq!(out.to_vec().unwrap(), [1, 2, 3, 4, 0, 0, 0, 0]);
}

#[test]
fn glsl() {
    let text = "#version 450
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) buffer Data { float values[64]; } data;
void main() {
    uint i = gl_GlobalInvocationID.x;
    data.values[i] = data.values[i] * FACTOR + float(i);
}";
    let translation =
        shader(&Source::named("k.comp", text).define("FACTOR", Some("3.0")), Language::Glsl).unwrap();
    let (device, library) = library(&translation);
    let kernel = library.kernel("main_").unwrap();
    let values: [f32; 64] = std::array::from_fn(|i| i as f32 - 7.0);
    let mut data = device.buffer_with_data(&[values]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: the kernel checks its accesses.
    let done = unsafe { kernel.launch(&stream, Grid::threads(64).group(32), (&mut data,)) };
    done.unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap()[0], std::array::from_fn(|i| values[i] * 3.0 + i as f32));
}

#[test]
fn errors_have_their_place() {
    let error = |text: &str| match shader(&Source::named("k.wgsl", text), Language::Wgsl) {
        Err(Error::Compile(errors)) => errors[0].clone(),
        other => panic!("{other:?}"),
    };
    let unknown = error("@compute @workgroup_size(1)\nfn k() {\n  let x = y;\n}");
    assert_eq!((unknown.file.as_str(), unknown.line, unknown.column), ("k.wgsl", 3, 11), "{unknown}");
    let none = error("fn f() {}");
    assert!(none.message.contains("no compute entry point"), "{none}");
    let texture = error(
        "@group(0) @binding(0) var t: texture_2d<f32>;\n@compute @workgroup_size(1)\nfn k() { _ = textureDimensions(t); }",
    );
    assert!(texture.message.contains("`t` is a texture"), "{texture}");
    let recursion =
        error("fn f(x: i32) -> i32 { return f(x); }\n@compute @workgroup_size(1)\nfn k() { _ = f(1); }");
    assert!(recursion.line == 1 || recursion.line == 0, "{recursion}");
    assert!(spirv("k.spv", b"no module").is_err() && spirv("k.spv", &[]).is_err());
}

/// The shader of the line maps: each statement on a line of its own.
const LINES: &str = "@group(0) @binding(0) var<storage, read_write> data: array<f32>;
@group(0) @binding(1) var<uniform> factor: f32;
@group(0) @binding(2) var<uniform> count: u32;

fn half_of(x: f32) -> f32 {
    let y = x * 0.5;
    return y;
}

// A comment.

@compute @workgroup_size(32)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i >= count {
        return;
    }

    var sum = 0.0;
    for (var k = 0u; k < 3u; k++) {
        sum += half_of(data[i]);
        sum *= factor;
    }
    switch i % 3u {
        case 0u: { sum = -sum; }
        case 1u: {
            sum += 1.0;
        }
        default: {}
    }
    data[i] = sum;
}
";

/// Number of the line of the shader with a text.
fn line_of(text: &str) -> u32 {
    LINES.lines().position(|line| line.contains(text)).expect("a line") as u32 + 1
}

/// The lines of the source that `#line` directives give to the rows with a text.
fn mapped(msl: &str, wanted: &str) -> Vec<(String, u32)> {
    let (mut place, mut found) = ((String::new(), 0), Vec::new());
    for row in msl.lines() {
        if let Some((number, name)) = row.strip_prefix("#line ").and_then(|rest| rest.split_once(' ')) {
            place = (name.trim_matches('"').to_owned(), number.parse().expect("a number"));
            continue;
        }
        if row.contains(wanted) {
            found.push(place.clone());
        }
        place.1 += 1;
    }
    found
}

#[test]
fn statements_have_the_lines_of_the_source() {
    let translation = translated(LINES);
    let msl = &translation.msl;
    assert!(!msl.contains("elinvar_source_line"), "{msl}");
    let at = |text: &str| ("k.wgsl".to_owned(), line_of(text));
    for (row, source) in [
        ("float half_of(", "fn half_of"),
        ("return y", "return y"),
        ("kernel void scale", "fn scale"),
        ("return;", "return;"),
        (" = half_of(", "half_of(data"),
        ("data[", "data[i] = sum"),
    ] {
        let found = mapped(msl, row);
        assert!(found.contains(&at(source)), "{row}: {found:?} without {:?}\n{msl}", at(source));
    }
    // Constants are the values of variables at the function's begin; all other statements have rows.
    let rows = mapped(msl, "");
    for source in
        ["y = x * 0.5", "let i = id.x", "if i >=", "for (var", "sum *= factor", "sum = -sum", "sum += 1.0"]
    {
        assert!(rows.contains(&at(source)), "{source}: no row of {:?}\n{msl}", at(source));
    }
}

#[test]
fn lines_of_wgsl_are_those_of_the_analysis_and_the_results_are_the_same() {
    let translation = translated(LINES);
    let (device, library) = library(&translation);
    let kernel = library.kernel("scale").unwrap();
    let analysis = kernel.analysis().expect("an analysis");
    let lines: Vec<String> =
        analysis.accesses.iter().map(|access| format!("{:?}", access.location)).collect();
    for source in ["half_of(data", "data[i] = sum"] {
        let line = line_of(source);
        let has_line = |text: &String| text.contains("k.wgsl") && text.contains(&format!("line: {line}"));
        assert!(lines.iter().any(has_line), "{source}: {lines:?}\n{}", translation.msl);
    }
    let values: Vec<f32> = (0..40).map(|i| i as f32 - 7.0).collect();
    let mut data = device.buffer_with_data(&values).unwrap();
    let sizes = device.buffer_with_data(&[160_u32]).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: accesses beyond the size that is given are not made.
    let done =
        unsafe { kernel.launch(&stream, Grid::threads(64).group(32), (&mut data, 1.5f32, 33u32, &sizes)) };
    done.and_then(|done| done.wait()).unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    let expected = values.iter().enumerate().map(|(i, x)| {
        let mut sum = 0.0;
        for _ in 0..3 {
            sum += x * 0.5;
            sum *= 1.5;
        }
        match i % 3 {
            _ if i >= 33 => *x,
            0 => -sum,
            1 => sum + 1.0,
            _ => sum,
        }
    });
    assert_eq!(data.to_vec().unwrap(), expected.collect::<Vec<f32>>());
}

#[test]
fn statements_of_glsl_have_lines_and_those_of_spirv_have_none() {
    let text = "#version 450
layout(local_size_x = 8) in;
layout(set = 0, binding = 0) buffer Data { uint data[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    data[i] = i * 3u;
}
";
    let translation = shader(&Source::named("k.glsl", text), Language::Glsl).unwrap();
    assert!(translation.msl.contains("#line 6 \"k.glsl\""), "{}", translation.msl);
    assert!(!translation.msl.contains("elinvar_source_line"), "{}", translation.msl);
}

#[test]
fn override_constants_and_packed_halves() {
    let text = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
override WIDTH: u32 = 4u;
@id(7) override scale: f32;
override negate = false;
@compute @workgroup_size(WIDTH * 2u)
fn pack(@builtin(global_invocation_id) id: vec3<u32>) {
    var pair = unpack2x16float(words[id.x]) * scale;
    if negate { pair = -pair; }
    words[id.x] = pack2x16float(pair.yx) + WIDTH;
}";
    let source = Source::named("k.wgsl", text);
    let Err(Error::Compile(errors)) = shader(&source, Language::Wgsl) else { panic!("`scale` has no value") };
    assert!(errors[0].message.contains("has no value: define it"), "{errors:?}");
    let bad = source.clone().define("7", Some("wide"));
    assert!(shader(&bad, Language::Wgsl).is_err());
    for (name, width) in [("scale", None), ("7", Some("16"))] {
        let mut source = source.clone().define(name, Some("0.5"));
        if width.is_some() {
            source = source.define("WIDTH", width).define("negate", Some("true"));
        }
        let translation = shader(&source, Language::Wgsl).unwrap_or_else(|error| panic!("{error}"));
        let width: u32 = width.map_or(4, |width| width.parse().unwrap());
        assert_eq!(translation.kernels[0].group_size, Some([u64::from(2 * width), 1, 1]));
        let (device, library) = library(&translation);
        let kernel = library.kernel("pack").unwrap();
        // 1.0 and -2.0 as halves; 0.5 and -1.0, swapped.
        let mut words = device.buffer_with_data(&[0xc000_3c00_u32; 32]).unwrap();
        let sizes = device.buffer_with_data(&[128_u32]).unwrap();
        let stream = device.stream().unwrap();
        let grid = Grid::threads(32).group(2 * width as usize);
        // SAFETY: accesses beyond the size that is given are not made.
        unsafe { kernel.launch(&stream, grid, (&mut words, &sizes)) }.unwrap().wait().unwrap();
        let expected = if width == 4 { 0x3800_bc00 + 4 } else { 0xb800_3c00 + 16 };
        assert_eq!(words.to_vec().unwrap(), [expected; 32]);
    }
}

#[test]
fn names_of_arguments_and_indices_of_threads_in_structs() {
    // A local has the name of a buffer; names end in digits; the member that is zeroed by is the second thing with its name; `float2` is a type.
    let text = "
struct Place { @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out2: array<f32>;
@group(0) @binding(2) var<uniform> float2: f32;
var<workgroup> tile: array<f32, 16>;
fn scaled(x: f32, index: u32) -> f32 { return x * f32(index); }
fn at(index: u32) -> f32 { let x = x_at(index); return x; }
fn x_at(i: u32) -> f32 { return x[i]; }
@compute @workgroup_size(16)
fn pass1(place: Place) {
    var x = at(15u - place.index);
    tile[place.index] += scaled(x, place.index);
    workgroupBarrier();
    out2[place.index] = tile[15u - place.index] + float2;
}
@compute @workgroup_size(16)
fn pass2(place: Place) {
    tile[place.index] += out2[place.index];
    workgroupBarrier();
    out2[place.index] = tile[place.index ^ 1u];
}";
    let translation = translated(text);
    assert_eq!(translation.renamed.into_iter().collect::<Vec<_>>(), [("float2".into(), "float2_".into())]);
    let sources = translation.kernels.iter().map(|kernel| {
        let arguments = kernel.arguments.iter().map(|argument| argument.source.as_str());
        (kernel.name.as_str(), arguments.collect::<Vec<_>>())
    });
    let expected = [
        ("pass1", vec!["x", "out2", "float2_", "tile", "_buffer_sizes"]),
        ("pass2", vec!["out2", "tile", "_buffer_sizes"]),
    ];
    assert_eq!(sources.collect::<Vec<_>>(), expected);
    let translation = translated(text);
    let (device, library) = library(&translation);
    let x = device.buffer_with_data(&(0..16).map(|i| i as f32 + 1.0).collect::<Vec<_>>()).unwrap();
    let mut out = device.buffer_with_data(&[0.0_f32; 16]).unwrap();
    let sizes = || elinvar::Arg::bytes([64_u32.to_le_bytes(); 2].concat());
    let stream = device.stream().unwrap();
    let grid = || Grid::threads(16).group(16);
    let memory = || Threadgroup::bytes(64);
    let (first, second) = (library.kernel("pass1").unwrap(), library.kernel("pass2").unwrap());
    // SAFETY: all accesses are to the elements of the buffers.
    unsafe { first.launch(&stream, grid(), (&x, &mut out, 0.5_f32, memory(), sizes())) }
        .unwrap()
        .wait()
        .unwrap();
    let tile = |i: usize| ((16 - i) * i) as f32;
    assert_eq!(out.to_vec().unwrap(), (0..16).map(|i| tile(15 - i) + 0.5).collect::<Vec<_>>());
    // SAFETY: likewise.
    unsafe { second.launch(&stream, grid(), (&mut out, memory(), sizes())) }.unwrap().wait().unwrap();
    assert_eq!(out.to_vec().unwrap(), (0..16).map(|i| tile(15 - (i ^ 1)) + 0.5).collect::<Vec<_>>());
}

#[test]
fn constant_indices_of_arrays_without_a_length_are_no_warning() {
    let text = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1)
fn third() { data[3] = data[1] + data[2]; }";
    let translation = translated(text);
    let (device, library) = library(&translation);
    let mut data = device.buffer_with_data(&[1_u32, 2, 3, 4]).unwrap();
    let sizes = device.buffer_with_data(&[16_u32]).unwrap();
    let stream = device.stream().unwrap();
    let kernel = library.kernel("third").unwrap();
    // SAFETY: all accesses are to the elements of the buffer.
    unsafe { kernel.launch(&stream, Grid::threads(1), (&mut data, &sizes)) }.unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [1, 2, 3, 5]);
}
