//! Attributes of parameters: every position and size, as scalar and vector of uint and ushort, in full
//! groups and in those at the grid's edges.

use elinvar::{Device, Grid};

use super::{CaseResult, kernel, run};

cases!("attributes": as_uint, as_uint2, as_uint3, as_ushort, as_ushort2, as_ushort3, indices_as_uint, indices_as_ushort,
    on_line, max_total_threads, without_names);

/// The grid and its groups: neither divides the other.
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

/// Component `d` of a position for the thread at `at`, by definition.
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

/// An index for the thread at `at`: 32 threads to a simdgroup, 4 to a quadgroup, in the order x, y, z.
fn index(name: &str, at: [u32; 3]) -> u32 {
    let local: [u32; 3] = std::array::from_fn(|d| position("thread_position_in_threadgroup", at, d));
    let size: [u32; 3] = std::array::from_fn(|d| position("threads_per_threadgroup", at, d));
    let of_thread = local[0] + size[0] * (local[1] + size[1] * local[2]);
    let (threads, full) = (size.iter().product::<u32>(), GROUP.iter().product::<u32>());
    match name {
        "thread_index_in_threadgroup" => of_thread,
        "thread_index_in_simdgroup" => of_thread % 32,
        "thread_index_in_quadgroup" => of_thread % 4,
        "simdgroup_index_in_threadgroup" => of_thread / 32,
        "quadgroup_index_in_threadgroup" => of_thread / 4,
        "simdgroups_per_threadgroup" => threads.div_ceil(32),
        "quadgroups_per_threadgroup" => threads.div_ceil(4),
        "dispatch_simdgroups_per_threadgroup" => full.div_ceil(32),
        "dispatch_quadgroups_per_threadgroup" => full.div_ceil(4),
        _ => 32,
    }
}

/// A kernel that writes `lanes` components of each attribute for each thread.
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
    // The place of the output comes from the launch's own numbers where the attributes do not give it.
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
    let mut out = device.buffer_from(&vec![0xdead_u32; slots * threads])?;
    run(device, &kernel, Grid::threads((13, 7, 5)).group((4, 3, 2)), (&mut out,))?;
    out.to_vec()
}

fn thread(t: usize) -> [u32; 3] {
    let t = t as u32;
    [t % GRID[0], t / GRID[0] % GRID[1], t / GRID[0] / GRID[1]]
}

/// One kernel for each attribute's dimensions would hide mix-ups between them: all are taken at once.
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

/// More than one simdgroup to a group, and a last group that is not full.
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
