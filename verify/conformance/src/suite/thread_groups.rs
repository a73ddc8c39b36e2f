//! Groups of threads as objects (`<elinvar/grid>`): sizes, ranks, shuffles, reductions and scans, also of groups that lack threads.

use elinvar::{Device, Grid, Threadgroup};

use super::cooperative::{kernel, run};
use super::{CaseResult, expect_all};

cases!("thread_groups": tiles_of_2, tiles_of_4, tiles_of_8, tiles_of_16, simdgroups, threadgroups, grids, types,
    in_uniform_branches);

/// Grids, and threadgroups of them, that lack threads at their edges: lanes at the end, and lanes in between.
const SIZES: [([u32; 3], [u32; 3]); 7] = [
    ([512, 1, 1], [128, 1, 1]),
    ([1000, 1, 1], [96, 1, 1]),
    ([77, 1, 1], [33, 1, 1]),
    ([5, 1, 1], [1, 1, 1]),
    ([25, 9, 1], [10, 7, 1]),
    ([9, 5, 4], [4, 3, 2]),
    ([40, 24, 1], [16, 16, 1]),
];

/// An associative operation that does not commute: the composition of two functions x ↦ a x + b, of 16 bits each.
const COMPOSE: &str = "struct compose {
        uint operator()(uint p, uint q) const {
            uint a = (p & 0xffffu) * (q & 0xffffu), b = (q & 0xffffu) * (p >> 16) + (q >> 16);
            return (a & 0xffffu) | b << 16;
        }
    };
    ";

fn compose(p: u32, q: u32) -> u32 {
    let a = (p & 0xffff).wrapping_mul(q & 0xffff);
    let b = (q & 0xffff).wrapping_mul(p >> 16).wrapping_add(q >> 16);
    a & 0xffff | b << 16
}

/// Numbers with odd factors, so that products keep their bits.
fn values(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 3 | 1).collect()
}

/// The threads of each group of a grid: the index in the grid (x fastest) of each, in the order of ranks. Groups have `width` lanes of
/// their threadgroup each, or are whole threadgroups.
fn groups(threads: [u32; 3], group: [u32; 3], width: Option<u32>) -> Vec<Vec<usize>> {
    let count = |d: usize| threads[d].div_ceil(group[d]);
    let mut all = Vec::new();
    for at in 0..count(0) * count(1) * count(2) {
        let at = [at % count(0), at / count(0) % count(1), at / count(0) / count(1)];
        let lanes = group.iter().product::<u32>();
        for first in (0..lanes).step_by(width.unwrap_or(lanes) as usize) {
            let lanes = first..(first + width.unwrap_or(lanes)).min(lanes);
            let places = lanes.map(|lane| {
                let within = [lane % group[0], lane / group[0] % group[1], lane / group[0] / group[1]];
                [0, 1, 2].map(|d| at[d] * group[d] + within[d])
            });
            let present = places.filter(|place| (0..3).all(|d| place[d] < threads[d]));
            let index = |p: [u32; 3]| ((p[2] * threads[1] + p[1]) * threads[0] + p[0]) as usize;
            let members: Vec<usize> = present.map(index).collect();
            all.extend((!members.is_empty()).then_some(members));
        }
    }
    all
}

const BODY: &str = "
        uint i = (p.z * n.y + p.y) * n.x + p.x, x = in[i];
        device uint* to = out + i * WORDS;";

fn parameters(words: usize) -> String {
    let body = BODY.replace("WORDS", &format!("{words}u"));
    format!(
        "(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]], threadgroup uint* memory [[threadgroup(0)]],
        device uint* partial [[buffer(2)]], uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]]) {{{body}"
    )
}

/// Runs a kernel that writes this many words for each thread, and compares them with `expected`: members of a group in the order of
/// their ranks, their values, and the rank.
fn check(
    device: &Device,
    (name, body, words): (&str, &str, usize),
    width: Option<u32>,
    expected: impl Fn(&[u32], usize) -> Vec<u32>,
) -> CaseResult {
    let kernel = kernel(device, name, &format!("{COMPOSE}kernel void {name}{}{body} }}", parameters(words)))?;
    for (threads, group) in SIZES {
        let count = threads.iter().product::<u32>() as usize;
        let x = values(count);
        let (input, mut out) = (device.buffer_with_data(&x)?, device.buffer::<u32>(count * words)?);
        let mut partial = device.buffer::<u32>(count)?;
        let memory = Threadgroup::of::<u32>(group.iter().product::<u32>() as usize);
        let args = (&input, &mut out, memory, &mut partial);
        run(device, &kernel, Grid::threads(threads).group(group), args)?;
        let mut all = vec![0; count * words];
        for members in groups(threads, group, width) {
            let own: Vec<u32> = members.iter().map(|i| x[*i]).collect();
            for (rank, i) in members.iter().enumerate() {
                all[i * words..(i + 1) * words].copy_from_slice(&expected(&own, rank));
            }
        }
        expect_all(&out.to_vec()?, |i| all[i]);
    }
    Ok(())
}

fn fold(values: &[u32], op: impl Fn(u32, u32) -> u32) -> u32 {
    values.iter().copied().reduce(op).unwrap_or(0)
}

fn tiles(device: &Device, name: &str, width: u32) -> CaseResult {
    let made = if width == 32 { "this_simdgroup()".into() } else { format!("this_tile<{width}>()") };
    let body = format!(
        "
        auto t = elinvar::{made};
        uint r = t.thread_rank(), s = t.size();
        to[0] = r; to[1] = s; to[2] = t.shuffle(x, s - 1u - r);
        to[3] = t.shuffle_xor(x, 1u); to[4] = t.shuffle_xor(x, {}u);
        to[5] = t.shuffle_up(x, 1u); to[6] = t.shuffle_up(x, 3u); to[7] = t.shuffle_down(x, 1u); to[8] = t.shuffle_down(x, 2u);
        to[9] = t.reduce(x, elinvar::plus()); to[10] = t.reduce(x, elinvar::multiplies());
        to[11] = t.reduce(x, elinvar::minimum()); to[12] = t.reduce(x, elinvar::maximum());
        to[13] = t.reduce(x, elinvar::bit_and()); to[14] = t.reduce(x, elinvar::bit_or()); to[15] = t.reduce(x, elinvar::bit_xor());
        to[16] = t.reduce(x, compose());
        to[17] = t.inclusive_scan(x, elinvar::plus()); to[18] = t.inclusive_scan(x, compose());
        to[19] = t.exclusive_scan(x, elinvar::plus()); to[20] = t.exclusive_scan(x, compose(), 1u);
        t.sync();",
        width / 2
    );
    check(device, (name, &body, 21), Some(width), |x, rank| {
        let (size, at) = (x.len(), |i: usize| x.get(i).copied().unwrap_or(x[rank]));
        let up = |by: usize| rank.checked_sub(by).map_or(x[rank], |i| x[i]);
        vec![
            rank as u32,
            size as u32,
            x[size - 1 - rank],
            at(rank ^ 1),
            at(rank ^ (width as usize / 2)),
            up(1),
            up(3),
            at(rank + 1),
            at(rank + 2),
            fold(x, u32::wrapping_add),
            fold(x, u32::wrapping_mul),
            fold(x, u32::min),
            fold(x, u32::max),
            fold(x, |a, b| a & b),
            fold(x, |a, b| a | b),
            fold(x, |a, b| a ^ b),
            fold(x, compose),
            fold(&x[..=rank], u32::wrapping_add),
            fold(&x[..=rank], compose),
            fold(&x[..rank], u32::wrapping_add),
            if rank == 0 { 1 } else { fold(&x[..rank], compose) },
        ]
    })
}

fn tiles_of_2(device: &Device) -> CaseResult {
    tiles(device, "pairs", 2)
}

fn tiles_of_4(device: &Device) -> CaseResult {
    tiles(device, "fours", 4)
}

fn tiles_of_8(device: &Device) -> CaseResult {
    tiles(device, "eights", 8)
}

fn tiles_of_16(device: &Device) -> CaseResult {
    tiles(device, "sixteens", 16)
}

fn simdgroups(device: &Device) -> CaseResult {
    tiles(device, "simdgroups", 32)
}

fn threadgroups(device: &Device) -> CaseResult {
    let body = "
        auto t = elinvar::this_threadgroup();
        uint r = t.thread_rank(), s = t.size();
        to[0] = r; to[1] = s; to[2] = t.shuffle(x, s - 1u - r, memory);
        to[3] = t.reduce(x, elinvar::plus(), memory); to[4] = t.reduce(x, compose(), memory);
        to[5] = t.inclusive_scan(x, elinvar::maximum(), memory); to[6] = t.inclusive_scan(x, compose(), memory);
        to[7] = t.exclusive_scan(x, elinvar::plus(), memory); to[8] = t.exclusive_scan(x, compose(), memory, 1u);
        t.sync();";
    check(device, ("whole", body, 9), None, |x, rank| {
        vec![
            rank as u32,
            x.len() as u32,
            x[x.len() - 1 - rank],
            fold(x, u32::wrapping_add),
            fold(x, compose),
            fold(&x[..=rank], u32::max),
            fold(&x[..=rank], compose),
            fold(&x[..rank], u32::wrapping_add),
            if rank == 0 { 1 } else { fold(&x[..rank], compose) },
        ]
    })
}

/// Reductions and scans of a grid are in the order of its threadgroups.
fn grids(device: &Device) -> CaseResult {
    let name = "all";
    let body = "
        auto g = elinvar::this_grid();
        to[0] = uint(g.thread_rank()); to[1] = uint(g.size()); to[2] = g.num_threadgroups();
        to[3] = g.reduce(x, elinvar::plus(), memory, partial); to[4] = g.reduce(x, compose(), memory, partial);
        to[5] = g.inclusive_scan(x, elinvar::plus(), memory, partial); to[6] = g.inclusive_scan(x, compose(), memory, partial);
        g.sync();";
    let kernel = kernel(device, name, &format!("{COMPOSE}kernel void {name}{}{body} }}", parameters(7)))?;
    for (threads, group) in SIZES {
        let count = threads.iter().product::<u32>() as usize;
        let x = values(count);
        let (input, mut out) = (device.buffer_with_data(&x)?, device.buffer::<u32>(count * 7)?);
        let parts = groups(threads, group, None);
        let mut partial = device.buffer::<u32>(parts.len())?;
        let memory = Threadgroup::of::<u32>(group.iter().product::<u32>() as usize);
        let args = (&input, &mut out, memory, &mut partial);
        run(device, &kernel, Grid::threads(threads).group(group), args)?;
        let order: Vec<usize> = parts.concat();
        let sorted: Vec<u32> = order.iter().map(|i| x[*i]).collect();
        let mut place = vec![0; count];
        order.iter().enumerate().for_each(|(at, i)| place[*i] = at);
        let scan = |op: fn(u32, u32) -> u32| -> Vec<u32> {
            let next = |sum: &mut Option<u32>, value: &u32| {
                *sum = Some(sum.map_or(*value, |sum| op(sum, *value)));
                *sum
            };
            sorted.iter().scan(None, next).collect()
        };
        let (sums, composed) = (scan(u32::wrapping_add), scan(compose));
        expect_all(&out.to_vec()?, |word| match (word / 7, word % 7) {
            (i, 0) => i as u32,
            (_, 1) => count as u32,
            (_, 2) => parts.len() as u32,
            (_, 3) => sums[count - 1],
            (_, 4) => composed[count - 1],
            (i, 5) => sums[place[i]],
            (i, _) => composed[place[i]],
        });
    }
    Ok(())
}

/// Values of several types.
fn types(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "types",
        "kernel void types(device const uint* in [[buffer(0)]], device ulong* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
            auto t = elinvar::this_tile<8>();
            uint x = in[i];
            device ulong* to = out + i * 7u;
            to[0] = t.reduce(ulong(x) << 20, elinvar::plus());
            to[1] = ulong(uint(t.inclusive_scan(int(x) - 70, elinvar::minimum()) + 1000));
            to[2] = ulong(t.reduce(short(x), elinvar::maximum()));
            to[3] = ulong(t.reduce(uchar(x), elinvar::bit_xor()));
            to[4] = ulong(t.inclusive_scan(float(x % 50u), elinvar::plus()));
            to[5] = ulong(float(t.exclusive_scan(half(x % 16u), elinvar::plus())));
            to[6] = ulong(t.shuffle(bool(x & 1u), 7u - t.thread_rank()));
        }",
    )?;
    let x: Vec<u32> = (0..192_u32).map(|i| i * 37 % 128).collect();
    let (input, mut out) = (device.buffer_with_data(&x)?, device.buffer::<u64>(192 * 7)?);
    run(device, &kernel, Grid::threads(192).group(64), (&input, &mut out))?;
    expect_all(&out.to_vec()?, |word| {
        let (i, what) = (word / 7, word % 7);
        let (all, rank) = (&x[i / 8 * 8..][..8], i % 8);
        let wide = |values: &[u32]| values.iter().copied().map(u64::from).collect::<Vec<_>>();
        match what {
            0 => wide(all).iter().sum::<u64>() << 20,
            1 => wide(&all[..=rank]).into_iter().min().unwrap_or(0) + 930,
            2 => wide(all).into_iter().max().unwrap_or(0),
            3 => wide(all).into_iter().fold(0, |a, b| a ^ b),
            4 => wide(&all[..=rank]).into_iter().map(|x| x % 50).sum(),
            5 => wide(&all[..rank]).into_iter().map(|x| x % 16).sum(),
            _ => u64::from(all[7 - rank] & 1),
        }
    });
    Ok(())
}

/// Tiles and threadgroups in branches that all their threads take together.
fn in_uniform_branches(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "branches",
        "kernel void branches(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]], threadgroup uint* memory [[threadgroup(0)]],
            uint i [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]]) {
            uint x = in[i], y = 7u;
            if ((i / 4u) % 3u != 1u) y = elinvar::this_tile<4>().reduce(x, elinvar::plus());
            if (group % 2u == 0u) {
                y += elinvar::this_threadgroup().inclusive_scan(x, elinvar::plus(), memory);
            } else {
                y ^= elinvar::this_simdgroup().reduce(x, elinvar::maximum());
            }
            out[i] = y;
        }",
    )?;
    let x = values(640);
    let (input, mut out) = (device.buffer_with_data(&x)?, device.buffer::<u32>(640)?);
    let args = (&input, &mut out, Threadgroup::of::<u32>(64));
    run(device, &kernel, Grid::threads(640).group(64), args)?;
    expect_all(&out.to_vec()?, |i| {
        let around = |width: usize| &x[i / width * width..][..width];
        let y = if i / 4 % 3 == 1 { 7 } else { fold(around(4), u32::wrapping_add) };
        match i / 64 % 2 {
            0 => y.wrapping_add(fold(&around(64)[..=i % 64], u32::wrapping_add)),
            _ => y ^ fold(around(32), u32::max),
        }
    });
    Ok(())
}
