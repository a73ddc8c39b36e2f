//! Kernels that launch kernels: levels of launches whose sizes only the device knows.

mod faults;

use elinvar::{
    Arg, Args, Completion, Device, Graph, Grid, Kernel, LaunchQueue, Library, Source, Stream, Threadgroup,
};

use super::{Case, CaseResult, expect_all, launch};

cases!("nested_launches": halves, trees, quicksort, fixed_point_mandelbrot, breadth_first_search, three_dimensions, threadgroup_memory,
    much_threadgroup_memory,
    values_of_many_sizes, launches_without_effect, used_buffers, other_work_of_the_stream, host_and_device_sizes, recorded, in_a_graph,
    streams_at_the_same_time);

/// All cases of the chapter.
pub(super) fn all() -> Vec<Case> {
    [CASES, faults::CASES].concat()
}

fn library(device: &Device, name: &str, body: &str) -> elinvar::Result<Library> {
    let text = format!("#include <metal_stdlib>\n#include <elinvar/launch>\nusing namespace metal;\n{body}");
    device.compile(Source::named(format!("{name}.metal"), text))
}

fn kernels<const N: usize>(device: &Device, body: &str, names: [&str; N]) -> elinvar::Result<[Kernel; N]> {
    let library = library(device, names[0], body)?;
    let all = names.iter().map(|name| library.kernel(name)).collect::<elinvar::Result<Vec<Kernel>>>()?;
    Ok(std::array::from_fn(|i| all[i].clone()))
}

/// Launches on a stream. The kernels of this suite stay within the buffers that they are given.
fn nested(
    kernel: &Kernel,
    stream: &Stream,
    queue: &mut LaunchQueue,
    grid: impl Into<Grid>,
    args: impl Args,
) -> elinvar::Result<Completion> {
    // SAFETY: see the cases.
    #[allow(unsafe_code)]
    unsafe {
        kernel.launch_nested(stream, queue, grid.into(), args)
    }
}

const HALVE: &str = "
    kernel void halve(device elinvar::launch_queue& queue, device uint* x, constant uint& n, uint i [[thread_position_in_grid]]) {
        x[i] += 1;
        if (i == 0 && n > 1) {
            elinvar::launch half(queue);
            half.set_kernel(0);
            half.set_buffer(x, 1);
            half.set_value(n / 2, 2);
            half.dispatch_threads(n / 2, 32);
        }
    }";

/// Number of levels in which element `i` of `n` is part of the halves.
fn halvings(i: usize, n: usize) -> u32 {
    (0..32).take_while(|level| i < n >> level).count() as u32
}

fn halves(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let stream = device.stream()?;
    for n in [1_usize, 2, 3, 1000, 4096] {
        let mut queue = LaunchQueue::new(device, 1, n.ilog2(), &[&halve])?;
        let mut x = device.buffer::<u32>(n)?;
        for round in 1..=3 {
            nested(&halve, &stream, &mut queue, Grid::threads(n).group(32), (&mut x, n as u32))?;
            expect_all(&x.to_vec()?, |i| round * halvings(i, n));
        }
    }
    Ok(())
}

/// Every node of a tree launches as many children as its number modulo 4, six levels deep, and adds to a hash of the tree.
fn trees(device: &Device) -> CaseResult {
    let body = "
        struct Node { ulong number; uint level; };
        kernel void grow(device elinvar::launch_queue& queue, device atomic_uint* nodes, device atomic_uint* hashes,
                         constant Node& node, uint i [[thread_position_in_grid]]) {
            ulong number = node.number * 4 + i + 1;
            atomic_fetch_add_explicit(nodes + node.level, 1u, memory_order_relaxed);
            atomic_fetch_xor_explicit(hashes + node.level, uint(number * 2654435761ul >> 7), memory_order_relaxed);
            if (node.level < 6 && number % 4 != 0) {
                elinvar::launch children(queue);
                children.set_kernel(0);
                children.set_buffer(nodes, 1);
                children.set_buffer(hashes, 2);
                children.set_value(Node{number, node.level + 1}, 3);
                children.dispatch_threads(uint(number % 4), 4);
            }
        }";
    let [grow] = kernels(device, body, ["grow"])?;
    let mut queue = LaunchQueue::new(device, 20_000, 6, &[&grow])?;
    let (mut nodes, mut hashes) = (device.buffer::<u32>(7)?, device.buffer::<u32>(7)?);
    let stream = device.stream()?;
    let root = Arg::value(&[0_u64, 0]);
    nested(&grow, &stream, &mut queue, Grid::threads(40).group(8), (&mut nodes, &mut hashes, root))?;
    let (mut counts, mut sums) = ([0_u32; 7], [0_u32; 7]);
    let mut level: Vec<(u64, u64)> = vec![(0, 40)];
    for at in 0..7 {
        let mut next = Vec::new();
        for (parent, threads) in level {
            for i in 0..threads {
                let number = parent.wrapping_mul(4).wrapping_add(i + 1);
                counts[at] += 1;
                sums[at] ^= (number.wrapping_mul(2_654_435_761) >> 7) as u32;
                next.extend((number % 4 != 0).then_some((number, number % 4)));
            }
        }
        level = next;
    }
    assert_eq!(nodes.to_vec()?, counts);
    assert_eq!(hashes.to_vec()?, sums);
    assert!(counts[6] > 100, "{counts:?}");
    Ok(())
}

fn random(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    (0..count).map(step).collect()
}

/// A threadgroup partitions a range into two parts and the pivot's equals, and launches one for each part.
fn quicksort(device: &Device) -> CaseResult {
    let body = "
        struct Range { uint first, count; };
        kernel void sort(device elinvar::launch_queue& queue, device uint* x, device uint* scratch, constant Range& r,
                         uint l [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
            threadgroup atomic_uint less, more;
            if (r.count <= 32) {
                if (l == 0)
                    for (uint i = 1; i < r.count; ++i) {
                        uint v = x[r.first + i], j = i;
                        for (; j > 0 && x[r.first + j - 1] > v; --j) x[r.first + j] = x[r.first + j - 1];
                        x[r.first + j] = v;
                    }
                return;
            }
            if (l == 0) {
                atomic_store_explicit(&less, 0u, memory_order_relaxed);
                atomic_store_explicit(&more, 0u, memory_order_relaxed);
            }
            uint a = x[r.first], b = x[r.first + r.count / 2], c = x[r.first + r.count - 1];
            uint pivot = max(min(a, b), min(max(a, b), c));
            threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
            for (uint i = l; i < r.count; i += n) {
                uint v = x[r.first + i];
                if (v < pivot) scratch[r.first + atomic_fetch_add_explicit(&less, 1u, memory_order_relaxed)] = v;
                if (v > pivot) scratch[r.first + r.count - 1 - atomic_fetch_add_explicit(&more, 1u, memory_order_relaxed)] = v;
            }
            threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
            uint below = atomic_load_explicit(&less, memory_order_relaxed), above = atomic_load_explicit(&more, memory_order_relaxed);
            for (uint i = l; i < r.count; i += n)
                x[r.first + i] = i < below || i >= r.count - above ? scratch[r.first + i] : pivot;
            Range parts[2] = {{r.first, below}, {r.first + r.count - above, above}};
            if (l < 2 && parts[l].count > 1) {
                elinvar::launch part(queue);
                part.set_kernel(0);
                part.set_buffer(x, 1);
                part.set_buffer(scratch, 2);
                part.set_value(parts[l], 3);
                part.dispatch_threadgroups(1, parts[l].count > 1000 ? 128 : 32);
            }
        }";
    let [sort] = kernels(device, body, ["sort"])?;
    let n = 30_000_usize;
    let mut queue = LaunchQueue::new(device, 4096, 60, &[&sort])?;
    let stream = device.stream()?;
    for (seed, modulus) in [(1, u32::MAX), (2, 100), (3, 1)] {
        let mut values: Vec<u32> = random(n, seed).iter().map(|v| v % modulus).collect();
        let mut x = device.buffer_with_data(&values)?;
        let mut scratch = device.buffer::<u32>(n)?;
        let range = Arg::value(&[0, n as u32]);
        nested(&sort, &stream, &mut queue, Grid::groups(1).group(128), (&mut x, &mut scratch, range))?;
        values.sort_unstable();
        expect_all(&x.to_vec()?, |i| values[i]);
    }
    Ok(())
}

/// Iterations of z² + c in fixed point, with 12 bits behind the point.
const DWELL: &str = "
    uint dwell(int px, int py) {
        int cx = px * 48 - 8192, cy = py * 40 - 5120, x = 0, y = 0;
        for (uint i = 0; i < 60; ++i) {
            int xx = x * x >> 12, yy = y * y >> 12;
            if (xx + yy > 4 << 12) return i;
            y = (2 * x * y >> 12) + cy;
            x = xx - yy + cx;
        }
        return 60;
    }";

fn dwell(px: i32, py: i32) -> u32 {
    let (cx, cy) = (px * 48 - 8192, py * 40 - 5120);
    let (mut x, mut y) = (0_i32, 0_i32);
    for i in 0..60 {
        let (xx, yy) = ((x * x) >> 12, (y * y) >> 12);
        if xx + yy > 4 << 12 {
            return i;
        }
        y = ((2 * x * y) >> 12) + cy;
        x = xx - yy + cx;
    }
    60
}

/// Adaptive subdivision: a square whose border has one dwell is filled, others are divided in four or, if small, computed by pixel.
fn fixed_point_mandelbrot(device: &Device) -> CaseResult {
    let body = format!(
        "{DWELL}
        struct Square {{ int x, y, size; }};
        kernel void pixels(device uint* image [[buffer(0)]], constant Square& s [[buffer(1)]], constant int& width [[buffer(2)]],
                           uint2 p [[thread_position_in_grid]]) {{
            image[(s.y + int(p.y)) * width + s.x + int(p.x)] = dwell(s.x + int(p.x), s.y + int(p.y));
        }}
        kernel void fill(device uint* image [[buffer(0)]], constant Square& s [[buffer(1)]], constant int& width [[buffer(2)]],
                         constant uint& value [[buffer(3)]], uint2 p [[thread_position_in_grid]]) {{
            image[(s.y + int(p.y)) * width + s.x + int(p.x)] = value;
        }}
        kernel void divide(device elinvar::launch_queue& queue [[buffer(4)]], device uint* image [[buffer(0)]],
                           constant Square& s [[buffer(1)]], constant int& width [[buffer(2)]], device atomic_uint* launches [[buffer(3)]],
                           uint l [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {{
            threadgroup atomic_uint differ;
            uint first = dwell(s.x, s.y);
            if (l == 0) atomic_store_explicit(&differ, 0u, memory_order_relaxed);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = l; i < 4u * uint(s.size); i += n) {{
                int at = int(i) % s.size, side = int(i) / s.size;
                int2 p = side == 0 ? int2(at, 0) : side == 1 ? int2(at, s.size - 1) : side == 2 ? int2(0, at) : int2(s.size - 1, at);
                if (dwell(s.x + p.x, s.y + p.y) != first) atomic_store_explicit(&differ, 1u, memory_order_relaxed);
            }}
            threadgroup_barrier(mem_flags::mem_threadgroup);
            bool one = atomic_load_explicit(&differ, memory_order_relaxed) == 0;
            if (l >= 4 || (l > 0 && (one || s.size <= 16))) return;
            elinvar::launch next(queue);
            int half_size = s.size / 2;
            Square part = {{s.x + int(l % 2) * half_size, s.y + int(l / 2) * half_size, half_size}};
            next.set_buffer(image, 0);
            next.set_value(one || s.size <= 16 ? s : part, 1);
            next.set_value(width, 2);
            if (one) {{
                next.set_kernel(2);
                next.set_value(first, 3);
                next.dispatch_threads(uint3(s.size, s.size, 1), uint3(8, 8, 1));
                atomic_fetch_add_explicit(launches + 2, 1u, memory_order_relaxed);
            }} else if (s.size <= 16) {{
                next.set_kernel(1);
                next.dispatch_threads(uint3(s.size, s.size, 1), uint3(16, 2, 1));
                atomic_fetch_add_explicit(launches + 1, 1u, memory_order_relaxed);
            }} else {{
                next.set_kernel(0);
                next.set_buffer(launches, 3);
                next.dispatch_threadgroups(1, 64);
                atomic_fetch_add_explicit(launches, 1u, memory_order_relaxed);
            }}
        }}"
    );
    let [divide, pixels, fill] = kernels(device, &body, ["divide", "pixels", "fill"])?;
    let width = 256_i32;
    let mut queue = LaunchQueue::new(device, 1024, 6, &[&divide, &pixels, &fill])?;
    let (mut image, mut launches) =
        (device.buffer_with_data(&vec![u32::MAX; 65536])?, device.buffer::<u32>(3)?);
    let square = Arg::value(&[0, 0, width]);
    let args = (&mut image, square, width, &mut launches);
    nested(&divide, &device.stream()?, &mut queue, Grid::groups(1).group(64), args)?;
    // The host does the same.
    let mut expected = vec![0; 65536];
    let (mut squares, mut counts) = (vec![(0, 0, width)], [0_u32; 3]);
    while let Some((x, y, size)) = squares.pop() {
        let first = dwell(x, y);
        let border = |i: i32| [(i, 0), (i, size - 1), (0, i), (size - 1, i)];
        let is_one = (0..size).flat_map(border).all(|(px, py)| dwell(x + px, y + py) == first);
        if is_one || size <= 16 {
            counts[if is_one { 2 } else { 1 }] += 1;
            for (px, py) in (0..size * size).map(|i| (x + i % size, y + i / size)) {
                expected[(py * width + px) as usize] = if is_one { first } else { dwell(px, py) };
            }
        } else {
            counts[0] += 4;
            squares.extend((0..4).map(|i| (x + i % 2 * size / 2, y + i / 2 * size / 2, size / 2)));
        }
    }
    expect_all(&image.to_vec()?, |i| expected[i]);
    assert_eq!(launches.to_vec()?, counts);
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
    Ok(())
}

/// `expand` visits a frontier, whose size `plan` reads when it is complete.
const SEARCH: &str = "
    kernel void plan(device elinvar::launch_queue& queue [[buffer(0)]], device const uint* offsets [[buffer(1)]],
                     device const uint* edges [[buffer(2)]], device atomic_uint* distances [[buffer(3)]],
                     device uint* frontiers [[buffer(4)]], device uint* counts [[buffer(5)]], constant uint2& s [[buffer(6)]]) {
        uint step = s.x, n = s.y, count = counts[step % 2];
        if (count == 0) return;
        counts[(step + 1) % 2] = 0;
        elinvar::launch next(queue);
        next.set_kernel(1);
        next.set_buffer(offsets, 1);
        next.set_buffer(edges, 2);
        next.set_buffer(distances, 3);
        next.set_buffer(frontiers, 4);
        next.set_buffer(counts, 5);
        next.set_value(uint3(step, n, count), 6);
        next.dispatch_threads(count, 64);
    }
    kernel void expand(device elinvar::launch_queue& queue [[buffer(0)]], device const uint* offsets [[buffer(1)]],
                       device const uint* edges [[buffer(2)]], device atomic_uint* distances [[buffer(3)]],
                       device uint* frontiers [[buffer(4)]], device atomic_uint* counts [[buffer(5)]], constant uint3& s [[buffer(6)]],
                       uint i [[thread_position_in_grid]]) {
        uint step = s.x, n = s.y, node = frontiers[step % 2 * n + i];
        for (uint e = offsets[node]; e < offsets[node + 1]; ++e) {
            uint unseen = ~0u;
            if (atomic_load_explicit(distances + edges[e], memory_order_relaxed) != unseen) continue;
            uint before = atomic_fetch_min_explicit(distances + edges[e], step + 1, memory_order_relaxed);
            if (before == unseen) {
                uint at = atomic_fetch_add_explicit(counts + (step + 1) % 2, 1u, memory_order_relaxed);
                frontiers[(step + 1) % 2 * n + at] = edges[e];
            }
        }
        if (i == 0) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(offsets, 1);
            next.set_buffer(edges, 2);
            next.set_buffer(distances, 3);
            next.set_buffer(frontiers, 4);
            next.set_buffer(counts, 5);
            next.set_value(uint2(step + 1, n), 6);
            next.dispatch_threads(1, 1);
        }
    }";

fn breadth_first_search(device: &Device) -> CaseResult {
    let [plan, expand] = kernels(device, SEARCH, ["plan", "expand"])?;
    let mut queue = LaunchQueue::new(device, 1, 1000, &[&plan, &expand])?;
    let stream = device.stream()?;
    // Dense, sparse with parts that are not reached, and a path of 60 nodes.
    for (nodes, degree, is_path) in [(100_000_usize, 10_usize, false), (5_000, 1, false), (60, 1, true)] {
        let targets: Vec<u32> = match is_path {
            true => (0..nodes).map(|i| (i as u32 + 1).min(nodes as u32 - 1)).collect(),
            false => random(nodes * degree, 7).iter().map(|v| v % nodes as u32).collect(),
        };
        let offsets: Vec<u32> = (0..=nodes).map(|i| (i * degree) as u32).collect();
        let mut expected = vec![u32::MAX; nodes];
        let mut frontier = std::collections::VecDeque::from([0_usize]);
        expected[0] = 0;
        while let Some(node) = frontier.pop_front() {
            for target in &targets[node * degree..(node + 1) * degree] {
                if expected[*target as usize] == u32::MAX {
                    expected[*target as usize] = expected[node] + 1;
                    frontier.push_back(*target as usize);
                }
            }
        }
        let mut distances = vec![u32::MAX; nodes];
        distances[0] = 0;
        let (offsets, edges) = (device.buffer_with_data(&offsets)?, device.buffer_with_data(&targets)?);
        let mut distances = device.buffer_with_data(&distances)?;
        let (mut frontiers, mut counts) =
            (device.buffer::<u32>(2 * nodes)?, device.buffer_with_data(&[1_u32, 0])?);
        let step = Arg::value(&[0, nodes as u32]);
        let args = (&offsets, &edges, &mut distances, &mut frontiers, &mut counts, step);
        nested(&plan, &stream, &mut queue, Grid::threads(1).group(1), args)?;
        expect_all(&distances.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

fn three_dimensions(device: &Device) -> CaseResult {
    let body = "
        kernel void place(device uint* x, uint3 p [[thread_position_in_grid]], uint3 all [[threads_per_grid]],
                          uint3 full [[dispatch_threads_per_threadgroup]]) {
            x[p.x + 16 * (p.y + 16 * p.z)] = all.x + 100 * all.y + 10000 * all.z + 1000000 * (full.x + 10 * full.y + 100 * full.z);
        }
        kernel void both(device uint* x, device elinvar::launch_queue& queue, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x + i * 4096, 0);
            if (i == 0) next.dispatch_threads(uint3(7, 5, 3), uint3(4, 2, 2));
            else next.dispatch_threadgroups(uint3(3, 2, 4), uint3(4, 3, 2));
        }";
    let [both, place] = kernels(device, body, ["both", "place"])?;
    // The host's kernel is not among those of the queue.
    let mut queue = LaunchQueue::new(device, 2, 1, &[&place])?;
    let mut x = device.buffer::<u32>(2 * 4096)?;
    nested(&both, &device.stream()?, &mut queue, Grid::threads(2), (&mut x,))?;
    expect_all(&x.to_vec()?, |i| {
        let (all, full) = [([7, 5, 3], [4, 2, 2]), ([12, 6, 8], [4, 3, 2])][i / 4096];
        let at = [i % 16, i / 16 % 16, i % 4096 / 256];
        let value =
            all[0] + 100 * all[1] + 10000 * all[2] + 1_000_000 * (full[0] + 10 * full[1] + 100 * full[2]);
        if (0..3).all(|d| at[d] < all[d]) { value as u32 } else { 0 }
    });
    Ok(())
}

fn threadgroup_memory(device: &Device) -> CaseResult {
    let body = "
        kernel void reverse(device uint* x [[buffer(0)]], threadgroup uint* all [[threadgroup(1)]],
                            uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
            all[l] = x[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            x[i] = all[n - 1 - l];
        }
        kernel void sizes(device elinvar::launch_queue& queue, device uint* x, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x + 512 * i, 0);
            uint group = 16 << i;
            next.set_threadgroup_memory_length(group * 4, 1);
            next.dispatch_threads(512, group);
        }";
    let [sizes, reverse] = kernels(device, body, ["sizes", "reverse"])?;
    let mut queue = LaunchQueue::new(device, 8, 1, &[&reverse])?;
    let values = random(512 * 5, 3);
    let mut x = device.buffer_with_data(&values)?;
    nested(&sizes, &device.stream()?, &mut queue, Grid::threads(5), (&mut x,))?;
    expect_all(&x.to_vec()?, |i| {
        let group = 16 << (i / 512);
        values[i / group * group + (group - 1 - i % group)]
    });
    Ok(())
}

/// Threadgroup memory up to the device's limit, the more the deeper.
fn much_threadgroup_memory(device: &Device) -> CaseResult {
    const LEVELS: usize = 6;
    let body = "
        kernel void backwards(device elinvar::launch_queue& queue [[buffer(0)]], device uint* out [[buffer(1)]],
                              constant uint& most [[buffer(2)]], constant uint& level [[buffer(3)]],
                              threadgroup uint* all [[threadgroup(0)]], uint l [[thread_index_in_threadgroup]]) {
            uint n = most / 6 * level;
            if (level > 0) {
                for (uint i = l; i < n; i += 64) all[i] = 7 * i + level;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                for (uint i = l; i < n; i += 64) out[(level - 1) * most + i] = all[n - 1 - i];
            }
            if (l == 0 && level < 6) {
                elinvar::launch next(queue);
                next.set_kernel(0);
                next.set_buffer(out, 1);
                next.set_value(most, 2);
                next.set_value(level + 1, 3);
                next.set_threadgroup_memory_length(most / 6 * (level + 1) * 4, 0);
                next.dispatch_threads(64, 64);
            }
        }";
    let [backwards] = kernels(device, body, ["backwards"])?;
    let most = device.caps().limits.max_threadgroup_memory as usize / (16 * LEVELS) * LEVELS * 4;
    let mut queue = LaunchQueue::new(device, 1, LEVELS as u32, &[&backwards])?;
    let mut out = device.buffer::<u32>(LEVELS * most)?;
    let args = (&mut out, most as u32, 0_u32, Threadgroup::of::<u32>(4));
    nested(&backwards, &device.stream()?, &mut queue, Grid::threads(64).group(64), args)?;
    expect_all(&out.to_vec()?, |at| {
        let (level, i) = (at / most + 1, at % most);
        let n = most / LEVELS * level;
        if i < n { (7 * (n - 1 - i) + level) as u32 } else { 0 }
    });
    Ok(())
}

fn values_of_many_sizes(device: &Device) -> CaseResult {
    let body = "
        struct Odd { uchar a[3]; };
        struct Big { float4 v; ulong n; half h; };
        kernel void take(device float* out [[buffer(0)]], constant uchar& c [[buffer(1)]], constant Odd& odd [[buffer(2)]],
                         constant Big& big [[buffer(3)]], constant ushort& s [[buffer(9)]], constant bool& b [[buffer(30)]]) {
            out[0] = c; out[1] = odd.a[0]; out[2] = odd.a[1]; out[3] = odd.a[2]; out[4] = big.v.x; out[5] = big.v.w;
            out[6] = float(big.n); out[7] = big.h; out[8] = s; out[9] = b;
        }
        kernel void give(device elinvar::launch_queue& queue, device float* out, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(out + 10 * i, 0);
            next.set_value(uchar(i + 200), 1);
            next.set_value(Odd{{uchar(i), 7, 9}}, 2);
            next.set_value(Big{float4(i, 2, 3, -4), i * 1000ul, half(i) / 2}, 3);
            next.set_value(ushort(i * 300), 9);
            next.set_value(i % 2 == 1, 30);
            next.dispatch_threads(1, 1);
        }";
    let [give, take] = kernels(device, body, ["give", "take"])?;
    let mut queue = LaunchQueue::new(device, 100, 1, &[&take])?;
    let mut out = device.buffer::<f32>(1000)?;
    nested(&give, &device.stream()?, &mut queue, Grid::threads(50), (&mut out,))?;
    expect_all(&out.to_vec()?, |at| {
        let (i, x) = (at / 10, (at / 10) as f32);
        if i >= 50 {
            return 0.0;
        }
        [x + 200.0, x, 7.0, 9.0, x, -4.0, x * 1000.0, x / 2.0, x * 300.0, (i % 2) as f32][at % 10]
    });
    Ok(())
}

/// Launches that are not dispatched, and those over an empty grid.
fn launches_without_effect(device: &Device) -> CaseResult {
    let body = "
        kernel void add(device uint* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
        kernel void some(device elinvar::launch_queue& queue, device uint* x, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x + 4 * i, 0);
            if (i % 3 == 0) next.dispatch_threads(4, 4);
            if (i % 3 == 1) next.dispatch_threads(uint3(4, 0, 1), uint3(4, 1, 1));
        }";
    let [some, add] = kernels(device, body, ["some", "add"])?;
    let mut queue = LaunchQueue::new(device, 40, 1, &[&add])?;
    let mut x = device.buffer::<u32>(160)?;
    let stream = device.stream()?;
    for threads in [40, 0, 40] {
        nested(&some, &stream, &mut queue, Grid::threads(threads), (&mut x,))?;
    }
    expect_all(&x.to_vec()?, |i| if i / 4 % 3 == 0 { 2 } else { 0 });
    Ok(())
}

/// Buffers that only launches have, by addresses in an argument buffer.
fn used_buffers(device: &Device) -> CaseResult {
    let body = "
        struct Lists { device uint* to[2]; };
        kernel void set(device uint* x, constant uint& value, uint i [[thread_position_in_grid]]) { x[i] = value + i; }
        kernel void all(device elinvar::launch_queue& queue, constant Lists& lists, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(lists.to[i], 0);
            next.set_value(100 * i, 1);
            next.dispatch_threads(30 + i, 16);
        }";
    let [all, set] = kernels(device, body, ["all", "set"])?;
    let mut queue = LaunchQueue::new(device, 2, 1, &[&set])?;
    let (mut a, mut b) = (device.buffer::<u32>(40)?, device.buffer::<u32>(40)?);
    let lists = Arg::value(&[a.gpu_address()?, b.gpu_address()?]);
    let args = (Arg::use_resource(&mut a), lists, Arg::use_resource(&mut b));
    nested(&all, &device.stream()?, &mut queue, Grid::threads(2), args)?;
    expect_all(&a.to_vec()?, |i| if i < 30 { i as u32 } else { 0 });
    expect_all(&b.to_vec()?, |i| if i < 31 { 100 + i as u32 } else { 0 });
    Ok(())
}

fn other_work_of_the_stream(device: &Device) -> CaseResult {
    let body = format!(
        "{HALVE}
        kernel void twice(device uint* x, uint i [[thread_position_in_grid]]) {{ x[i] *= 2; }}"
    );
    let [halve, twice] = kernels(device, &body, ["halve", "twice"])?;
    let n = 500_usize;
    let mut queue = LaunchQueue::new(device, 1, 20, &[&halve])?;
    let (mut x, mut y) = (device.buffer::<u32>(n)?, device.buffer::<u32>(n)?);
    let stream = device.stream()?;
    let mut commands = stream.command_buffer();
    // SAFETY: all stay within n elements.
    #[allow(unsafe_code)]
    unsafe {
        commands.fill(&mut x, 3_u32)?;
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
        commands.launch(&twice, Grid::threads(n), (&mut x,))?;
        commands.copy(&x, &mut y)?;
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
    }
    commands.submit()?;
    launch(&twice, &stream, Grid::threads(n), (&mut x,))?;
    expect_all(&y.to_vec()?, |i| (3 + halvings(i, n)) * 2);
    expect_all(&x.to_vec()?, |i| ((3 + halvings(i, n)) * 2 + halvings(i, n)) * 2);
    Ok(())
}

/// The host's launch is indirect, and the launches of kernels have sizes that earlier ones computed.
fn host_and_device_sizes(device: &Device) -> CaseResult {
    let body = "
        kernel void count(device uint* counts, constant uint& n) { counts[0] = n / 32; counts[1] = 1; counts[2] = 1; }
        kernel void each(device elinvar::launch_queue& queue, device const uint* counts, device uint* x,
                         uint i [[thread_position_in_grid]]) {
            x[i] = counts[0];
            if (i % 32 == 0) {
                elinvar::launch next(queue);
                next.set_kernel(0);
                next.set_buffer(x + i, 0);
                next.dispatch_threads(i / 32 % 33, 32);
            }
        }
        kernel void add(device uint* x, uint i [[thread_position_in_grid]]) { x[i] += 100 + i; }";
    let [count, each, add] = kernels(device, body, ["count", "each", "add"])?;
    let mut queue = LaunchQueue::new(device, 64, 1, &[&add])?;
    let (mut counts, mut x) = (device.buffer::<u32>(3)?, device.buffer::<u32>(2048)?);
    let stream = device.stream()?;
    launch(&count, &stream, Grid::threads(1), (&mut counts, 1600_u32))?;
    nested(&each, &stream, &mut queue, Grid::indirect(&counts).group(32), (&counts, &mut x))?;
    expect_all(&x.to_vec()?, |i| {
        let (group, lane) = (i / 32, i % 32);
        let added = if lane < group % 33 { 100 + lane as u32 } else { 0 };
        if i < 1600 { 50 + added } else { 0 }
    });
    Ok(())
}

fn recorded(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let n = 300_usize;
    let mut queue = LaunchQueue::new(device, 1, 9, &[&halve])?;
    let mut x = device.buffer::<u32>(n)?;
    let stream = device.stream()?;
    let mut commands = stream.command_buffer();
    // SAFETY: within n elements.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
    }
    let recording = commands.record()?;
    for _ in 0..7 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            stream.replay(&recording)?;
        }
    }
    expect_all(&x.to_vec()?, |i| 7 * halvings(i, n));
    Ok(())
}

fn streams_at_the_same_time(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let n = 2000_usize;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (device, halve) = (device.clone(), halve.clone());
            std::thread::spawn(move || -> elinvar::Result<Vec<u32>> {
                let mut queue = LaunchQueue::new(&device, 1, 12, &[&halve])?;
                let (mut x, stream) = (device.buffer::<u32>(n)?, device.stream()?);
                for _ in 0..20 {
                    nested(&halve, &stream, &mut queue, Grid::threads(n).group(32), (&mut x, n as u32))?;
                }
                x.to_vec()
            })
        })
        .collect();
    for thread in threads {
        expect_all(&thread.join().expect("no panic")?, |i| 20 * halvings(i, n));
    }
    Ok(())
}

/// In a graph, with a transient as the only buffer of the launches.
fn in_a_graph(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let n = 200_usize;
    let mut queue = LaunchQueue::new(device, 1, 9, &[&halve])?;
    let mut result = device.buffer::<u32>(n)?;
    let mut graph = Graph::new();
    let mut x = graph.transient::<u32>(device, n)?;
    let mut commands = device.stream()?.command_buffer();
    // SAFETY: within n elements.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
    }
    commands.copy(&x, &mut result)?;
    graph.append(commands)?;
    let (mut plan, stream) = (graph.plan()?, device.stream()?);
    for _ in 0..3 {
        result.fill(0)?;
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            plan.run(&stream)?.wait()?;
        }
        expect_all(&result.to_vec()?, |i| 2 * halvings(i, n));
    }
    Ok(())
}
