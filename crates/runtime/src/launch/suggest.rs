//! Chooses the threadgroup size of a launch that specifies none, with the reason.
//!
//! Threadgroups are as wide as the grid if that is narrower than a simdgroup, since the threads of a simdgroup should be
//! consecutive along x; the rest of the target size is distributed to y and z. The result is within the limits of kernel and
//! device, and a multiple of the simdgroup width if these allow it.
//!
//! On a CPU, threadgroups of a grid with few threads are smaller, so that all cores have some ([`spread`]).

use std::cmp::Reverse;
use std::fmt;

use elinvar_driver::{ArgKind, Caps, CodeFacts, DeviceKind, Dim3, Signature};

/// A threadgroup size and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// Size in threads along x, y and z.
    pub group: Dim3,
    /// The reason, for display.
    pub reason: String,
}

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.group, self.reason)
    }
}

/// Default target size in threads.
const AIM: u32 = 256;
/// Target size of a kernel with threadgroup or grid barriers: fewer, larger threadgroups.
const AIM_WITH_BARRIERS: u32 = 512;
/// Threadgroups for each compute unit, if the grid has enough simdgroups: units wait for the last one a fifth of the time at most. The measurements are
/// in docs/analysis.md.
const GROUPS_OF_A_UNIT: u128 = 4;

/// The size for a grid and a kernel with at most `most` threads per threadgroup.
pub(crate) fn suggest(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Suggestion {
    let (whole, barriers) = limited_aim(most, caps, signature);
    let aim = spread(grid, whole, caps, signature);
    let group = shape_on(caps, grid, aim);
    let dimensions = if grid.z > 1 {
        "three"
    } else if grid.y > 1 {
        "two"
    } else {
        "one"
    };
    let limit = if whole < AIM { format!(", the kernel allows {most}") } else { String::new() };
    let few = if aim < whole {
        format!(", few threads for {} cores", caps.limits.compute_units)
    } else {
        String::new()
    };
    let reason = format!(
        "a grid of {dimensions} dimension{}, at most {aim} threads in simdgroups of {}{barriers}{limit}{few}",
        if dimensions == "one" { "" } else { "s" },
        caps.limits.simdgroup_width
    );
    Suggestion { group, reason }
}

/// The size of [`suggest`], without the reason.
pub(crate) fn suggested_size(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Dim3 {
    let (aim, _) = limited_aim(most, caps, signature);
    shape_on(caps, grid, spread(grid, aim, caps, signature))
}

/// The size of [`suggest`] without [`spread`]: 256 threads, or 512 with barriers, within the kernel's limit.
pub(crate) fn usual_size(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Dim3 {
    shape_on(caps, grid, limited_aim(most, caps, signature).0)
}

/// [`usual_size`] for a large grid, whatever this one is: threadgroups that a narrow grid does not fill. A simdgroup's code is one for consecutive threads
/// along x, and on a CPU that can be worth more than the lanes that idle; docs/analysis.md has the measurements.
pub(crate) fn whole_size(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Dim3 {
    let large =
        if grid.y > 1 || grid.z > 1 { Dim3::new(u32::MAX, u32::MAX, 1) } else { Dim3::new(u32::MAX, 1, 1) };
    usual_size(large, most, caps, signature)
}

/// The target size for a grid with few threads: on a CPU, of a kernel whose threads work alone, [`halved`]. It has not been measured on GPUs.
fn spread(grid: Dim3, aim: u32, caps: &Caps, signature: &Signature) -> u32 {
    let has_memory = signature.args.iter().any(|arg| arg.kind == ArgKind::Threadgroup);
    match caps.kind == DeviceKind::Cpu && work_alone(signature.code) && !has_memory {
        true => halved(grid.volume(), aim, caps.limits.compute_units, caps.limits.simdgroup_width),
        false => aim,
    }
}

/// Whether a kernel is known to have no barriers and no threadgroup memory. The threads of others work together, and a larger threadgroup does more.
fn work_alone(code: Option<CodeFacts>) -> bool {
    code.is_some_and(|code| code.barriers + code.grid_barriers == 0 && code.threadgroup_memory == 0)
}

/// Halves a target size, down to a simdgroup, until there are [`GROUPS_OF_A_UNIT`] threadgroups for each of several compute units.
fn halved(threads: u128, aim: u32, units: u32, simdgroup: u32) -> u32 {
    let enough = u128::from(units) * GROUPS_OF_A_UNIT;
    let (mut aim, simdgroup) = (aim, simdgroup.max(1));
    while units > 1 && aim / 2 >= simdgroup && threads.div_ceil(u128::from(aim)) < enough {
        aim = floor_multiple(aim / 2, simdgroup);
    }
    aim
}

/// Target size within the kernel's limit, and the reason.
fn limited_aim(most: u32, caps: &Caps, signature: &Signature) -> (u32, &'static str) {
    let (aim, barriers) = aim(signature.code);
    let most = most.max(1);
    (if aim <= most { aim } else { floor_multiple(most, caps.limits.simdgroup_width) }, barriers)
}

/// Target size according to the code's facts, and the reason.
fn aim(code: Option<CodeFacts>) -> (u32, &'static str) {
    match code.map(|code| code.barriers + code.grid_barriers > 0) {
        Some(true) => (AIM_WITH_BARRIERS, ", the kernel has barriers"),
        Some(false) => (AIM, ""),
        None => (AIM, ", whether the kernel has barriers is unknown"),
    }
}

/// Sizes that are tried at least for launches of `grid`: powers of two of threads, in the shape of the suggestion and, in two and three
/// dimensions, narrower and wider ones.
pub(crate) fn shapes(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Vec<Dim3> {
    let width = caps.limits.simdgroup_width;
    let most = most.clamp(1, caps.limits.max_threads_per_threadgroup.max(1));
    let mut sizes = vec![suggested_size(grid, most, caps, signature)];
    let mut add = |size: Dim3| {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    };
    for aim in (0..6).map(|power| width << power).filter(|aim| *aim <= most) {
        add(shape_on(caps, grid, aim));
        if grid.y > 1 {
            for x in [4, 8, 16, 64, 128, 256, 512].into_iter().filter(|x| *x <= aim && *x <= grid.x) {
                let rest = aim / x;
                let z = if grid.z > 1 { floor_power((rest / 4).max(1)).min(floor_power(grid.z)) } else { 1 };
                let size = Dim3::new(x, (rest / z).min(floor_power(grid.y)), z);
                let limits = caps.limits.max_threadgroup_size;
                if size.x <= limits.x && size.y <= limits.y && size.z <= limits.z {
                    add(size);
                }
            }
        }
    }
    sizes
}

/// Candidates for tuning, the suggested size first: of all [`shapes`], those that the model expects to be fastest, up to `count`.
///
/// The model is of what a size changes: lanes that idle in threadgroups at the grid's edges and in incomplete simdgroups, units that idle in the last wave of
/// threadgroups, the start of a threadgroup, and the share of its simdgroups that a unit holds, of which a half hides latencies. `resident` is the
/// number of threadgroups of a size that the device holds at a time, if it is known.
pub(crate) fn candidates(
    grid: Dim3,
    most: u32,
    caps: &Caps,
    signature: &Signature,
    count: usize,
    resident: impl Fn(Dim3) -> Option<u64>,
) -> Vec<Dim3> {
    let all = shapes(grid, most, caps, signature);
    let units = f64::from(caps.limits.compute_units.max(1));
    let predicted = |size: Dim3| predict(grid, size, caps.limits.simdgroup_width, units, resident(size));
    let mut rest: Vec<(f64, Dim3)> = all[1..].iter().map(|size| (predicted(*size), *size)).collect();
    rest.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rest: Vec<Dim3> = rest.into_iter().map(|(_, size)| size).collect();
    let mut sizes = varied(all[0], &rest);
    sizes.truncate(count);
    sizes
}

/// Sizes in the model's order so that few of them are of many kinds, `first` at the front: the model does not know which of the grid's dimensions memory
/// follows, so numbers of threads, narrow shapes and wide shapes take turns.
fn varied(first: Dim3, rest: &[Dim3]) -> Vec<Dim3> {
    let volumes = best_of_each(rest, |size| size.volume(), |volume| volume != first.volume());
    let mut narrow = best_of_each(rest, |size| size.x, |x| x < first.x);
    let mut wide = best_of_each(rest, |size| size.x, |x| x > first.x);
    narrow.sort_by_key(|size| size.x);
    wide.sort_by_key(|size| Reverse(size.x));
    let mut lists = [volumes, narrow, wide].map(Vec::into_iter);
    let mut sizes = vec![first];
    let mut add = |size: Dim3| {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    };
    while lists.iter().any(|list| list.len() > 0) {
        lists.iter_mut().filter_map(Iterator::next).for_each(&mut add);
    }
    rest.iter().copied().for_each(&mut add);
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
    let units = f64::from(caps.limits.compute_units.max(1));
    let time = |size: &Dim3| predict(grid, *size, caps.limits.simdgroup_width, units, resident(*size));
    let all = candidates(grid, most, caps, signature, 2, &resident);
    match all[..] {
        [first, best, ..] if time(&best) < 0.98 * time(&first) => best,
        _ => suggested_size(grid, most, caps, signature),
    }
}

/// The expected time of a launch with a threadgroup size, in units of its own.
fn predict(grid: Dim3, size: Dim3, simdgroup: u32, units: f64, resident: Option<u64>) -> f64 {
    /// A threadgroup's start in simdgroups' executions, and simdgroups of a unit that are enough to hide latencies.
    const START: f64 = 0.5;
    const ENOUGH: f64 = 32.0;
    let groups: f64 = grid
        .to_array()
        .iter()
        .zip(size.to_array())
        .map(|(all, one)| f64::from(all.div_ceil(one.max(1))))
        .product();
    let simdgroups = (size.volume() as f64 / f64::from(simdgroup.max(1))).ceil();
    let work = groups * (simdgroups + START);
    let slots = resident.map_or(units, |resident| (resident as f64).max(1.0));
    let waves = (groups / slots).max(f64::MIN_POSITIVE);
    let tail = waves.ceil() / waves;
    let held = resident.map_or(ENOUGH, |resident| resident as f64 / units * simdgroups);
    work * tail * (ENOUGH / held).max(1.0)
}

/// The largest multiple of `unit` up to `value`; `value` if there is none.
fn floor_multiple(value: u32, unit: u32) -> u32 {
    if value < unit { value } else { value / unit * unit }
}

/// [`shape`] within a device's limits.
fn shape_on(caps: &Caps, grid: Dim3, aim: u32) -> Dim3 {
    shape(grid, aim, caps.limits.max_threadgroup_size, caps.limits.simdgroup_width)
}

/// Shape of about `aim` threads for the grid.
fn shape(grid: Dim3, aim: u32, limits: Dim3, simdgroup: u32) -> Dim3 {
    let flat = grid.y <= 1 && grid.z <= 1;
    let wide = if flat { aim } else { simdgroup.min(aim) };
    let fit = |size: u32, most: u32| size.max(1).checked_next_power_of_two().unwrap_or(most).min(most.max(1));
    // One dimension: whole simdgroups; otherwise powers of two.
    let x = match flat {
        true => grid.x.clamp(1, wide).next_multiple_of(simdgroup).min(wide).min(limits.x),
        false => fit(grid.x, wide).min(limits.x),
    };
    let rest = aim / x.max(1);
    // y and z share the rest, so that threadgroups are not flat; y has the larger part, as neighbors along it are nearer in memory.
    let z = if grid.z > 1 { fit(grid.z, floor_power(rest.isqrt())).min(limits.z) } else { 1 };
    let y = fit(grid.y, floor_power((rest / z).max(1))).min(limits.y);
    // What a short y leaves is z's.
    let z = if grid.z > 1 { fit(grid.z, floor_power((rest / y).max(1))).min(limits.z) } else { 1 };
    // For small grids, x is extended to a whole simdgroup.
    let volume = x * y * z;
    let x = if volume < wide && !flat { (wide / (y * z)).min(limits.x) } else { x };
    Dim3::new(x.max(1), y.max(1), z.max(1))
}

fn floor_power(value: u32) -> u32 {
    1 << value.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    const LIMITS: Dim3 = Dim3::new(1024, 1024, 64);

    fn choose(grid: impl Into<Dim3>, aim: u32) -> [u32; 3] {
        shape(grid.into(), aim, LIMITS, 32).to_array()
    }

    #[test]
    fn the_shape_suits_the_grid() {
        assert_eq!(choose(1_000_000, 256), [256, 1, 1]);
        assert_eq!(choose(u32::MAX, 256), [256, 1, 1]);
        assert_eq!(choose(1, 256), [32, 1, 1]);
        assert_eq!(choose(33, 256), [64, 1, 1]);
        assert_eq!(choose((1000, 1000), 256), [32, 8, 1]);
        assert_eq!(choose((1000, 2), 256), [32, 2, 1]);
        assert_eq!(choose((1, 1000), 256), [1, 256, 1]);
        assert_eq!(choose((3, 1000), 256), [4, 64, 1]);
        assert_eq!(choose((100, 100, 100), 256), [32, 4, 2]);
        assert_eq!(choose((100, 2, 1000), 256), [32, 2, 4]);
        assert_eq!(choose((100, 1, 1000), 256), [32, 1, 8]);
        assert_eq!(choose((2, 2, 2), 256), [8, 2, 2]);
    }

    #[test]
    fn it_is_valid_and_whole_simdgroups_whatever_the_grid() {
        let sizes = [0, 1, 2, 3, 7, 31, 32, 33, 100, 1000, u32::MAX];
        for x in sizes {
            for y in sizes {
                for z in sizes {
                    for aim in [1, 16, 32, 96, 128, 256, 512, 1024] {
                        let group = shape(Dim3::new(x, y, z), aim, LIMITS, 32);
                        let volume = group.volume() as u32;
                        let place = format!("{x} {y} {z} by {aim}: {group}");
                        assert!(volume >= 1 && volume <= aim && group.z <= 64, "{place}");
                        assert!(aim < 32 || volume.is_multiple_of(32), "{place}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_unknown_of_the_code_is_no_reason() {
        let code = |barriers| Some(CodeFacts { barriers, ..CodeFacts::default() });
        assert_eq!(aim(code(0)), (256, ""));
        assert_eq!(aim(code(2)), (512, ", the kernel has barriers"));
        assert_eq!(aim(None), (256, ", whether the kernel has barriers is unknown"));
    }

    #[test]
    fn the_model_counts_idle_lanes_units_and_starts() {
        let time = |grid: u32, size: u32, units: f64| {
            predict(Dim3::new(grid, 1, 1), Dim3::new(size, 1, 1), 32, units, None)
        };
        assert!(time(1 << 20, 256, 4.0) < time(1 << 20, 32, 4.0), "starts");
        assert!(time(1 << 20, 256, 4.0) < time(1 << 20, 264, 4.0), "an incomplete simdgroup");
        assert!(time(2048, 256, 8.0) < time(2048, 1024, 8.0), "units without work");
        let held =
            |groups: u64| predict(Dim3::new(1 << 20, 1, 1), Dim3::new(256, 1, 1), 32, 100.0, Some(groups));
        assert!(held(800) < held(100), "few simdgroups hide no latencies");
        assert_eq!(
            held(400),
            predict(Dim3::new(1 << 20, 1, 1), Dim3::new(256, 1, 1), 32, 100.0, Some(400)),
            "the same each time"
        );
    }

    #[test]
    fn a_grid_of_few_threads_is_spread_over_the_units() {
        let of = |threads: u32, aim: u32, units: u32| halved(threads.into(), aim, units, 32);
        // 4 threadgroups for each of 2 units.
        let threads = [2048, 1793, 1792, 1024, 897, 896, 448, 256, 1];
        assert_eq!(threads.map(|n| of(n, 256, 2)), [256, 256, 128, 128, 128, 64, 32, 32, 32]);
        assert_eq!((of(4096, 256, 64), of(1 << 14, 256, 64), of(1 << 16, 256, 64)), (32, 64, 256));
        assert_eq!((of(100, 96, 2), of(100, 16, 2)), (32, 16), "whole simdgroups");
        assert_eq!(of(256, 256, 1), 256, "one unit");
        for units in [2, 3, 64] {
            for threads in 1..5000 {
                let size = of(threads, 256, units);
                assert!(threads.div_ceil(size) >= 4 * units || size == 32, "{threads} {units}");
                assert!(size == 256 || threads.div_ceil(size * 2) < 4 * units, "{threads} {units}");
            }
        }
    }

    #[test]
    fn tune_falls_back_to_256_threads_and_to_512_with_barriers() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(2).devices().unwrap().remove(0);
        let mut caps = device.caps().clone();
        caps.limits.compute_units = 64;
        let signature = |barriers, grid_barriers| Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: String::new(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: Some(CodeFacts { barriers, grid_barriers, ..CodeFacts::default() }),
            logs: Vec::new(),
        };
        let (alone, together) = (signature(0, 0), signature(1, 0));
        let grid = Dim3::new(4096, 1, 1);
        let usual = |most, signature: &Signature| usual_size(grid, most, &caps, signature).to_array();
        assert_eq!(suggested_size(grid, 1024, &caps, &alone).x, 32, "the suggestion is spread over 64 units");
        assert_eq!(usual(1024, &alone), [256, 1, 1], "the fallback is not");
        assert_eq!(usual(1024, &together), [512, 1, 1]);
        assert_eq!(usual(1024, &signature(0, 1)), [512, 1, 1]);
        assert_eq!(
            (usual(100, &alone), usual(300, &together)),
            ([96, 1, 1], [288, 1, 1]),
            "the kernel's limit"
        );
        let plane =
            |signature: &Signature| usual_size(Dim3::new(512, 512, 1), 1024, &caps, signature).to_array();
        assert_eq!((plane(&alone), plane(&together)), ([32, 8, 1], [32, 16, 1]));
        let whole = |x, y, z| whole_size(Dim3::new(x, y, z), 1024, &caps, &alone).to_array();
        assert_eq!(
            (whole(35, 1, 1), whole(5, 8192, 1), whole(7, 5, 9)),
            ([256, 1, 1], [32, 8, 1], [32, 8, 1])
        );
        assert_eq!(whole_size(Dim3::new(5, 9, 1), 100, &caps, &together).to_array(), [32, 2, 1]);
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
    fn threads_that_work_together_stay_together() {
        let facts = CodeFacts::default();
        assert!(work_alone(Some(facts)) && !work_alone(None));
        assert!(!work_alone(Some(CodeFacts { barriers: 1, ..facts })));
        assert!(!work_alone(Some(CodeFacts { grid_barriers: 1, ..facts })));
        assert!(!work_alone(Some(CodeFacts { threadgroup_memory: 16, ..facts })));
    }

    #[test]
    fn small_limits_are_kept() {
        let group = shape(Dim3::new(99, 99, 99), 256, Dim3::new(48, 2, 1), 32);
        assert_eq!(group.to_array(), [32, 2, 1]);
    }
}
