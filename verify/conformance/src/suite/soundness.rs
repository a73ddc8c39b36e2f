//! A launch of a checked kernel cannot violate the program's memory safety: each case is an attack in safe Rust.
//!
//! A device may reject a kernel (`Unsupported`, `Compile`) or end its launch with a fault. It must not access memory outside the
//! arguments, or end the process.
#![forbid(unsafe_code)]

use elinvar::{CheckedKernel, Device, Error, Grid, Library, Source};

use super::{CaseResult, expect_all};

cases!("soundness": pointers_without_memory, pointers_of_one_or_none, writes_to_constants, misaligned_accesses,
    lengths_of_copies, const_that_is_cast_away, memory_of_others, bytes_as_bools, undefined_behavior_takes_no_check_out, calls_out_of_the_kernel, names_of_the_processor);

/// Content of the host memory whose address a kernel receives.
const SECRET: u32 = 0x5ec2e7;

fn library(device: &Device, name: &str, body: &str) -> elinvar::Result<Library> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    device.compile(Source::named(format!("{name}.metal"), text))
}

/// How an attack ended.
#[derive(Debug)]
enum End {
    /// The kernel was refused.
    Refused(String),
    /// Its launch ended in a fault.
    Fault(String),
    /// It ran, and wrote these words.
    Ran(Vec<u32>),
}

impl End {
    fn of(error: Error) -> Result<Self, Box<dyn std::error::Error>> {
        match error {
            Error::Unsupported(message) => Ok(Self::Refused(message)),
            Error::Fault(fault) => Ok(Self::Fault(fault.to_string())),
            error @ Error::Compile(_) => Ok(Self::Refused(error.to_string())),
            other => Err(other.into()),
        }
    }
}

/// Launches a kernel with a buffer of 64 words and the address of host memory that it must not access, with `threads` threads in
/// threadgroups of 32.
fn attack(
    device: &Device,
    library: &Library,
    name: &str,
    threads: usize,
) -> Result<End, Box<dyn std::error::Error>> {
    let mut victim = vec![SECRET; 256];
    let address = victim.as_mut_ptr() as u64;
    let kernel = match library.checked_kernel(name) {
        Ok(kernel) => kernel,
        Err(error) => return End::of(error),
    };
    let mut out = device.buffer::<u32>(64)?;
    let result = launch(device, &kernel, &mut out, address, threads);
    assert!(victim.iter().all(|word| *word == SECRET), "`{name}` wrote to the host's memory");
    if let Err(error) = result {
        return End::of(error);
    }
    let words = out.to_vec()?;
    assert!(!words.contains(&SECRET), "`{name}` read the host's memory: {words:x?}");
    Ok(End::Ran(words))
}

fn launch(
    device: &Device,
    kernel: &CheckedKernel,
    out: &mut elinvar::Buffer<u32>,
    address: u64,
    threads: usize,
) -> elinvar::Result<()> {
    let grid = Grid::threads(threads).group(32);
    kernel.launch(&device.stream()?, grid, (&mut *out, address))?.wait().map(drop)
}

/// Metal's own compiler decides which names a source may use on Metal.
fn expect_our_compiler(device: &Device) -> elinvar::Result<()> {
    match device.kind().name() {
        "metal" => Err(Error::Unsupported("Metal's own compiler reads the source".into())),
        _ => Ok(()),
    }
}

/// Source of a kernel `name` with this body, with `out`, the address `a` and the thread's index `i`.
fn text(name: &str, body: &str) -> String {
    format!(
        "kernel void {name}(device uint* out [[buffer(0)]], constant ulong& a [[buffer(1)]],
            uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {{ {body} }}\n"
    )
}

/// Runs all attacks of a table, and checks that each is stopped.
fn all_are_stopped(device: &Device, before: &str, attacks: &[(&str, &str)]) -> CaseResult {
    let body: String = attacks.iter().map(|(name, body)| text(name, body)).collect();
    let library = library(device, "attacks", &format!("{before}{body}"))?;
    for (number, (name, _)) in attacks.iter().enumerate() {
        // Line of the kernel's body, which is reported if the location is known.
        let line = 3 + before.matches('\n').count() + 2 * number + 1;
        match attack(device, &library, name, 32)? {
            End::Refused(message) if message.contains(&format!("attacks.metal:{line}")) => {}
            End::Refused(message) => {
                assert!(device.kind().name() == "metal", "`{name}` at line {line}: {message}")
            }
            End::Fault(_) => {}
            End::Ran(words) => panic!("`{name}` ran: {words:x?}"),
        }
    }
    Ok(())
}

fn pointers_without_memory(device: &Device) -> CaseResult {
    all_are_stopped(
        device,
        "union Both { ulong n; device uint* p; };\nstruct Two { device uint* p; ulong n; };\n",
        &[
            ("null_written", "device uint* p = nullptr; p[a / 4 + i] = i;"),
            ("null_read", "device uint* p = nullptr; out[i] = p[a / 4 + i];"),
            (
                "null_of_zero",
                "device uint* p = (device uint*)0ul; *(device uint*)((device uchar*)p + a + 4 * i) = i;",
            ),
            ("number_cast", "*(device uint*)(a + 4 * i) = i;"),
            ("number_reinterpreted", "out[i] = *reinterpret_cast<device uint*>(a + 4 * i);"),
            ("number_in_union", "Both b; b.n = a; b.p[i] = i;"),
            ("number_as_type", "out[i] = as_type<device uint*>(a)[i];"),
            (
                "from_threadgroup",
                "threadgroup ulong t[32]; t[l] = a; out[i] = (*(device uint* threadgroup*)&t[l ^ 1u])[i];",
            ),
            (
                "from_private",
                "ulong t[8]; for (uint k = 0; k < 8; ++k) t[k] = a + k; out[i] = (*(device uint**)&t[i & 7u])[i];",
            ),
            ("from_arguments", "out[i] = ((device uint*)*(device ulong*)out)[i];"),
            (
                "difference",
                "device uint* p = nullptr; out[i] = *(out + ((device uint*)a - out) + i + (p - p));",
            ),
            (
                "atomic_at_null",
                "device atomic_uint* p = nullptr; atomic_store_explicit(p + a / 4 + i, i, memory_order_relaxed);",
            ),
        ],
    )
}

/// A pointer that is null or points to an argument has the argument's bounds, or none.
fn pointers_of_one_or_none(device: &Device) -> CaseResult {
    all_are_stopped(
        device,
        "",
        &[
            ("either", "device uint* p = i & 1u ? nullptr : out; p[a / 4 + i] = i;"),
            (
                "looped",
                "device uint* p = nullptr; for (uint k = 0; k < out[i] + 2u; ++k) { p[a / 4 + i] = k; p = out; }",
            ),
            (
                "threads",
                "threadgroup uint t[32]; t[l] = i; device uint* p = nullptr; p = (i & 2u) ? (device uint*)(threadgroup uint*)t : p; p[a / 4 + i] = i;",
            ),
        ],
    )?;
    // A null pointer that is never accessed at run time is no reason to refuse a kernel.
    let body = text(
        "optional",
        "device uint* bias = nullptr; uint sum = i; if (a == 1) sum += bias[i]; out[i] = sum;",
    );
    let library = library(device, "optional", &body)?;
    let mut out = device.buffer::<u32>(64)?;
    launch(device, &library.checked_kernel("optional")?, &mut out, 0, 64)?;
    super::expect_all(&out.to_vec()?, |i| i as u32);
    match launch(device, &library.checked_kernel("optional")?, &mut out, 1, 64) {
        Err(Error::Fault(fault)) => assert!(fault.to_string().contains("null pointer"), "{fault}"),
        other => panic!("expected a fault, got {other:?}"),
    }
    Ok(())
}

/// Constant tables must not be written; clang may drop such writes.
fn writes_to_constants(device: &Device) -> CaseResult {
    let attacks = [
        ("constant_table", "((device uint*)&table[0])[i & 3u] = i; out[i] = table[(i + uint(a)) & 3u];"),
        (
            "one_of_two",
            "device uint* p = a == 3 ? out : (device uint*)&table[0]; p[i & 3u] = i; out[i] = p[2];",
        ),
        (
            "by_a_copy",
            "__builtin_memcpy((device uint*)&table[a & 1], out, 8); out[i] = table[(i + uint(a)) & 3u];",
        ),
    ];
    let body: String = attacks.iter().map(|(name, body)| text(name, body)).collect();
    let library = library(device, "written", &format!("constant uint table[4] = {{1, 2, 3, 4}};\n{body}"))?;
    for (name, _) in attacks {
        attack(device, &library, name, 32)?;
    }
    Ok(())
}

fn misaligned_accesses(device: &Device) -> CaseResult {
    let end = |name: &str, body: &str| -> Result<End, Box<dyn std::error::Error>> {
        attack(device, &library(device, name, &text(name, body))?, name, 32)
    };
    for (name, body) in [
        ("vector", "*(device uint4*)((device uchar*)out + 1 + (a & 1) * 2 + i) = uint4(i);"),
        ("word", "out[0] = *(device uint*)((device uchar*)out + (a & 4) + 2);"),
        (
            "counted",
            "atomic_fetch_add_explicit((device atomic_uint*)((device uchar*)out + (a & 4) + 2), 1u, memory_order_relaxed);",
        ),
        (
            "shared",
            "threadgroup uint t[64]; t[l] = l; threadgroup uchar* p = (threadgroup uchar*)t + uint(a & 1); out[i] = *(threadgroup uint*)(p + (l | 1u) + 1u - uint(a & 1));",
        ),
    ] {
        match end(name, body)? {
            End::Fault(message) if device.caps().features.names_accesses => {
                assert!(message.contains("misaligned"), "`{name}`: {message}");
            }
            End::Fault(_) => {}
            End::Refused(message) => assert!(device.kind().name() == "metal", "`{name}`: {message}"),
            End::Ran(words) => panic!("`{name}` ran: {words:x?}"),
        }
    }
    Ok(())
}

fn lengths_of_copies(device: &Device) -> CaseResult {
    all_are_stopped(
        device,
        "struct Big { uint words[4096]; };\n",
        &[
            ("copied", "__builtin_memcpy(out, (device uchar*)out + 4, a);"),
            ("moved", "__builtin_memmove((device uchar*)out + i, out, a | 4096);"),
            ("set", "__builtin_memset(out, 7, a);"),
            ("set_a_lot", "__builtin_memset(out + i, 7, 0ul - 4ul * (a & 3) - 8);"),
            ("assigned", "*(device Big*)out = *(device Big*)(out + 1);"),
        ],
    )
}

/// LLVM must not conclude from a source's undefined behavior that a check cannot fail.
fn undefined_behavior_takes_no_check_out(device: &Device) -> CaseResult {
    let attacks = [
        ("uninitialized", "device uint* p; p[a / 4 + i] = i; out[i] = i;"),
        (
            "unreachable",
            "uint t[16]; for (uint k = 0; k < 16; ++k) t[k] = k * i; if (i >= 4096u) __builtin_unreachable(); out[i & 63u] = t[uint(a & 0xffff) + 4000u + (i & 15u)];",
        ),
        (
            "assumed",
            "uint t[16]; for (uint k = 0; k < 16; ++k) t[k] = k * i; __builtin_assume((a & 0xffff) + i < 16); out[i & 63u] = t[(a & 0xffff) + i + 70000];",
        ),
        (
            "overflow",
            "int n = int(a); uint t[16]; for (uint k = 0; k < 16; ++k) t[k] = k * i; if (n + 100 < n) out[0] = 1; out[i & 63u] = t[n + 100 > n ? 70000 + (n & 15) : 80000 + (n & 15)];",
        ),
        ("no_return", "out[i & 63u] = none(i + 1u, out);"),
        (
            "shifted",
            "uint t[16]; for (uint k = 0; k < 16; ++k) t[k] = k * i; out[i & 63u] = t[(1u << (40u + uint(a & 7))) | 0x10000u];",
        ),
        (
            "unwritten",
            "uint n; uint t[16]; for (uint k = 0; k < 16; ++k) t[k] = k * i; t[n + 65536u] = 3; out[i & 63u] = t[n + 65536u];",
        ),
    ];
    let body: String = attacks.iter().map(|(name, body)| text(name, body)).collect();
    let before = "uint none(uint i, device uint* out) { if (i > 70000u) return 3; out[i + 70000u] = i; }\n";
    let library = library(device, "undefined", &format!("{before}{body}"))?;
    for (name, _) in attacks {
        // A kernel that runs has not accessed host memory.
        attack(device, &library, name, 64)?;
    }
    Ok(())
}

/// Functions that a source declares and does not define are not resolved in the process.
fn calls_out_of_the_kernel(device: &Device) -> CaseResult {
    expect_our_compiler(device)?;
    let declared = [
        ("extern \"C\" int system(const device char*);", "out[i] = system((const device char*)out);"),
        ("extern \"C\" void abort();", "if (a == i) abort(); out[i] = 1;"),
        ("extern \"C\" { void* malloc(ulong); }", "out[i] = ulong(malloc(a)) >> 32;"),
        ("void hidden(uint);", "hidden(out[i]);"),
    ];
    for (declaration, call) in declared {
        let library = library(device, "calls", &format!("{declaration}\n{}", text("calls", call)));
        match library.map(|library| attack(device, &library, "calls", 32)) {
            Ok(Ok(End::Refused(message))) => assert!(message.contains("calls.metal:5"), "{message}"),
            Err(Error::Compile(diagnostics)) => {
                let text = diagnostics.iter().map(|d| d.to_string()).collect::<String>();
                assert!(text.contains("calls.metal:3") || text.contains("calls.metal:5"), "{text}");
            }
            other => panic!("{call}: {other:?}"),
        }
    }
    // A pointer that is no function's calls none.
    let addresses =
        library(device, "calls", &text("calls", "((void (*)())a)(); out[i] = ((uint (*)())out)() + 7;"))?;
    match attack(device, &addresses, "calls", 32)? {
        End::Ran(words) => expect_all(&words[..32], |_| 7),
        other => panic!("{other:?}"),
    }
    let before = "extern \"C\" uint environ[1 << 20];\n";
    let library =
        library(device, "variable", &format!("{before}{}", text("variable", "out[i] = environ[i];")))?;
    match attack(device, &library, "variable", 32)? {
        End::Refused(message) => assert!(message.contains("environ"), "{message}"),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// Names of the processor and of the implementation are refused, with their location.
fn names_of_the_processor(device: &Device) -> CaseResult {
    expect_our_compiler(device)?;
    let words = [
        "__builtin_ia32_maskmovdqu(a, b, (char*)out);",
        "__builtin_ia32_ldmxcsr(0x7f80);",
        "__builtin_trap();",
        "__builtin_longjmp((void**)out, 1);",
        "asm volatile(\"hlt\");",
        "*(uint*)__builtin_alloca(a) = 1;",
    ];
    for word in words {
        let error =
            library(device, "named", &text("named", word)).err().ok_or(format!("`{word}` compiles"))?;
        let name = word
            .trim_start_matches(['*', '(', 'u', 'i', 'n', 't', ')'])
            .split(['(', ' '])
            .next()
            .unwrap_or_default();
        let message = error.to_string();
        assert!(message.contains("named.metal:4") && message.contains(name), "{name}: {message}");
    }
    let record = "extern \"C\" void record(uint) __asm__(\"elinvar_record_fault\");\nvoid record(uint) {}\n";
    let error = library(device, "record", record).err().ok_or("a label names ours")?;
    assert!(error.to_string().contains("record.metal:3"), "{error}");
    Ok(())
}

/// A kernel that casts `const` away writes its argument: the launch treats it as written, so the host waits for it, and read-only arguments
/// are refused.
fn const_that_is_cast_away(device: &Device) -> CaseResult {
    let body = "kernel void quiet(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
        constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
        device uint* writable = (device uint*)in;
        for (uint k = 0; k < n; ++k) writable[i] = writable[i] * 3u + k;
        out[i] = i;
    }";
    let library = library(device, "quiet", body)?;
    let warned = library.warnings().iter().any(|w| w.line == 5 && w.file.ends_with("quiet.metal"));
    assert!(warned || device.kind().name() == "metal", "{:?}", library.warnings());
    let kernel = library.checked_kernel("quiet")?;
    let count = 1 << 20;
    let (mut data, mut out) = (device.buffer_with_data(&vec![1_u32; count])?, device.buffer::<u32>(count)?);
    let stream = device.stream()?;
    match kernel.launch(&stream, Grid::threads(count), (&data, &mut out, 50_u32)) {
        Err(Error::InvalidArgument(message)) => {
            for part in ["`quiet`", "argument 0 `in`", "&mut"] {
                assert!(message.contains(part), "{part} in {message}");
            }
        }
        other => panic!("a shared buffer is written: {:?}", other.map(drop)),
    }
    let mut expected = 1_u32;
    (0..50).for_each(|k| expected = expected.wrapping_mul(3).wrapping_add(k));
    let done = kernel.launch(&stream, Grid::threads(count), (&mut data, &mut out, 50_u32))?;
    // The read waits for the launch, which may write the buffer.
    super::expect_all(&data.to_vec()?, |_| expected);
    done.wait()?;
    Ok(())
}

/// Memory that a kernel has not written is zero, and contains nothing of another kernel.
fn memory_of_others(device: &Device) -> CaseResult {
    let body = "kernel void fill(device uint* out [[buffer(0)]], threadgroup uint* given [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {
            threadgroup uint own[2048];
            uint mine[64];
            for (uint k = l; k < 2048u; k += 32u) own[k] = 0xdeadbeefu;
            for (uint k = l; k < 512u; k += 32u) given[k] = 0xdeadbeefu;
            for (uint k = 0; k < 64u; ++k) mine[k] = 0xdeadbeefu + out[k];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[i] = own[(out[i] + i) & 2047u] + given[(out[i] + i) & 511u] + mine[out[i] & 63u];
        }
        kernel void look(device uint* out [[buffer(0)]], threadgroup uint* given [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint l [[thread_position_in_threadgroup]]) {
            threadgroup uint own[2048];
            uint mine[64];
            if (out[i] > 100u) { own[l] = 1u; mine[l] = 1u; given[l] = 1u; }
            uint seen = 0u;
            for (uint k = l; k < 2048u; k += 32u) seen |= own[k];
            for (uint k = l; k < 512u; k += 32u) seen |= given[k];
            for (uint k = 0; k < 64u; ++k) seen |= mine[(k + out[i]) & 63u];
            out[i] = seen;
        }";
    let library = library(device, "others", body)?;
    let (fill, look) = (library.checked_kernel("fill")?, library.checked_kernel("look")?);
    let stream = device.stream()?;
    for _ in 0..4 {
        let (mut first, mut second) = (device.buffer::<u32>(4096)?, device.buffer::<u32>(4096)?);
        let given = || elinvar::Threadgroup::of::<u32>(512);
        fill.launch(&stream, Grid::threads(4096).group(32), (&mut first, given()))?;
        look.launch(&stream, Grid::threads(4096).group(32), (&mut second, given()))?.wait()?;
        super::expect_all(&second.to_vec()?, |_| 0);
    }
    Ok(())
}

/// A `bool` is true or false, regardless of its byte in memory.
fn bytes_as_bools(device: &Device) -> CaseResult {
    let body = "struct Flags { bool a; uchar pad; bool b[2]; };
        uint number(bool b) { return uint(b); }
        kernel void bools(device const bool* in [[buffer(0)]], device const Flags* flags [[buffer(1)]],
            device uint* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            uint table[2] = {10u + i, 20u + i};
            bool both = in[i] && flags[i / 4].a;
            Flags copy = flags[i / 4];
            out[i] = number(in[i]) + table[uint(in[i])] + number(copy.b[i & 1u]) * 1000u + (both ? 5000u : 0u)
                + (in[i] == true ? 100000u : 0u) + (in[i] != false ? 200000u : 0u);
        }";
    let kernel = library(device, "bools", body)?.checked_kernel("bools")?;
    let bytes: Vec<u8> = (0..=255).collect();
    let (input, flags) = (device.buffer_with_data(&bytes)?, device.buffer_with_data(&bytes)?);
    let mut out = device.buffer::<u32>(256)?;
    kernel.launch(&device.stream()?, Grid::threads(256), (&input, &flags, &mut out))?.wait()?;
    super::expect_all(&out.to_vec()?, |i| {
        let of = |at: usize| u32::from(bytes[at] != 0);
        let (b, i32) = (of(i), i as u32);
        let flags = i / 4 * 4;
        let both = b & of(flags);
        b + [10, 20][b as usize] + i32 + of(flags + 2 + (i & 1)) * 1000 + both * 5000 + b * 300_000
    });
    Ok(())
}
