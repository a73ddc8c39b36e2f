//! Position and size attributes of parameters, as scalars and vectors of uint and ushort, in full and partial threadgroups.

use elinvar::{Device, Grid};

use super::{CaseResult, kernel, run};

cases!("attributes": as_uint, as_uint2, as_uint3, as_ushort, as_ushort2, as_ushort3, indices_as_uint, indices_as_ushort,
    on_line, max_total_threads, without_names,
    in_a_struct_as_uint, in_a_struct_as_ushort, struct_forms, struct_beside_buffers, wrong_structs);

/// The grid and the threadgroup size, which divides it in no dimension.
const GRID: [u32; 3] = [13, 7, 5];
const GROUP: [u32; 3] = [4, 3, 2];

const POSITIONS: [&str; 9] = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threadgroups_per_grid",
    "grid_size",
    "grid_origin",
];

const INDICES: [&str; 11] = [
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_quadgroup",
    "simdgroup_index_in_threadgroup",
    "quadgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
];

/// Component `d` of a position for the thread at `at`, by its definition.
fn position(name: &str, at: [u32; 3], d: usize) -> u32 {
    let group = at[d] / GROUP[d];
    match name {
        "thread_position_in_grid" => at[d],
        "thread_position_in_threadgroup" => at[d] - group * GROUP[d],
        "threadgroup_position_in_grid" => group,
        "threads_per_grid" | "grid_size" => GRID[d],
        "threads_per_threadgroup" => GROUP[d].min(GRID[d] - group * GROUP[d]),
        "dispatch_threads_per_threadgroup" => GROUP[d],
        "threadgroups_per_grid" => GRID[d].div_ceil(GROUP[d]),
        _ => 0,
    }
}

/// An index for the thread at `at`: 32 threads per simdgroup, 4 per quadgroup, in the order x, y, z of a full threadgroup.
fn index(name: &str, at: [u32; 3]) -> u32 {
    let local: [u32; 3] = std::array::from_fn(|d| position("thread_position_in_threadgroup", at, d));
    let size: [u32; 3] = std::array::from_fn(|d| position("threads_per_threadgroup", at, d));
    let of_thread = local[0] + size[0] * (local[1] + size[1] * local[2]);
    let place = |[x, y, z]: [u32; 3]| x + GROUP[0] * (y + GROUP[1] * z);
    let (nominal, last) = (place(local), place(size.map(|n| n - 1)));
    let full = GROUP.iter().product::<u32>();
    match name {
        "thread_index_in_threadgroup" => of_thread,
        "thread_index_in_simdgroup" => nominal % 32,
        "thread_index_in_quadgroup" => nominal % 4,
        "simdgroup_index_in_threadgroup" => nominal / 32,
        "quadgroup_index_in_threadgroup" => nominal / 4,
        "simdgroups_per_threadgroup" => last / 32 + 1,
        "quadgroups_per_threadgroup" => last / 4 + 1,
        "dispatch_simdgroups_per_threadgroup" => full.div_ceil(32),
        "dispatch_quadgroups_per_threadgroup" => full.div_ceil(4),
        _ => 32,
    }
}

/// Runs a kernel that writes `lanes` components of each attribute for each thread.
fn written(device: &Device, names: &[&str], ty: &str, lanes: usize) -> elinvar::Result<Vec<u32>> {
    let mut parameters = String::new();
    let mut body = String::new();
    for (k, name) in names.iter().enumerate() {
        parameters += &format!(", {ty} a{k} [[{name}]]");
        for d in 0..lanes {
            let component = if lanes == 1 { String::new() } else { format!("[{d}]") };
            body += &format!("o[{}] = a{k}{component};\n", k * lanes + d);
        }
    }
    // If the attributes do not give the output's index, a separate position does.
    let place = if names[0] == POSITIONS[0] && lanes == 3 {
        "uint t = (a0[2] * 7u + a0[1]) * 13u + a0[0];".to_owned()
    } else {
        parameters += ", uint3 here [[thread_position_in_grid]]";
        "uint t = (here.z * 7u + here.y) * 13u + here.x;".to_owned()
    };
    let slots = names.len() * lanes;
    let text = format!(
        "kernel void attributes(device uint* out [[buffer(0)]]{parameters}) {{\n{place}\n\
         device uint* o = out + {slots}u * t;\n{body}}}"
    );
    let kernel = kernel(device, "attributes", &text)?;
    let threads = GRID.iter().product::<u32>() as usize;
    let mut out = device.buffer_with_data(&vec![0xdead_u32; slots * threads])?;
    run(device, &kernel, Grid::threads((13, 7, 5)).group((4, 3, 2)), (&mut out,))?;
    out.to_vec()
}

fn thread(t: usize) -> [u32; 3] {
    let t = t as u32;
    [t % GRID[0], t / GRID[0] % GRID[1], t / GRID[0] / GRID[1]]
}

/// A single kernel takes all attributes, because a kernel for each of them would not reveal mix-ups between them.
fn positions(device: &Device, ty: &str, lanes: usize) -> CaseResult {
    let got = written(device, &POSITIONS, ty, lanes)?;
    for (e, value) in got.iter().enumerate() {
        let (t, k, d) = (e / (POSITIONS.len() * lanes), e / lanes % POSITIONS.len(), e % lanes);
        assert_eq!(*value, position(POSITIONS[k], thread(t), d), "{} [{d}] of {:?}", POSITIONS[k], thread(t));
    }
    Ok(())
}

fn indices(device: &Device, ty: &str) -> CaseResult {
    let got = written(device, &INDICES, ty, 1)?;
    for (e, value) in got.iter().enumerate() {
        let (t, k) = (e / INDICES.len(), e % INDICES.len());
        assert_eq!(*value, index(INDICES[k], thread(t)), "{} of {:?}", INDICES[k], thread(t));
    }
    Ok(())
}

fn as_uint(device: &Device) -> CaseResult {
    positions(device, "uint", 1)
}
fn as_uint2(device: &Device) -> CaseResult {
    positions(device, "uint2", 2)
}
fn as_uint3(device: &Device) -> CaseResult {
    positions(device, "uint3", 3)
}
fn as_ushort(device: &Device) -> CaseResult {
    positions(device, "ushort", 1)
}
fn as_ushort2(device: &Device) -> CaseResult {
    positions(device, "ushort2", 2)
}
fn as_ushort3(device: &Device) -> CaseResult {
    positions(device, "const ushort3", 3)
}
fn indices_as_uint(device: &Device) -> CaseResult {
    indices(device, "uint")
}
fn indices_as_ushort(device: &Device) -> CaseResult {
    indices(device, "ushort")
}

/// More than one simdgroup per threadgroup, and a partial last threadgroup.
fn on_line(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "line",
        "kernel void line(device uint4* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]],
                uint groups [[simdgroups_per_threadgroup]], uint all [[dispatch_simdgroups_per_threadgroup]]) {
            out[i] = uint4(lane, group, groups, all);
        }",
    )?;
    let mut out = device.buffer::<[u32; 4]>(230)?;
    run(device, &kernel, Grid::threads(230).group(100), (&mut out,))?;
    super::expect_all(&out.to_vec()?, |i| {
        let (i, threads) = (i as u32 % 100, if i < 200 { 100 } else { 30_u32 });
        [i % 32, i / 32, threads.div_ceil(32), 4]
    });
    Ok(())
}

fn max_total_threads(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "limited",
        "constant int LIMIT = 16;
        [[max_total_threads_per_threadgroup(LIMIT * 4)]]
        kernel void limited(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                uint n [[threads_per_threadgroup]]) { out[i] = n; }",
    )?;
    let mut out = device.buffer::<u32>(128)?;
    run(device, &kernel, Grid::threads(128), (&mut out,))?;
    let size = out.to_vec()?[0];
    assert!((1..=64).contains(&size), "a group of {size}");
    let refused = run(device, &kernel, Grid::threads(128).group(65), (&mut out,));
    assert!(matches!(&refused, Err(elinvar::Error::InvalidArgument(m)) if m.contains("64")), "{refused:?}");
    Ok(())
}

fn without_names(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "unnamed",
        "kernel void unnamed(device uint* out [[buffer(0)]], uint3 [[threads_per_grid]],
                constant uint& [[buffer(1)]], uint i [[thread_position_in_grid]], ushort [[thread_index_in_simdgroup]]) {
            out[i] = i;
        }",
    )?;
    let mut out = device.buffer::<u32>(50)?;
    run(device, &kernel, Grid::threads(50), (&mut out, 3_u32))?;
    super::expect_all(&out.to_vec()?, |i| i as u32);
    Ok(())
}

/// All attributes in all widths as members of one struct.
fn in_a_struct(device: &Device, ty: &str) -> CaseResult {
    let (mut members, mut body, mut slots) = (String::new(), String::new(), Vec::new());
    let widths = [("", 1), ("2", 2), ("3", 3)];
    for (width, lanes) in widths {
        let names = POSITIONS.iter().chain(INDICES.iter().filter(|_| lanes == 1));
        for (k, name) in names.enumerate() {
            members += &format!("{ty}{width} a{lanes}_{k} [[{name}]];\n");
            for d in 0..lanes {
                let component = if lanes == 1 { String::new() } else { format!("[{d}]") };
                body += &format!("o[{}] = all.a{lanes}_{k}{component};\n", slots.len());
                slots.push((*name, d));
            }
        }
    }
    let count = slots.len();
    let text = format!(
        "struct All {{ {members} }};
        kernel void all_of(All all, device uint* out [[buffer(0)]]) {{
            uint t = (all.a3_0.z * 7u + all.a3_0.y) * 13u + all.a3_0.x;
            device uint* o = out + {count}u * t;\n{body}
        }}"
    );
    let kernel = kernel(device, "all_of", &text)?;
    assert_eq!(kernel.signature().builtins.len(), 3 * POSITIONS.len() + INDICES.len());
    assert_eq!(kernel.signature().dimensions(), 3);
    let threads = GRID.iter().product::<u32>() as usize;
    let mut out = device.buffer_with_data(&vec![0xdead_u32; count * threads])?;
    run(device, &kernel, Grid::threads((13, 7, 5)).group((4, 3, 2)), (&mut out,))?;
    for (e, value) in out.to_vec()?.iter().enumerate() {
        let (at, (name, d)) = (thread(e / count), slots[e % count]);
        let expected = if POSITIONS.contains(&name) { position(name, at, d) } else { index(name, at) };
        assert_eq!(*value, expected, "{name} [{d}] of {at:?}");
    }
    Ok(())
}

fn in_a_struct_as_uint(device: &Device) -> CaseResult {
    in_a_struct(device, "uint")
}
fn in_a_struct_as_ushort(device: &Device) -> CaseResult {
    in_a_struct(device, "ushort")
}

/// Structs in namespaces and other structs, by a typedef or an alias, with several members in a declaration or with functions; as a local
/// variable, and passed on.
fn struct_forms(device: &Device) -> CaseResult {
    let text = "
        namespace n { struct Outer { struct Inner {
            uint x [[thread_position_in_grid]], l [[thread_index_in_threadgroup]];
            uint sum() const { return x + l; } }; }; }
        typedef struct { [[threadgroup_position_in_grid]] ushort group; } Group;
        struct Const { const uint size [[threads_per_threadgroup]]; static constant constexpr uint K = 5; };
        using Alias = n::Outer::Inner;
        struct Plain { uint a = 7; };
        static uint of(Alias ids, Group g) { return ids.sum() * 1000 + g.group; }
        template <typename I> kernel void forms(device uint4* out, const I ids, Group g, Const c) {
            Plain p;
            n::Outer::Inner copy = ids, other = {1, 2};
            out[ids.x] = uint4(of(copy, g), c.size + Const::K, other.x + other.l, p.a);
        }
        template [[host_name(\"forms\")]] kernel void forms<Alias>(device uint4*, const Alias, Group, Const);";
    let kernel = kernel(device, "forms", text)?;
    let names: Vec<&str> = kernel.signature().builtins.iter().map(|b| b.attribute.as_str()).collect();
    let expected = [
        "thread_position_in_grid",
        "thread_index_in_threadgroup",
        "threadgroup_position_in_grid",
        "threads_per_threadgroup",
    ];
    assert_eq!(names, expected);
    let mut out = device.buffer::<[u32; 4]>(100)?;
    run(device, &kernel, Grid::threads(100).group(32), (&mut out,))?;
    super::expect_all(&out.to_vec()?, |i| {
        let (x, group) = (i as u32, i as u32 / 32);
        [(x + x % 32) * 1000 + group, if group == 3 { 9 } else { 37 }, 3, 7]
    });
    Ok(())
}

/// Buffers are numbered and bound as if the struct were absent; it can be combined with plain attributes.
fn struct_beside_buffers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "beside",
        "struct Ids { uint2 g [[thread_position_in_grid]]; ushort lane [[thread_index_in_simdgroup]]; };
        kernel void beside(device const float* a, Ids ids, constant uint& width, threadgroup float* part,
                uint2 size [[threads_per_grid]], Ids again, device float* out, uint l [[thread_index_in_threadgroup]]) {
            part[l] = a[ids.g.y * width + ids.g.x];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            out[again.g.y * size.x + again.g.x] = part[l ^ 1u] + float(ids.lane);
        }",
    )?;
    let indices: Vec<u32> = kernel.signature().args.iter().map(|a| a.index).collect();
    assert_eq!(indices, [0, 1, 0, 2]);
    let values: Vec<f32> = (0..128).map(|i| i as f32 * 0.5).collect();
    let (a, mut out) = (device.buffer_with_data(&values)?, device.buffer::<f32>(128)?);
    let part = elinvar::Threadgroup::of::<f32>(64);
    run(device, &kernel, Grid::threads((16, 8)).group((16, 4)), (&a, 16_u32, part, &mut out))?;
    super::expect_all(&out.to_vec()?, |i| values[i ^ 1] + (i % 32) as f32);
    Ok(())
}

fn wrong_structs(device: &Device) -> CaseResult {
    for (members, expected) in [
        (
            "uint x [[thread_position_in_grid]]; float y;",
            "member `Ids::y` of a parameter passed by value has no",
        ),
        ("int x [[thread_position_in_grid]];", "`Ids::x` with `[[thread_position_in_grid]]` has type `int`"),
        ("uint2 x [[thread_index_in_simdgroup]];", "has type `uint2`; it must be uint or ushort"),
        ("uint x;", "parameter `ids` of type `Ids` is passed by value without an attribute"),
    ] {
        let text = format!(
            "struct Ids {{ {members} }};\nkernel void wrong(device uint* out, Ids ids) {{ out[0] = 1; }}"
        );
        let error = kernel(device, "wrong", &text).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(expected) && error.contains("wrong.metal:"), "{members}: {error}");
    }
    Ok(())
}
