//! Log lines of kernels: formats, levels, threads and control flow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use elinvar::{
    Device, DeviceKind, Error, Grid, Kernel, KernelOptions, Library, LogLevel, LogLine, Source, Tier,
};

use super::{CaseResult, expect_all, run};

cases!("logging": integers, floating_point, vectors, other_values, levels, long_records, control_flow, callees, templates,
    barriers, simdgroups, three_dimensions, tiers, bounds_checks, formats_that_do_not_fit, kernels_without_log_calls);

/// Held by a case that expects lines: a device has one log, which another case may fill.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// Compiles a source, for a device whose kernels can log: the compiler of another may reject log calls, and Metal rejects `printf`.
pub(super) fn compile(device: &Device, file: &str, text: impl Into<String>) -> elinvar::Result<Library> {
    drop(device.on_log(|_| {})?);
    let text = text.into();
    if device.kind() == DeviceKind::Metal && text.contains("printf") {
        expect_no_printf(device)?;
    }
    device.compile(Source::named(file, text))
}

/// Fails with the reason for a device whose compiler rejects `printf`, which it has to.
fn expect_no_printf(device: &Device) -> elinvar::Result<()> {
    let text = "kernel void k(device int* x) { printf(\"%d\", x[0]); }";
    match device.compile(Source::named("printf.metal", text)) {
        Err(Error::Compile(_)) => Err(Error::Unsupported("Metal has no printf".to_owned())),
        Err(error) => Err(error),
        Ok(_) => panic!("Metal compiles printf"),
    }
}

pub(super) fn kernel(device: &Device, name: &str, body: &str) -> elinvar::Result<Kernel> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    compile(device, &format!("{name}.metal"), text)?.kernel(name)
}

/// Lines of kernels whose names begin with a prefix, while `f` runs.
pub(super) fn lines(
    device: &Device,
    prefix: &'static str,
    f: impl FnOnce() -> elinvar::Result<()>,
) -> elinvar::Result<Vec<LogLine>> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let to = seen.clone();
    let subscription = device.on_log(move |line| {
        // Metal reports no kernel.
        if line.kernel.is_empty() || line.kernel.starts_with(prefix) {
            to.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        }
    })?;
    f()?;
    drop(subscription);
    let lines = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(lines)
}

fn messages(lines: &[LogLine]) -> Vec<&str> {
    lines.iter().map(|line| line.message.as_str()).collect()
}

/// The messages of each thread, in their order.
pub(super) fn by_thread(lines: &[LogLine]) -> HashMap<[u32; 3], Vec<&str>> {
    let mut threads: HashMap<[u32; 3], Vec<&str>> = HashMap::new();
    for line in lines {
        threads.entry(line.thread.expect("a thread")).or_default().push(&line.message);
    }
    threads
}

/// Runs the statements in one thread, with `n` a buffer of 1, 2, 3, …, and compares the lines.
fn expect_lines(device: &Device, name: &'static str, statements: &str, expected: &[&str]) -> CaseResult {
    let body = format!("kernel void {name}(device const int* n) {{\n{statements}\n}}");
    let kernel = kernel(device, name, &body)?;
    let numbers = device.buffer_with_data(&(1..=16).collect::<Vec<i32>>())?;
    let lines = lines(device, name, || run(device, &kernel, Grid::threads(1), (&numbers,)))?;
    assert_eq!(messages(&lines), expected);
    let right = |line: &LogLine| *line.kernel == *name && line.thread == Some([0, 0, 0]);
    assert!(lines.iter().all(right), "{lines:?}");
    Ok(())
}

fn integers(device: &Device) -> CaseResult {
    expect_lines(
        device,
        "log_integers",
        r#"printf("%d|%5d|%-5d|%05d|%+d|% d|%.3d", n[2], n[2], n[2], -n[2], n[2], n[2], n[2]);
        printf("%i %u %x %X %o %#x %#o", -n[0], uint(-n[0]), n[15] * 11, n[15] * 11, n[7], n[9], n[7]);
        printf("%hhd %hd %hhu", char(n[0] - 2), short(-n[4]), uchar(n[0] + 254));
        printf("%hhx %hx", n[0] + 0x1234, n[0] + 0x54321);
        printf("%ld %lu %llx", long(n[0]) << 40, ~ulong(n[1] - 2), ulong(n[0]) << 63);
        printf("%c%c %d", 'a', char('a' + n[0]), bool(n[3]));
        printf("%*d|%-*d|%.*d", n[5], n[0], n[5], n[0], n[2], n[0]);
        printf("100%%");"#,
        &[
            "3|    3|3    |-0003|+3| 3|003",
            "-1 4294967295 b0 B0 10 0xa 010",
            "-1 -5 255",
            "35 4322",
            "1099511627776 18446744073709551615 8000000000000000",
            "ab 1",
            "     1|1     |001",
            "100%",
        ],
    )
}

fn floating_point(device: &Device) -> CaseResult {
    expect_lines(
        device,
        "log_floats",
        r#"float x = float(n[0]) / 8.0f;
        printf("%f %e %g %a", x, x, x, x);
        printf("%.2f %.0e %#.0f %10.3f|%-10.1f|%010.2f|%+f", x, x, x, -x, x, -x, x);
        printf("%g %g %g %G", x * 1e10f, x * 1e-6f, 100000.0f * float(n[0]), x * 1e-20f);
        printf("%f %f %e %F", float(n[0]) / 0.0f, -float(n[0]) / 0.0f, as_type<float>(0x7fc00000 + n[0] - 1), INFINITY);
        printf("%.3f %.3f", half(x), bfloat(x));
        printf("%lf %.10g", x, float(n[0]) / 10.0f);"#,
        &[
            "0.125000 1.250000e-01 0.125 0x1p-3",
            "0.12 1e-01 0.     -0.125|0.1       |-000000.12|+0.125000",
            "1.25e+09 1.25e-07 100000 1.25E-21",
            "inf -inf nan INF",
            "0.125 0.125",
            "0.125000 0.1000000015",
        ],
    )
}

fn vectors(device: &Device) -> CaseResult {
    expect_lines(
        device,
        "log_vectors",
        r#"float4 v = float4(n[0], n[1], n[2], n[3]) / 2.0f;
        printf("%v4f", v);
        printf("%.1v4f|%6.2v2f|%v3g", v, v.xy, v.xyz);
        printf("%v2d %v3u %v4x %v2i", int2(-n[0], n[1]), uint3(n[0], n[1], n[2]), uint4(n[9]), short2(-n[0], n[6]));
        printf("%v4hld %hlv4d %v4hlf", int4(n[0], n[1], n[2], n[3]), int4(n[1]), v);
        printf("%v4hhd %v2hu %v4hf %v2hx", char4(-n[0], 1, 2, 3), ushort2(n[5]), half4(v), ushort2(n[9], 255));
        printf("%v2ld %v2lu %v4d", long2(-n[0], n[1]), ulong2(n[3]), bool4(n[0] > 0, false, true, n[0] > 1));
        printf("%v2f %v3f", half2(v.xy), bfloat3(v.xyz));
        printf("%03v2d|%-4v2d|", int2(n[0], -n[1]), int2(n[0], n[1]));
        printf("%v4f %v3d", packed_float4(v), packed_int3(n[0], n[1], n[2]));"#,
        &[
            "0.500000,1.000000,1.500000,2.000000",
            "0.5,1.0,1.5,2.0|  0.50,  1.00|0.5,1,1.5",
            "-1,2 1,2,3 a,a,a,a -1,7",
            "1,2,3,4 2,2,2,2 0.500000,1.000000,1.500000,2.000000",
            "-1,1,2,3 6,6 0.500000,1.000000,1.500000,2.000000 a,ff",
            "-1,2 4,4 1,0,1,0",
            "0.500000,1.000000 0.500000,1.000000,1.500000",
            "001,-02|1   ,2   |",
            "0.500000,1.000000,1.500000,2.000000 1,2,3",
        ],
    )
}

fn other_values(device: &Device) -> CaseResult {
    expect_lines(
        device,
        "log_others",
        r#"enum Kind { a = 7 };
        enum class Small : uchar { b = 9 };
        printf("%d %d %s|%5s|%-5s|%.2s", Kind::a, Small::b, "text", "ab", "ab", "abcd");
        printf("%p %p", (device int*)0, nullptr);
        printf("%d%%%s\t\"%c\"", n[0], "é", 'x');
        printf("");
        printf("a line\n");"#,
        &["7 9 text|   ab|ab   |ab", "(nil) (nil)", "1%é\t\"x\"", "", "a line\n"],
    )
}

fn levels(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
constant os_log custom(\"com.example.app\", \"physics\");
kernel void log_levels(device const int* n) {
    custom.log_debug(\"a %d\", n[0]);
    custom.log_info(\"b %d\", n[0]);
    custom.log(\"c %d\", n[0]);
    custom.log_error(\"d %d\", n[0]);
    custom.log_fault(\"e %d\", n[0]);
    os_log_default.log_error(\"f\");
    constexpr os_log local(\"s\", \"t\");
    local.log_info(\"g\");
    printf(\"h\");
}";
    let kernel = compile(device, "levels.metal", text)?.kernel("log_levels")?;
    let numbers = device.buffer_with_data(&[5_i32])?;
    let lines = lines(device, "log_levels", || run(device, &kernel, Grid::threads(1), (&numbers,)))?;
    let (app, all) = (("com.example.app", "physics"), LogLevel::ALL);
    let expected = [
        (all[0], app, "a 5", 6),
        (all[1], app, "b 5", 7),
        (all[2], app, "c 5", 8),
        (all[3], app, "d 5", 9),
        (all[4], app, "e 5", 10),
        (LogLevel::Error, ("", ""), "f", 11),
        (LogLevel::Info, ("s", "t"), "g", 13),
        (LogLevel::Notice, ("", ""), "h", 14),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (level, (subsystem, category), message, at)) in lines.iter().zip(expected) {
        assert_eq!((line.level, &*line.subsystem, &*line.category), (level, subsystem, category));
        assert_eq!(line.message, message);
        let (file, number) = line.location.clone().expect("a location");
        assert_eq!((&*file, number), ("levels.metal", at));
    }
    assert_eq!(lines[0].to_string(), "log_levels [0, 0, 0] debug com.example.app:physics: a 5");
    Ok(())
}

/// Records of one to ten slots, which wrap around at the end of the ring.
fn long_records(device: &Device) -> CaseResult {
    let vector = |count: usize| vec!["%v4d"; count].join(" ");
    let calls: String = (0..=16)
        .map(|count| {
            let values: String = (0..count).map(|k| format!(", int4(i, {k}, n[{k}], -1)")).collect();
            format!("        printf(\"{}\"{values});\n", vector(count))
        })
        .collect();
    let body = format!(
        "kernel void log_long(device const int* n, uint i [[thread_position_in_grid]]) {{\n{calls}    }}"
    );
    let kernel = kernel(device, "log_long", &body)?;
    let numbers = device.buffer_with_data(&(1..=16).collect::<Vec<i32>>())?;
    for _ in 0..20 {
        let lines = lines(device, "log_long", || run(device, &kernel, Grid::threads(50), (&numbers,)))?;
        let threads = by_thread(&lines);
        assert_eq!(threads.len(), 50);
        for ([x, _, _], messages) in threads {
            let expected: Vec<String> = (0..=16)
                .map(|count| {
                    let vectors: Vec<String> = (0..count).map(|k| format!("{x},{k},{},-1", k + 1)).collect();
                    vectors.join(" ")
                })
                .collect();
            assert_eq!(messages, expected, "thread {x}");
        }
    }
    Ok(())
}

const FLOW: &str =
    "kernel void log_flow(device const uint* n, device uint* out, uint i [[thread_position_in_grid]]) {
        if (i % 3 == 0) {
            printf(\"third %u\", i);
            if (i % 2 == 0) return;
        } else if (n[i] % 5 == 1) {
            printf(\"fifth %u\", i);
        } else {
            printf(\"other %u\", i);
        }
        for (uint k = 0; k < i % 7; ++k) {
            if ((k ^ n[i]) % 2 == 0) continue;
            printf(\"k %u\", k);
            if (k == 5) break;
        }
        uint c = 0;
        while (true) {
            if (c * c >= n[i] % 20) break;
            ++c;
        }
        printf(\"end %u\", c);
        out[i] = c + 1;
    }";

fn flow(i: u32, n: u32) -> (Vec<String>, u32) {
    let mut lines = Vec::new();
    if i.is_multiple_of(3) {
        lines.push(format!("third {i}"));
        if i.is_multiple_of(2) {
            return (lines, 0);
        }
    } else if n % 5 == 1 {
        lines.push(format!("fifth {i}"));
    } else {
        lines.push(format!("other {i}"));
    }
    for k in (0..i % 7).filter(|k| !(k ^ n).is_multiple_of(2)) {
        lines.push(format!("k {k}"));
    }
    let c = (0..).find(|c| c * c >= n % 20).unwrap_or(0);
    lines.push(format!("end {c}"));
    (lines, c + 1)
}

fn expect_flow(lines: &[LogLine], numbers: &[u32], out: &[u32]) {
    let threads = by_thread(lines);
    assert_eq!(threads.len(), numbers.len());
    for (i, n) in numbers.iter().enumerate() {
        let (expected, result) = flow(i as u32, *n);
        assert_eq!(threads[&[i as u32, 0, 0]], expected, "thread {i}");
        assert_eq!(out[i], result, "element {i}");
    }
}

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect()
}

/// Only active threads log, each in its order.
fn control_flow(device: &Device) -> CaseResult {
    let kernel = kernel(device, "log_flow", FLOW)?;
    let numbers = numbers(777);
    let n = device.buffer_with_data(&numbers)?;
    for group in [1, 7, 32, 96, 256] {
        let mut out = device.buffer::<u32>(numbers.len())?;
        let grid = Grid::threads(numbers.len()).group(group);
        let lines = lines(device, "log_flow", || run(device, &kernel, grid, (&n, &mut out)))?;
        expect_flow(&lines, &numbers, &out.to_vec()?);
    }
    Ok(())
}

fn callees(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_callees",
        "struct Speaker {
            uint value;
            void say(uint at) const thread { printf(\"member %u at %u\", value, at); }
        };
        __attribute__((noinline)) void far(uint i, device uint* out) {
            if (i % 2 == 0) printf(\"far %u\", i);
            out[i] += 1;
        }
        uint count(uint n) {
            if (n == 0) return 0;
            printf(\"count %u\", n);
            return count(n - 1) + 1;
        }
        kernel void log_callees(device uint* out, uint i [[thread_position_in_grid]]) {
            far(i, out);
            if (i % 3 == 0) far(i, out);
            Speaker{i * 2}.say(i);
            out[i] += 10 * count(3);
        }",
    )?;
    let mut out = device.buffer::<u32>(100)?;
    let lines = lines(device, "log_callees", || run(device, &kernel, Grid::threads(100), (&mut out,)))?;
    expect_all(&out.to_vec()?, |i| if i % 3 == 0 { 32 } else { 31 });
    let threads = by_thread(&lines);
    for i in 0..100_u32 {
        let far = if i % 2 == 0 { 1 + usize::from(i % 3 == 0) } else { 0 };
        let mut expected = vec![format!("far {i}"); far];
        expected.push(format!("member {} at {i}", i * 2));
        expected.extend([3, 2, 1].map(|n| format!("count {n}")));
        assert_eq!(threads[&[i, 0, 0]], expected, "thread {i}");
    }
    Ok(())
}

fn templates(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        template <typename T, uint N> void show(T v) {
            if constexpr (N == 1) printf(\"one %g\", float(v));
            else printf(\"%u times %g\", N, float(v));
        }
        template <typename T, uint N> kernel void log_each(device const T* v, uint i [[thread_position_in_grid]]) {
            show<T, N>(v[i]);
        }
        template [[host_name(\"log_each_float\")]] kernel void log_each<float, 1>(device const float*, uint);
        template [[host_name(\"log_each_int\")]] kernel void log_each<int, 4>(device const int*, uint);";
    let library = compile(device, "templates.metal", text)?;
    let floats = device.buffer_with_data(&[0.5_f32, 1.5])?;
    let ints = device.buffer_with_data(&[3_i32, -4])?;
    let lines = lines(device, "log_each", || {
        run(device, &library.kernel("log_each_float")?, Grid::threads(2), (&floats,))?;
        run(device, &library.kernel("log_each_int")?, Grid::threads(2), (&ints,))
    })?;
    let got: Vec<(&str, [u32; 3], &str)> = lines
        .iter()
        .map(|line| (&*line.kernel, line.thread.expect("a thread"), line.message.as_str()))
        .collect();
    let mut sorted = got.clone();
    sorted.sort_unstable();
    let expected = [
        ("log_each_float", [0, 0, 0], "one 0.5"),
        ("log_each_float", [1, 0, 0], "one 1.5"),
        ("log_each_int", [0, 0, 0], "4 times 3"),
        ("log_each_int", [1, 0, 0], "4 times -4"),
    ];
    assert_eq!(sorted, expected);
    // The first launch has ended before the second began.
    assert!(got[..2].iter().all(|(kernel, ..)| *kernel == "log_each_float"), "{got:?}");
    Ok(())
}

fn barriers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_barriers",
        "kernel void log_barriers(device uint* out, uint i [[thread_position_in_grid]],
                uint t [[thread_position_in_threadgroup]], uint size [[threads_per_threadgroup]]) {
            threadgroup uint shared[128];
            for (uint round = 0; round < 3; ++round) {
                printf(\"store %u\", round);
                shared[t] = i * 10 + round;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                uint other = shared[(t + 1) % size];
                printf(\"load %u\", other);
                threadgroup_barrier(mem_flags::mem_threadgroup);
                out[i] += other;
            }
        }",
    )?;
    let (threads, group) = (600_u32, 96_u32);
    let mut out = device.buffer::<u32>(threads as usize)?;
    let grid = Grid::threads(threads as usize).group(group as usize);
    let lines = lines(device, "log_barriers", || run(device, &kernel, grid, (&mut out,)))?;
    let neighbor = |i: u32| {
        let first = i / group * group;
        let size = group.min(threads - first);
        first + (i - first + 1) % size
    };
    expect_all(&out.to_vec()?, |i| neighbor(i as u32) * 30 + 3);
    let all = by_thread(&lines);
    for i in 0..threads {
        let round = |k: u32| [format!("store {k}"), format!("load {}", neighbor(i) * 10 + k)];
        assert_eq!(all[&[i, 0, 0]], (0..3).flat_map(round).collect::<Vec<_>>(), "thread {i}");
    }
    // No thread of a group loads before all have stored.
    for group in 0..threads.div_ceil(group) {
        let of_group: Vec<&str> = lines
            .iter()
            .filter(|line| line.thread.is_some_and(|[x, ..]| x / 96 == group))
            .map(|line| line.message.as_str())
            .collect();
        let last_store = of_group.iter().rposition(|message| *message == "store 0");
        let first_load = of_group.iter().position(|message| message.starts_with("load"));
        assert!(last_store < first_load, "group {group}");
    }
    Ok(())
}

fn simdgroups(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_simdgroups",
        "kernel void log_simdgroups(device uint* out, uint i [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]]) {
            uint sum = simd_sum(i);
            if (lane == 0) printf(\"sum %u\", sum);
            if (lane % 4 == 1) {
                uint part = simd_sum(1u);
                printf(\"%u of them, first %d\", part, simd_is_first());
            }
            out[i] = simd_shuffle_xor(i, ushort(1));
        }",
    )?;
    let mut out = device.buffer::<u32>(128)?;
    let grid = Grid::threads(128).group(64);
    let lines = lines(device, "log_simdgroups", || run(device, &kernel, grid, (&mut out,)))?;
    expect_all(&out.to_vec()?, |i| i as u32 ^ 1);
    let threads = by_thread(&lines);
    for i in 0..128_u32 {
        let (lane, first) = (i % 32, i / 32 * 32);
        let expected = match lane {
            0 => vec![format!("sum {}", (first..first + 32).sum::<u32>())],
            lane if lane % 4 == 1 => vec![format!("8 of them, first {}", u32::from(lane == 1))],
            _ => Vec::new(),
        };
        assert_eq!(threads.get(&[i, 0, 0]).cloned().unwrap_or_default(), expected, "thread {i}");
    }
    Ok(())
}

fn three_dimensions(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_dimensions",
        "kernel void log_dimensions(device uint* out, uint3 p [[thread_position_in_grid]]) {
            printf(\"%v3u\", p);
            out[0] = 1;
        }",
    )?;
    let mut out = device.buffer::<u32>(1)?;
    let grid = Grid::threads([11, 5, 3]).group([4, 2, 2]);
    let lines = lines(device, "log_dimensions", || run(device, &kernel, grid, (&mut out,)))?;
    assert_eq!(lines.len(), 11 * 5 * 3);
    for ([x, y, z], messages) in by_thread(&lines) {
        assert_eq!(messages, [format!("{x},{y},{z}")]);
        assert!(x < 11 && y < 5 && z < 3);
    }
    Ok(())
}

fn tiers(device: &Device) -> CaseResult {
    let text =
        format!("#include <metal_stdlib>\nusing namespace metal;\n{}", FLOW.replace("log_flow", "log_tiers"));
    let library = compile(device, "log_tiers.metal", text)?;
    let numbers = numbers(300);
    let n = device.buffer_with_data(&numbers)?;
    for tier in [Tier::Quick, Tier::Optimized, Tier::Adaptive] {
        let kernel = library.kernel_with("log_tiers", KernelOptions::new().tier(tier))?;
        let mut out = device.buffer::<u32>(numbers.len())?;
        let grid = Grid::threads(numbers.len()).group(64);
        let lines = lines(device, "log_tiers", || run(device, &kernel, grid, (&n, &mut out)))?;
        expect_flow(&lines, &numbers, &out.to_vec()?);
    }
    Ok(())
}

fn bounds_checks(device: &Device) -> CaseResult {
    let text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\n{}",
        FLOW.replace("log_flow", "log_checks")
    );
    let library = compile(device, "log_checks.metal", text)?;
    let kernel = library.checked_kernel("log_checks")?;
    let numbers = numbers(300);
    let n = device.buffer_with_data(&numbers)?;
    let mut out = device.buffer::<u32>(numbers.len())?;
    let grid = Grid::threads(numbers.len()).group(64);
    let stream = device.stream()?;
    let lines =
        lines(device, "log_checks", || kernel.launch(&stream, grid, (&n, &mut out))?.wait().map(drop))?;
    expect_flow(&lines, &numbers, &out.to_vec()?);
    Ok(())
}

/// Each is a compile error with line and column.
fn formats_that_do_not_fit(device: &Device) -> CaseResult {
    for (call, column, part) in [
        ("printf(\"%d\", 1.0f);", 5 + 7, "`%d` formats integers of up to 32 bits"),
        ("printf(\"%f\", i);", 5 + 7, "argument 1 is of type `uint`"),
        ("printf(\"%d %d\", i);", 5 + 7, "`%d` has no argument"),
        ("printf(\"%d\", i, i);", 5 + 7, "uses 1 of 2 arguments"),
        ("printf(\"%v4f\", float3(0));", 5 + 7, "vectors of 4 floating-point numbers"),
        ("printf(\"%f\", float2(0));", 5 + 7, "argument 1 is of type `float2`"),
        ("printf(\"%ld\", i);", 5 + 7, "64-bit integers"),
        ("printf(\"%d\", ulong(i));", 5 + 7, "argument 1 is of type `ulong`"),
        ("printf(\"%s\", i);", 5 + 7, "a string literal"),
        ("printf(\"%n\", &i);", 5 + 7, "`%n` is not supported"),
        ("printf(\"%y\", i);", 5 + 7, "`%y` is no conversion"),
        ("printf(\"%\");", 5 + 7, "ends within"),
        ("printf(\"%v5d\", i);", 5 + 7, "2, 3, 4, 8 or 16"),
        ("metal::os_log_default.log_error(\"%p %d\", i, i);", 5 + 32, "a pointer"),
    ] {
        let text = format!(
            "#include <metal_stdlib>\nkernel void log_wrong(device uint* out, uint i [[thread_position_in_grid]]) {{\n    \
             out[i] = i;\n    {call}\n}}\n"
        );
        let library = compile(device, "wrong.metal", text)?;
        match library.kernel("log_wrong") {
            Err(Error::Compile(diagnostics)) => {
                let found = &diagnostics[0];
                assert_eq!((&*found.file, found.line, found.column), ("wrong.metal", 4, column), "{call}");
                assert!(found.message.contains(part), "{call}: {}", found.message);
                assert_eq!(found.source_line.as_deref(), Some(format!("    {call}").as_str()));
            }
            Err(other) => return Err(other.into()),
            Ok(_) => panic!("{call} compiled"),
        }
    }
    let text = "#include <metal_stdlib>
kernel void log_variable(device char* text, device uint* out, uint i [[thread_position_in_grid]]) {
    printf(text, i);
}";
    match compile(device, "variable.metal", text)?.kernel("log_variable") {
        Err(Error::Compile(diagnostics)) => {
            assert_eq!(diagnostics[0].line, 3);
            assert!(diagnostics[0].message.contains("format is not a string literal"), "{}", diagnostics[0]);
        }
        Err(other) => return Err(other.into()),
        Ok(_) => panic!("a format that is a buffer compiled"),
    }
    Ok(())
}

/// They have no lines, and their results are as ever.
fn kernels_without_log_calls(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_nothing",
        "constant bool LOUD = false;
        kernel void log_nothing(device uint* out, uint i [[thread_position_in_grid]]) {
            if (LOUD) printf(\"never %u\", i);
            out[i] = i;
        }",
    )?;
    assert!(kernel.signature().logs.is_empty());
    let mut out = device.buffer::<u32>(8)?;
    let lines = lines(device, "log_nothing", || run(device, &kernel, Grid::threads(8), (&mut out,)))?;
    expect_all(&out.to_vec()?, |i| i as u32);
    assert_eq!(lines, []);
    Ok(())
}
