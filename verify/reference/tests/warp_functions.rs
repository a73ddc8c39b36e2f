//! Functions across a simdgroup as they are prepared for NVPTX: the interpreter runs the prepared code on warps, and the code as it
//! was before, whose lanes it keeps in lockstep. Both must give the same.

use elinvar::Source;
use elinvar_code::user_cache;
use elinvar_ir::Module;
use elinvar_msl::{ENTRY, Program, Toolchain};
use elinvar_reference::{Argument, Launch, Options, run, run_with};
use elinvar_spmd::nvptx;

/// Compare the last of three buffers, of `ulong`s, after a launch of the kernel `k` run both ways.
fn expect_same(what: &str, text: &str, [threads, group]: [u32; 2], buffers: [Vec<u8>; 3]) {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{text}");
    let toolchain = Toolchain::find_with(user_cache()).expect("clang");
    let program = Program::compile(&toolchain, &Source::named("k.metal", text)).expect("compiles");
    let options = nvptx::Options {
        name: ENTRY.into(),
        arguments: vec![nvptx::Argument::Pointer { constant: false }; 3],
        approximate: false,
        max_threads: None,
        checks: None,
        tensor_products: false,
    };
    let parse = |ir: &str| Module::parse(ir).unwrap_or_else(|error| panic!("{error} in\n{ir}"));
    let plain = parse(&program.ir_unoptimized("k").expect("IR"));
    let prepared = nvptx::prepare(&parse(&program.ir("k").expect("IR")), &options);
    let prepared = parse(&prepared.unwrap_or_else(|error| panic!("{what}: {error}")).ir);
    let arguments: Vec<Argument> = buffers.into_iter().map(Argument::Bytes).collect();
    let extent = nvptx::Extent::of([threads, 1, 1], [group, 1, 1]) as u32;
    let numbers = [threads, 1, 1, extent, 1, 1].map(Argument::Number);
    let launch = |arguments| Launch { threads: [threads, 1, 1], group: [group, 1, 1], arguments };
    let on_warps = launch([arguments.clone(), numbers.to_vec()].concat());
    let blocks = Options { blocks: true, ..Options::default() };
    let expected = run(&plain, &launch(arguments)).unwrap_or_else(|fault| panic!("{what}: {fault}"));
    let actual =
        run_with(&prepared, &on_warps, &blocks).unwrap_or_else(|fault| panic!("{what}, on warps: {fault}"));
    let words = |bytes: &[u8]| -> Vec<u64> {
        bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
    };
    let (expected, actual) = (words(&expected[2]), words(&actual[2]));
    let slots = expected.len() / threads as usize;
    for (at, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        let (thread, slot) = (at / slots, at % slots);
        assert_eq!(actual, expected, "{what}: thread {thread}, slot {slot}");
    }
    assert!(expected.iter().any(|word| *word != 0), "{what}: nothing is written");
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Calls that read from lanes of the own lane's parity only, or from lane 1. `k` is 2, `own` even and below 32.
fn shuffles(group: &str, width: u32) -> Vec<String> {
    let own = format!("ushort(own & {})", width - 2);
    let mut calls = vec![format!("{group}_broadcast(u, 1)"), format!("{group}_broadcast(u, ushort(k - 1))")];
    for number in ["2", "ushort(k)", &own] {
        for name in ["shuffle_xor", "shuffle_up", "shuffle_down", "shuffle_rotate_up", "shuffle_rotate_down"]
        {
            calls.push(format!("{group}_{name}(u, {number})"));
        }
        for name in ["up", "down"] {
            calls.push(format!("{group}_shuffle_and_fill_{name}(u, f, {number})"));
        }
        calls.push(format!("{group}_shuffle(u, ushort({number} ^ (lane & {})))", width - 1));
    }
    for name in ["up", "down"] {
        calls.push(format!("{group}_shuffle_and_fill_{name}(u, f, 2, {})", width.min(8)));
        calls.push(format!("{group}_shuffle_and_fill_{name}(u, f, ushort(k), ushort(2 * k))"));
    }
    calls
}

fn folds(group: &str, is_integer: bool) -> Vec<String> {
    let mut calls = vec![format!("{group}_broadcast_first(u)")];
    let bits = if is_integer { &["and", "or", "xor"][..] } else { &[] };
    calls.extend(["sum", "min", "max"].iter().chain(bits).map(|name| format!("{group}_{name}(u)")));
    calls.push(format!("{group}_product(w)"));
    for prefix in ["inclusive", "exclusive"] {
        calls.push(format!("{group}_prefix_{prefix}_sum(u)"));
        calls.push(format!("{group}_prefix_{prefix}_product(w)"));
    }
    calls
}

/// A kernel that writes what each call gives, all threads making it and then those with a flag.
fn kernel(ty: &str, is_integer: bool, calls: &[String]) -> String {
    let mut slots = 0;
    let mut writes = || -> String {
        let lines = calls.iter().map(|call| {
            slots += 1;
            let bits = if is_integer { "ulong(got)" } else { "as_type<uint>(float(got))" };
            format!("{{ {ty} got = {call}; o[{}] = {bits}; }}\n", slots - 1)
        });
        lines.collect()
    };
    let (all, some) = (writes(), writes());
    let loops = "for (uint round = 0; round <= b[2 * i + 1]; ++round)
        o[{n}] += ulong(simd_ballot(round == 0 || k == 2)) + ulong(uint(quad_ballot(own == 0)))
            + (simd_is_first() ? 1ul << 40 : 0ul) + (quad_is_first() ? 1ul << 44 : 0ul);";
    let slots = 2 * calls.len();
    format!(
        "kernel void k(device const {ty}* a, device const uint* b, device ulong* c, uint i [[thread_position_in_grid]],
                uint n [[threads_per_grid]], ushort lane [[thread_index_in_simdgroup]]) {{
            device ulong* o = c + {}u * i;
            {ty} u = a[2 * i], w = a[2 * i + 1], f = a[2 * ((i + 7) % n)];
            uint k = b[0];
            ushort own = ushort(b[2 * i]);
            {all}
            if (b[2 * i + 1] != 0) {{
                {some}
            }}
            {}
        }}",
        slots + 1,
        loops.replace("{n}", &slots.to_string())
    )
}

/// Both buffers that a kernel of [`kernel`] reads, and the one that it writes.
fn buffers(ty: &str, threads: u32, slots: usize) -> [Vec<u8>; 3] {
    // Sums and products of floats are exact in every type.
    let floats = |i: u32| [((i * 7) % 5) as f32 - 2.0, [2.0, 0.5, -1.0, 1.0][i as usize % 4]];
    let integers = |i: u32| [i.wrapping_mul(0x9e37_79b9).rotate_left(9), i.wrapping_mul(2_654_435_761) | 1];
    let a = (0..threads).flat_map(|i| match ty {
        "half" => floats(i).map(|x| half::f16::from_f32(x).to_le_bytes().to_vec()).concat(),
        "bfloat" => floats(i).map(|x| half::bf16::from_f32(x).to_le_bytes().to_vec()).concat(),
        "float" => floats(i).map(|x| x.to_le_bytes().to_vec()).concat(),
        "char" => integers(i).map(|x| vec![x as u8]).concat(),
        "ushort" => integers(i).map(|x| (x as u16).to_le_bytes().to_vec()).concat(),
        "long" => integers(i).map(|x| (u64::from(x) << 29 | u64::from(x)).to_le_bytes().to_vec()).concat(),
        _ => integers(i).map(|x| x.to_le_bytes().to_vec()).concat(),
    });
    // The first thread's distance is what all have as `k`.
    let b = (0..threads).flat_map(|i| [2 * (i * 7 % 11 + u32::from(i == 0)), i % 2]);
    [a.collect(), words(b), vec![0; threads as usize * slots * 8]]
}

fn functions(ty: &str) {
    let is_integer = !["half", "bfloat", "float"].contains(&ty);
    let folds = ["simd", "quad"].map(|group| folds(group, is_integer)).concat();
    // What is read from a lane that is not there is undefined: shuffles are in a whole simdgroup only.
    let all = [shuffles("simd", 32), shuffles("quad", 4), folds.clone()].concat();
    for (calls, launch) in [(all, [32, 32]), (folds, [70, 40])] {
        let text = kernel(ty, is_integer, &calls);
        let what = format!("{ty}, {launch:?}");
        expect_same(&what, &text, launch, buffers(ty, launch[0], 2 * calls.len() + 1));
    }
}

#[test]
fn words_are_exchanged() {
    functions("int");
    functions("uint");
}

#[test]
fn narrow_integers_are_exchanged() {
    functions("char");
    functions("ushort");
}

#[test]
fn wide_integers_are_exchanged() {
    functions("long");
}

#[test]
fn floats_are_exchanged() {
    functions("float");
}

#[test]
fn narrow_floats_are_exchanged() {
    functions("half");
    functions("bfloat");
}

/// What the lanes that are together make of it, wherever ways part and meet.
#[test]
fn lanes_are_counted_wherever_they_part() {
    let text = "kernel void k(device const uint* a, device const uint* b, device ulong* c,
            uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
        device ulong* o = c + 20u * i;
        uint x = b[i];
        // Two ways into one block.
        if ((x & 1u) != 0 || a[x] > 3u) o[0] = simd_sum(i); else o[1] = simd_sum(i);
        o[2] = simd_sum(x);
        switch (x % 5u) {
        case 0: case 3: o[3] = simd_sum(i); break;
        case 1: o[3] = simd_max(i); o[4] = a[i]; break;
        case 2: if (a[i] > 4u) o[5] = simd_sum(x);
        default: o[6] = simd_min(i);
        }
        for (uint r = 0; r < x % 7u; ++r) {
            if (a[r + lane] == 2u) continue;
            o[7] += simd_sum(r + 1u);
            if (a[r + lane] == 5u) break;
            o[8] += ulong(simd_ballot((a[r] & 1u) != 0));
        }
        // Branches that all take, and that they take apart.
        if (simd_shuffle(x, 3) & 1u) o[9] = simd_sum(i); else o[9] = simd_max(x);
        if (simd_broadcast(x, ushort(a[3] & 15u)) & 2u) o[10] = simd_sum(i); else o[10] = simd_max(x);
        if (simd_shuffle(x, ushort(lane ^ 1u)) & 1u) o[11] = simd_sum(i); else o[11] = simd_max(x);
        // Chosen by a branch.
        uint chosen;
        if (a[x] > 2u) { o[12] = x; chosen = a[1]; } else { o[13] = 1; chosen = a[2]; }
        if (chosen > 3u) o[14] = simd_sum(i);
        // From different iterations.
        uint last = 0;
        for (uint r = 0; r < x % 4u; ++r) { last = a[r]; o[15] += last; }
        if (last & 1u) o[16] = simd_sum(i);
        for (uint r = 0; r < 3u; ++r)
            for (uint s = 0; s < x % (r + 1u); ++s) o[17] += simd_sum(s + r);
        if (x == 9u) return;
        o[18] = simd_sum(i);
        o[19] = simd_prefix_exclusive_sum(x);
    }";
    let numbers = |threads: u32| {
        let a = (0..threads + 40).map(|i| i.wrapping_mul(2_654_435_761) >> 13 & 7);
        let b = (0..threads).map(|i| i.wrapping_mul(0x9e37_79b9) >> 11 & 31);
        [words(a), words(b), vec![0; threads as usize * 20 * 8]]
    };
    for [threads, group] in [[64, 64], [70, 40]] {
        expect_same(&format!("{threads} in {group}"), text, [threads, group], numbers(threads));
    }
}
