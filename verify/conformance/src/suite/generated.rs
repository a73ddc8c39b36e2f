//! Sources that programs generate: joined from strings without their includes, instantiated by name at run time, and in the form of code
//! generators (naga, SPIRV-Cross, CubeCL, TVM).

use elinvar::driver::SourceFile;
use elinvar::{Arg, Device, Grid, Source};

use super::{CaseResult, expect_all, kernel, run};

cases!("generated": joined_strings, instantiations_by_name, naga, spirv_cross, cube, tvm);

/// Strings of a program: a header without its own includes and with the lines of another system, operations, a kernel template, and a line
/// for each instantiation. None ends with a line break.
const PIECES: [(&str, &str); 3] = [
    (
        "utils.h",
        "#pragma once\r\n#include <metal_stdlib>\r\nusing namespace metal;\r\n\
         typedef half float16_t;\r\n#define JOIN(a, b) a ## b\r\n#define NAME(a, b) \\\r\n  JOIN(a, b)\r\n\
         template <typename U> struct Limits { static const constant U max; };\r\n\
         template <> const constant int Limits<int>::max = 7;\r\n\
         template <typename T, metal::enable_if_t<is_integral_v<T>, bool> = true> METAL_FUNC T half_of(T x) { return x >> 1; }\r\n\
         template <typename T, metal::enable_if_t<!is_integral_v<T>, bool> = true> METAL_FUNC T half_of(T x) { return x / 2; }",
    ),
    (
        "ops.h",
        "struct Add { template <typename T> T operator()(T a, T b) { return a + b; } };\n\
         struct Mean { template <typename T> T operator()(T a, T b) { return half_of(T(a + b)); } };",
    ),
    (
        "binary.h",
        "template <typename T, typename Op, int N = 2>\n\
         [[kernel]] void binary(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],\n\
         \x20   device T* out [[buffer(2)]], uint thread_position_in_grid [[thread_position_in_grid]]) {\n\
         \x20 for (int k = 0; k < N; ++k) {\n\
         \x20   uint at = thread_position_in_grid * N + k;\n\
         \x20   out[at] = Op()(a[at], b[at]); }\n}",
    ),
];

fn joined_strings(device: &Device) -> CaseResult {
    let instantiate = "template [[host_name(\"mean\" \"_int\")]] [[kernel]] decltype(binary<int, Mean>) binary<int, Mean>;\n\
         template [[host_name(\"binary\")]] [[kernel]] decltype(binary<float, Mean, 4>) binary<float, Mean, 4>;\n\
         #define instantiate(name, ...) template [[host_name(#name)]] kernel decltype(binary<__VA_ARGS__>) binary<__VA_ARGS__>;\n\
         instantiate(add_half, float16_t, Add, Limits<int>::max - 6)";
    let pieces = PIECES.into_iter().chain([("instantiations", instantiate)]);
    let whole: Vec<String> = pieces.clone().map(|(_, text)| text.to_owned()).collect();
    let files = pieces.map(|(name, text)| SourceFile { name: name.into(), text: text.into() }).collect();
    let (a, b) = ([7, -8, 9, 100, 1, 2, 3, 5], [1, 3, -5, 3, 0, -9, 4, 5]);
    for source in [Source { files, ..Source::default() }, Source::named("whole", whole.join("\n"))] {
        let library = device.compile(&source)?;
        let (x, y) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
        let mut out = device.buffer::<i32>(8)?;
        run(device, &library.kernel("mean_int")?, Grid::threads(4), (&x, &y, &mut out))?;
        expect_all(&out.to_vec()?, |i| (a[i] + b[i]) >> 1);
        let floats = |values: [i32; 8]| values.map(|value| value as f32);
        let (x, y) = (device.buffer_with_data(&floats(a))?, device.buffer_with_data(&floats(b))?);
        let mut out = device.buffer::<f32>(8)?;
        run(device, &library.kernel("binary")?, Grid::threads(2), (&x, &y, &mut out))?;
        expect_all(&out.to_vec()?, |i| (a[i] + b[i]) as f32 / 2.0);
        let halves = |values: [i32; 8]| values.map(|value| elinvar::f16::from_f32(value as f32));
        let (x, y) = (device.buffer_with_data(&halves(a))?, device.buffer_with_data(&halves(b))?);
        let mut out = device.buffer::<elinvar::f16>(8)?;
        run(device, &library.kernel("add_half")?, Grid::threads(8), (&x, &y, &mut out))?;
        expect_all(&out.to_vec()?, |i| elinvar::f16::from_f32((a[i] + b[i]) as f32));
    }
    Ok(())
}

/// Arguments of every kind, and every form of an instantiation.
fn instantiations_by_name(device: &Device) -> CaseResult {
    let text = "
        enum Mode { plain, strided };
        enum class Kind : uint8_t { a = 10, b };
        template <typename T> struct Box { T x; };
        inline float half_of(float x) { return x / 2; }
        template <Mode mode, Kind kind, template <typename> class B, float (*f)(float), int... I>
        kernel void modes(device float* out, uint i [[thread_position_in_grid]]) {
            B<float> b{f(i)}; float sum = 0; ((sum += I), ...); out[i] = b.x + mode + int(kind) + sum; }
        template [[host_name(\"strided_b\")]] [[kernel]] void modes<strided, Kind::b, Box, half_of>(device float*, uint);
        template [[host_name(\"plain_a\")]] kernel decltype(modes<plain, Kind::a, Box, &half_of, 100, (1 << 3), sizeof(float) * 2>)
            modes<plain, Kind::a, Box, &half_of, 100, (1 << 3), sizeof(float) * 2>;
        namespace n { namespace m {
        template <typename T> [[kernel]] void deep(device T* out, uint i [[thread_position_in_grid]]) { out[i] = T(i); }
        template [[host_name(\"within\")]] [[kernel]] void deep<half>(device half* out, uint i);
        } }
        template [[host_name(\"outside\")]] [[kernel]] decltype(n::m::deep<float>) n::m::deep<float>;
        template [[host_name(\"vector\")]] [[kernel]] void n::m::deep<metal::float4>(device metal::float4*, uint);
        template [[host_name(\"deduced\")]] [[kernel]] void n::m::deep(device uchar* out, uint i);
        typedef decltype(n::m::deep<long>) deep_long;
        template [[kernel]] [[host_name(\"other_order\")]] deep_long n::m::deep<long>;
        template [[kernel, host_name(\"one_list\")]] void n::m::deep<ushort>(device ushort*, uint);
        template <> [[kernel]] [[host_name(\"special\")]] void n::m::deep<char>(device char* out, uint i [[thread_position_in_grid]]) {
            out[i] = 99; }";
    let library = device.compile(Source::named("instantiations.metal", text))?;
    let mut out = device.buffer::<f32>(9)?;
    for (name, more) in [("strided_b", 1.0 + 11.0), ("plain_a", 10.0 + 100.0 + 8.0 + 8.0)] {
        run(device, &library.kernel(name)?, Grid::threads(9), (&mut out,))?;
        expect_all(&out.to_vec()?, |i| i as f32 / 2.0 + more);
    }
    macro_rules! expect_deep {
        ($name:literal, $of:expr) => {
            let mut out = device.buffer_with_data(&[$of(0); 9])?;
            run(device, &library.kernel($name)?, Grid::threads(9), (&mut out,))?;
            expect_all(&out.to_vec()?, |i| $of(i));
        };
    }
    expect_deep!("within", |i| elinvar::f16::from_f32(i as f32));
    expect_deep!("outside", |i| i as f32);
    expect_deep!("vector", |i| [i as f32; 4]);
    expect_deep!("deduced", |i| i as u8);
    expect_deep!("other_order", |i| i as i64);
    expect_deep!("one_list", |i| i as u16);
    expect_deep!("special", |_| 99_i8);
    Ok(())
}

/// As naga writes WGSL: wrapped arrays, sizes of runtime-sized arrays in a buffer, threadgroup memory as references, a type that converts to
/// any.
fn naga(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "main_",
        "using metal::uint;
        struct DefaultConstructible { template<typename T> operator T() && { return T {}; } };
        struct _mslBufferSizes { uint size1; };
        typedef uint type_1[1];
        struct type_3 { uint inner[4]; };
        uint collatz(uint n_base) {
            uint n = {}; uint i = 0u; n = n_base; uint2 loop_bound = uint2(4294967295u);
            while(true) {
                if (metal::all(loop_bound == uint2(0u))) { break; }
                loop_bound -= uint2(loop_bound.y == 0u, 1u);
                uint _e4 = n;
                if (_e4 > 1u) { } else { break; }
                { uint _e7 = n; if ((_e7 % 2u) == 0u) { n = _e7 / 2u; } else { n = (3u * _e7) + 1u; }
                  uint _e20 = i; i = _e20 + 1u; } }
            uint _e24 = i; return _e24; }
        kernel void main_(metal::uint3 global_id [[thread_position_in_grid]]
        , metal::uint3 __local_invocation_id [[thread_position_in_threadgroup]]
        , device type_1& v_indices [[buffer(0)]]
        , constant _mslBufferSizes& _buffer_sizes [[buffer(1)]]
        ) {
            threadgroup type_3 wg;
            if (metal::all(__local_invocation_id == metal::uint3(0u))) { wg = {}; }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e8 = uint(global_id.x) < 1 + (_buffer_sizes.size1 - 0 - 4) / 4 ? v_indices[global_id.x] : DefaultConstructible();
            uint _e9 = collatz(_e8) + wg.inner[global_id.x % 4u];
            if (uint(global_id.x) < 1 + (_buffer_sizes.size1 - 0 - 4) / 4) { v_indices[global_id.x] = _e9; }
            return; }",
    )?;
    let mut indices = device.buffer_with_data(&(0..70).collect::<Vec<u32>>())?;
    run(device, &kernel, Grid::threads(128).group(64), (&mut indices, 4 * 66_u32))?;
    let steps = |mut n: u32| {
        let mut count = 0;
        while n > 1 {
            n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
            count += 1;
        }
        count
    };
    expect_all(&indices.to_vec()?, |i| if i < 66 { steps(i as u32) } else { i as u32 });
    Ok(())
}

/// As SPIRV-Cross writes SPIR-V: an array type with an operator for each address space, a specialization constant with a default.
fn spirv_cross(device: &Device) -> CaseResult {
    let text = "#pragma clang diagnostic ignored \"-Wmissing-prototypes\"
        #include <metal_stdlib>
        #include <simd/simd.h>
        using namespace metal;
        template<typename T, size_t Num>
        struct spvUnsafeArray {
            T elements[Num ? Num : 1];
            thread T& operator [] (size_t pos) thread { return elements[pos]; }
            constexpr const thread T& operator [] (size_t pos) const thread { return elements[pos]; }
            device T& operator [] (size_t pos) device { return elements[pos]; }
            constexpr const device T& operator [] (size_t pos) const device { return elements[pos]; }
            constexpr const constant T& operator [] (size_t pos) const constant { return elements[pos]; }
            threadgroup T& operator [] (size_t pos) threadgroup { return elements[pos]; }
            constexpr const threadgroup T& operator [] (size_t pos) const threadgroup { return elements[pos]; }
        };
        struct SSBO { float data[1]; };
        struct Push { int4 a; float2x2 m; spvUnsafeArray<float4, 2> v; };
        constant uint SIZE_tmp [[function_constant(0)]];
        constant uint SIZE = is_function_constant_defined(SIZE_tmp) ? SIZE_tmp : 5u;
        constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(32u, 1u, 1u);
        constant spvUnsafeArray<float, 3> _27 = spvUnsafeArray<float, 3>({ 1.0, 2.0, 3.0 });
        static inline __attribute__((always_inline))
        float helper(thread const int& i, device SSBO& _18, constant Push& p, thread uint3& gl_GlobalInvocationID) {
            spvUnsafeArray<float, 3> local = _27;
            return ((_18.data[i] + local[i % 3]) + p.v[1].x) + (p.m[1][0] + float(gl_GlobalInvocationID.x)); }
        kernel void main0(device SSBO& _18 [[buffer(0)]], constant Push& p [[buffer(1)]],
            uint3 gl_GlobalInvocationID [[thread_position_in_grid]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]]) {
            threadgroup spvUnsafeArray<float, 32> sh;
            int param = int(gl_GlobalInvocationID.x);
            sh[gl_LocalInvocationIndex] = helper(param, _18, p, gl_GlobalInvocationID);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            _18.data[gl_GlobalInvocationID.x] = (sh[gl_LocalInvocationIndex ^ 1u] * float(SIZE)) + float(gl_WorkGroupSize.x); }";
    let library = device.compile(Source::named("main0.metal", text))?;
    let values = |i: usize| i as f32 * 0.5;
    // int4, two columns of float2, two of float4.
    let push: Vec<f32> = (0..16).map(|k| k as f32).collect();
    for size in [None, Some(3_u32)] {
        let constants = elinvar::Constants::new();
        let constants = size.map_or(constants.clone(), |size| constants.set(0, size));
        let mut data = device.buffer_with_data(&(0..96).map(values).collect::<Vec<f32>>())?;
        run(
            device,
            &library.kernel_with("main0", &constants)?,
            Grid::threads(96).group(32),
            (&mut data, Arg::bytes(bytemuck::cast_slice(&push))),
        )?;
        let helper = |i: usize| values(i) + [1.0, 2.0, 3.0][i % 3] + 12.0 + (6.0 + i as f32);
        let size = size.unwrap_or(5) as f32;
        expect_all(&data.to_vec()?, |i| helper(i ^ 1) * size + 32.0);
    }
    Ok(())
}

/// As CubeCL writes its kernels: threadgroup memory as bytes, vectors by `reinterpret_cast`, metadata in structs.
fn cube(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "cube_kernel",
        "struct metadata_0 { uint static_meta[4]; uint ext[1]; };
        [[kernel]] void cube_kernel(constant float* buffer_0 [[buffer(0)]], device float* buffer_1 [[buffer(1)]],
            constant metadata_0& info_0 [[buffer(2)]], constant uint* scalars_u32 [[buffer(3)]],
            uint3 thread_pos_in_grid [[thread_position_in_grid]], uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],
            uint3 total_threads_in_grid [[threads_per_grid]]) {
            thread float l_0[4] = {}; float4 l_1 = reinterpret_cast<constant float4*>(buffer_0)[thread_pos_in_grid.x];
            threadgroup alignas(16) uint8_t dynamic_shared_mem[128];
            threadgroup float* s_0 = reinterpret_cast<threadgroup float*>(&dynamic_shared_mem[0]);
            s_0[thread_index_in_simdgroup] = l_1.x + l_1.w;
            simdgroup_barrier(mem_flags::mem_threadgroup);
            const uint l_2 = info_0.static_meta[1u];
            for (uint l_3 = 0u; l_3 < min(l_2, scalars_u32[0]); l_3 += 1u) { l_0[l_3 & 3u] += simd_shuffle_xor(s_0[l_3], 1); }
            switch (int(l_2)) {
                case 0: { buffer_1[thread_pos_in_grid.x] = l_0[0]; break; }
                default: { buffer_1[thread_pos_in_grid.x] = l_0[1] + float(total_threads_in_grid.x); } } }",
    )?;
    let input = device.buffer_with_data(&(0..256).map(|k| k as f32).collect::<Vec<f32>>())?;
    let scalars = device.buffer_with_data(&[10_u32])?;
    let mut out = device.buffer::<f32>(64)?;
    for (meta, count) in [(0, 0), (20, 10), (6, 6)] {
        let info = [0_u32, meta, 0, 0, 0];
        run(
            device,
            &kernel,
            Grid::threads(64).group(32),
            (&input, &mut out, Arg::bytes(bytemuck::cast_slice(&info)), &scalars),
        )?;
        let shared = |group: usize, k: usize| (8 * (32 * group + k) + 3) as f32;
        let sum = |group: usize| (0..count).filter(|k| k % 4 == 1).map(|k| shared(group, k)).sum::<f32>();
        expect_all(&out.to_vec()?, |i| if meta == 0 { 0.0 } else { sum(i / 32) + 64.0 });
    }
    Ok(())
}

/// As TVM and Halide write their kernels: macros for library functions, constants of bits, a union of arguments.
fn tvm(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "default_function_kernel",
        "namespace {
        constexpr float float_from_bits(unsigned int x) { return as_type<float>(x); }
        constexpr float neg_inf_f32() { return float_from_bits(0xff800000); }
        constexpr half half_from_bits(unsigned short x) { return as_type<half>(x); }
        #define is_inf_f32(x) isinf(x)
        #define halide_unused(x) (void)(x)
        template<typename X, typename A> inline X align_up(X x, A a) { return ((x + a - 1) / a) * a; }
        }
        union __TVMArgUnion { int v_int[2]; };
        struct args_t { int n; int m; };
        kernel void default_function_kernel(device float* A [[ buffer(0) ]], device const half* B [[ buffer(1) ]],
            constant args_t& arg [[ buffer(2) ]], constant __TVMArgUnion& n [[buffer(3)]],
            uint3 blockIdx [[threadgroup_position_in_grid]], uint3 threadIdx [[thread_position_in_threadgroup]]) {
            thread float T[4]; threadgroup half shared[16];
            for (int ax_0 = 0; ax_0 < 4; ++ax_0) { T[ax_0] = A[((((int)blockIdx.x) * 16) + ((int)threadIdx.x))] + (float)(ax_0 * n.v_int[0]); }
            shared[((int)threadIdx.x)] = B[((int)threadIdx.x)];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            halide_unused(arg);
            A[((((int)blockIdx.x) * 16) + ((int)threadIdx.x))] = is_inf_f32(T[0]) ? (float)half_from_bits(0x4200)
                : max(neg_inf_f32(), T[3] + shared[(15 - ((int)threadIdx.x))]) + (float)align_up(arg.m, 4); }",
    )?;
    let values = |i: usize| if i == 20 { f32::INFINITY } else { i as f32 };
    let mut a = device.buffer_with_data(&(0..48).map(values).collect::<Vec<f32>>())?;
    let b = device
        .buffer_with_data(&(0..16).map(|k| elinvar::f16::from_f32(k as f32 * 0.25)).collect::<Vec<_>>())?;
    let (args, union) = ([1_i32, 13], [100_i32, 0]);
    let bytes = |words: &[i32; 2]| Arg::bytes(bytemuck::cast_slice(words));
    run(device, &kernel, Grid::threads(48).group(16), (&mut a, &b, bytes(&args), bytes(&union)))?;
    expect_all(&a.to_vec()?, |i| match i {
        20 => 3.0,
        _ => i as f32 + 300.0 + (15 - i % 16) as f32 * 0.25 + 16.0,
    });
    Ok(())
}
