//! The threadgroup sizes that [`Kernel::tune`](crate::Kernel::tune) tries, in the order in which a model expects them to be fast.

use std::cmp::Reverse;

use elinvar_driver::{Caps, DeviceKind, Dim3, Signature};

use crate::launch::suggest::{shape_on, suggested_size};

/// Sizes that are tried for launches over `grid`: powers of two of threads in the shape of the suggestion; in one dimension also these times three, as powers of
/// two in step with the sizes of caches can be slow, and sizes that give each unit the same number of threadgroups; in two and three dimensions all powers of two along each.
pub(crate) fn shapes(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Vec<Dim3> {
    let (width, limits) = (caps.limits.simdgroup_width, caps.limits.max_threadgroup_size);
    let most = most.clamp(1, caps.limits.max_threads_per_threadgroup.max(1));
    let mut sizes = vec![suggested_size(grid, most, caps, signature)];
    let mut add = |size: Dim3| {
        let is_within = size.x <= limits.x && size.y <= limits.y && size.z <= limits.z;
        if is_within && !sizes.contains(&size) {
            sizes.push(size);
        }
    };
    let aims: Vec<u32> = (0..6).map(|power| width << power).filter(|aim| *aim <= most).collect();
    aims.iter().for_each(|aim| add(shape_on(caps, grid, *aim)));
    if grid.y <= 1 && grid.z <= 1 {
        aims.iter().filter(|aim| 3 * **aim <= most).for_each(|aim| add(Dim3::new(3 * aim, 1, 1)));
        let units = caps.limits.compute_units.max(1);
        for share in [units, units.saturating_mul(2)].map(|units| grid.x.div_ceil(units)) {
            if let Some(even) = share.max(1).checked_next_multiple_of(width).filter(|even| *even <= most) {
                add(Dim3::new(even, 1, 1));
            }
        }
        return sizes;
    }
    let powers = |from: u32, side: u32| {
        let last = side.clamp(1, most).next_power_of_two();
        (0..=10).map(|power| 1 << power).filter(move |power| (from.min(last)..=last).contains(power))
    };
    for x in powers(4, grid.x) {
        for z in powers(1, grid.z) {
            for y in powers(1, grid.y) {
                let size = Dim3::new(x, y, z);
                if (u128::from(width)..=u128::from(most)).contains(&size.volume()) {
                    add(size);
                }
            }
        }
    }
    sizes
}

/// Candidates for tuning, the suggested size first: all [`shapes`], in the order in which the model expects them to be fast. `resident` is the
/// number of threadgroups of a size that the device holds at a time, if it is known.
pub(crate) fn candidates(
    grid: Dim3,
    most: u32,
    caps: &Caps,
    signature: &Signature,
    resident: impl Fn(Dim3) -> Option<u64>,
) -> Vec<Dim3> {
    let all = shapes(grid, most, caps, signature);
    let expected = |size: Dim3| expected(grid, size, caps, resident(size));
    let mut rest: Vec<(f64, Dim3)> = all[1..].iter().map(|size| (expected(*size), *size)).collect();
    rest.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rest: Vec<Dim3> = rest.into_iter().map(|(_, size)| size).collect();
    varied(all[0], &rest)
}

/// Sizes in the model's order so that few of them are of many kinds, `first` at the front: the model does not know which of the grid's dimensions memory
/// follows, so its own order, numbers of threads, narrow shapes and wide shapes take turns.
fn varied(first: Dim3, rest: &[Dim3]) -> Vec<Dim3> {
    let volumes = best_of_each(rest, |size| size.volume(), |volume| volume != first.volume());
    let mut narrow = best_of_each(rest, |size| size.x, |x| x < first.x);
    let mut wide = best_of_each(rest, |size| size.x, |x| x > first.x);
    narrow.sort_by_key(|size| size.x);
    wide.sort_by_key(|size| Reverse(size.x));
    let mut lists = [rest.to_vec(), volumes, narrow, wide].map(Vec::into_iter);
    let mut sizes = vec![first];
    let mut add = |size: Dim3| {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    };
    while lists.iter().any(|list| list.len() > 0) {
        lists.iter_mut().filter_map(Iterator::next).for_each(&mut add);
    }
    sizes
}

/// The first size with each value of a key that is wanted.
fn best_of_each<K: PartialEq + Copy>(
    sizes: &[Dim3],
    key: impl Fn(Dim3) -> K,
    is_wanted: impl Fn(K) -> bool,
) -> Vec<Dim3> {
    let mut seen = Vec::new();
    let is_first = |size: &&Dim3| {
        let key = key(**size);
        let is_new = is_wanted(key) && !seen.contains(&key);
        seen.push(key);
        is_new
    };
    sizes.iter().filter(is_first).copied().collect()
}

/// The size that the model expects to be fastest; the suggested one, unless another is expected to save more than 2 %.
pub(crate) fn predicted(
    grid: Dim3,
    most: u32,
    caps: &Caps,
    signature: &Signature,
    resident: impl Fn(Dim3) -> Option<u64>,
) -> Dim3 {
    let time = |size: &Dim3| expected(grid, *size, caps, resident(*size));
    let all = candidates(grid, most, caps, signature, &resident);
    match all[..] {
        [first, best, ..] if time(&best) < 0.98 * time(&first) => best,
        _ => suggested_size(grid, most, caps, signature),
    }
}

/// The expected time of a launch with a threadgroup size, in units of its own.
fn expected(grid: Dim3, size: Dim3, caps: &Caps, resident: Option<u64>) -> f64 {
    let units = f64::from(caps.limits.compute_units.max(1));
    match caps.kind {
        DeviceKind::Cpu => on_cpu(grid, size, units),
        _ => on_gpu(grid, size, caps.limits.simdgroup_width, units, resident),
    }
}

/// Of what a size changes on a GPU: lanes that idle in threadgroups at the grid's edges and in incomplete simdgroups, units that idle in the last wave of
/// threadgroups, the start of a threadgroup, and the share of its simdgroups that a unit holds, of which a half hides latencies.
fn on_gpu(grid: Dim3, size: Dim3, simdgroup: u32, units: f64, resident: Option<u64>) -> f64 {
    /// A threadgroup's start in simdgroups' executions, and simdgroups of a unit that are enough to hide latencies.
    const START: f64 = 0.5;
    const ENOUGH: f64 = 32.0;
    let groups = grid.div_ceil(size).volume() as f64;
    let simdgroups = (size.volume() as f64 / f64::from(simdgroup.max(1))).ceil();
    let work = groups * (simdgroups + START);
    let slots = resident.map_or(units, |resident| (resident as f64).max(1.0));
    let held = resident.map_or(ENOUGH, |resident| resident as f64 / units * simdgroups);
    work * tail(groups, slots) * (ENOUGH / held).max(1.0)
}

/// Of what a size changes on a CPU: vectors of threadgroups at the grid's edges, which have masks, with their threads, the start of a threadgroup, and cores
/// that idle behind their last one. Vectors of 16 threads are those of AVX-512; narrower ones have much the same order.
fn on_cpu(grid: Dim3, size: Dim3, units: f64) -> f64 {
    /// A threadgroup's start in executions of a vector of a whole threadgroup.
    const START: f64 = 0.25;
    let [x, y, z] =
        [(grid.x, size.x), (grid.y, size.y), (grid.z, size.z)].map(|(all, one)| extents(all, one));
    let mut work = 0.0;
    for (x, columns) in x {
        for (y, rows) in y {
            for (z, layers) in z {
                let threads = Dim3::new(x, y, z);
                work += columns * rows * layers * (START + vectors(threads, size));
            }
        }
    }
    work * tail(grid.div_ceil(size).volume() as f64, units)
}

/// The time of a threadgroup with these threads in executions of a vector without a mask.
fn vectors(threads: Dim3, size: Dim3) -> f64 {
    /// The execution of a vector with a mask; half of it is by thread, as memory accesses are.
    const MASKED: f64 = 1.6;
    const LANES: u32 = 16;
    if threads == size {
        return f64::from(size.x * size.y * size.z) / f64::from(LANES);
    }
    let (mut work, mut last) = (0.0, None);
    for row in (0..threads.z).flat_map(|z| (0..threads.y).map(move |y| z * size.y + y)) {
        let (begin, end) = (row * size.x, row * size.x + threads.x);
        work += MASKED / 2.0 * f64::from(threads.x) / f64::from(LANES);
        for vector in begin / LANES..end.div_ceil(LANES) {
            work += if last == Some(vector) || threads.x == 0 { 0.0 } else { MASKED / 2.0 };
            last = Some(vector);
        }
    }
    work
}

/// Threads along a dimension of whole threadgroups and of the one at the edge, each with the number of these threadgroups.
fn extents(all: u32, one: u32) -> [(u32, f64); 2] {
    let one = one.max(1);
    [(one, f64::from(all / one)), (all % one, if all.is_multiple_of(one) { 0.0 } else { 1.0 })]
}

/// The time until the last of `groups` threadgroups has ended on so many units, as a multiple of what it is without idle units.
fn tail(groups: f64, units: f64) -> f64 {
    let waves = (groups / units).max(f64::MIN_POSITIVE);
    waves.ceil() / waves
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;
    use crate::launch::suggest::tests::signature;

    #[test]
    fn the_model_counts_idle_lanes_units_and_starts() {
        let time = |grid: u32, size: u32, units: f64| {
            on_gpu(Dim3::new(grid, 1, 1), Dim3::new(size, 1, 1), 32, units, None)
        };
        assert!(time(1 << 20, 256, 4.0) < time(1 << 20, 32, 4.0), "starts");
        assert!(time(1 << 20, 256, 4.0) < time(1 << 20, 264, 4.0), "an incomplete simdgroup");
        assert!(time(2048, 256, 8.0) < time(2048, 1024, 8.0), "units without work");
        let held =
            |groups: u64| on_gpu(Dim3::new(1 << 20, 1, 1), Dim3::new(256, 1, 1), 32, 100.0, Some(groups));
        assert!(held(800) < held(100), "few simdgroups hide no latencies");
        assert_eq!(
            held(400),
            on_gpu(Dim3::new(1 << 20, 1, 1), Dim3::new(256, 1, 1), 32, 100.0, Some(400)),
            "the same each time"
        );
    }

    #[test]
    fn candidates_fit_narrow_grids_and_divide_short_ones_evenly() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(2).devices().unwrap().remove(0);
        let mut caps = device.caps().clone();
        caps.limits.compute_units = 2;
        let signature = signature(0, 0);
        let of = |grid: [u32; 3]| candidates(grid.into(), 1024, &caps, &signature, |_| None)[..6].to_vec();
        assert!(of([192, 1, 1]).contains(&Dim3::new(96, 1, 1)), "one threadgroup for each unit");
        let narrow = of([7, 5, 8192]);
        assert!(narrow.iter().any(|size| size.x <= 8 && size.y == 1), "idle lanes along y: {narrow:?}");
        for grid in
            [[1, 1, 1], [192, 1, 1], [3, 9, 1], [7, 5, 8192], [128, 128, 128], [1, 1, 70], [u32::MAX; 3]]
        {
            for most in [32, 100, 1024] {
                for size in shapes(grid.into(), most, &caps, &signature) {
                    let (limits, volume) = (caps.limits.max_threadgroup_size, size.volume());
                    assert!((32..=u128::from(most)).contains(&volume), "{grid:?} by {most}: {size}");
                    assert!(size.x <= limits.x && size.y <= limits.y && size.z <= limits.z, "{size}");
                }
            }
        }
    }

    #[test]
    fn few_sizes_are_of_many_kinds() {
        let sizes =
            |list: &[(u32, u32)]| -> Vec<Dim3> { list.iter().map(|(x, y)| Dim3::new(*x, *y, 1)).collect() };
        let rest =
            sizes(&[(32, 32), (4, 256), (512, 2), (8, 128), (256, 4), (32, 16), (4, 128), (32, 4), (64, 4)]);
        let all = varied(Dim3::new(32, 8, 1), &rest);
        let first = [(32, 8), (32, 32), (4, 256), (512, 2), (32, 16), (8, 128), (256, 4)];
        assert_eq!(all[..7], sizes(&first));
        assert_eq!(all.len(), rest.len() + 1, "all, and none twice");
        assert!(rest.iter().all(|size| all.contains(size)));
        let flat: Vec<Dim3> = [1024, 512, 128, 64, 32].map(|x| Dim3::new(x, 1, 1)).into();
        let all = varied(Dim3::new(256, 1, 1), &flat);
        assert_eq!((all.len(), all[0].x, all[1].x), (6, 256, 1024));
    }

    #[test]
    fn on_a_cpu_the_model_counts_vectors_with_masks() {
        let time = |grid: [u32; 3], size: [u32; 3]| on_cpu(grid.into(), size.into(), 2.0);
        assert!(time([9, 7, 43], [8, 2, 4]) < time([9, 7, 43], [16, 4, 4]), "lanes without threads");
        assert!(time([1 << 20, 1, 1], [256, 1, 1]) < time([1 << 20, 1, 1], [32, 1, 1]), "starts");
        assert!(
            time([192, 1, 1], [96, 1, 1]) < time([192, 1, 1], [128, 1, 1]),
            "a core without a threadgroup"
        );
        assert_eq!(time([32, 8, 1], [32, 8, 1]), (0.25 + 16.0) * 2.0, "one core of two");
        assert_eq!(
            vectors(Dim3::new(4, 3, 2), Dim3::new(8, 4, 2)),
            0.8 * (4.0 + 6.0 / 4.0),
            "two rows in a vector"
        );
        assert_eq!(
            vectors(Dim3::new(4, 1, 1), Dim3::new(32, 1, 1)),
            0.8 * 1.25,
            "the second vector has no threads"
        );
    }
}
