//! Chooses the threadgroup size of a launch that specifies none, with the reason.
//!
//! Threadgroups are as wide as the grid if that is narrower than a simdgroup, since the threads of a simdgroup should be
//! consecutive along x; the rest of the target size is distributed to y and z. The result is within the limits of kernel and
//! device, and a multiple of the simdgroup width if these allow it.
//!
//! Threadgroups of a grid with few threads are smaller, so that all cores or multiprocessors have some ([`spread`]).

use std::fmt;

use elinvar_driver::{ArgKind, Caps, CodeFacts, DeviceKind, Dim3, Limits, Signature};

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
/// Threadgroups for each compute unit, if the grid has enough simdgroups, and the fewest threads of a grid that are spread so; `None` on Apple's GPUs, which have
/// not been measured. Cores wait for the last threadgroup a fifth of the time at most. A multiprocessor runs several at a time, so that one is enough, and fewer
/// threads gain more by what they share in its cache. The measurements are in docs/analysis.md.
fn spreading(kind: DeviceKind) -> Option<(u32, u128)> {
    match kind {
        DeviceKind::Cpu => Some((4, 0)),
        DeviceKind::Cuda => Some((1, 1024)),
        _ => None,
    }
}

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
        let units = if caps.kind == DeviceKind::Cpu { "cores" } else { "multiprocessors" };
        format!(", few threads for {} {units}", caps.limits.compute_units)
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
/// along x, and on a CPU that can be worth more than the lanes that idle; docs/analysis.md has the measurements. A volume that is as wide as a simdgroup has
/// its own [`usual_size`].
pub(crate) fn whole_size(grid: Dim3, most: u32, caps: &Caps, signature: &Signature) -> Dim3 {
    if grid.z > 1 && grid.x >= caps.limits.simdgroup_width {
        return usual_size(grid, most, caps, signature);
    }
    let large = Dim3::new(u32::MAX, if grid.y > 1 { u32::MAX } else { 1 }, 1);
    usual_size(large, most, caps, signature)
}

/// The target size for a grid with few threads: [`halved`], of a kernel whose threads work alone.
fn spread(grid: Dim3, aim: u32, caps: &Caps, signature: &Signature) -> u32 {
    let has_memory = signature.args.iter().any(|arg| arg.kind == ArgKind::Threadgroup);
    let threads = grid.volume();
    match spreading(caps.kind) {
        Some((each, fewest)) if threads >= fewest && work_alone(signature.code) && !has_memory => {
            halved(threads, aim, caps.limits.compute_units, each, caps.limits.simdgroup_width)
        }
        _ => aim,
    }
}

/// Whether a kernel is known to have no barriers and no threadgroup memory. The threads of others work together, and a larger threadgroup does more.
fn work_alone(code: Option<CodeFacts>) -> bool {
    code.is_some_and(|code| code.barriers + code.grid_barriers == 0 && code.threadgroup_memory == 0)
}

/// Halves a target size, down to a simdgroup, until there are `each` threadgroups for each of several compute units.
fn halved(threads: u128, aim: u32, units: u32, each: u32, simdgroup: u32) -> u32 {
    let enough = u128::from(units) * u128::from(each);
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

/// The largest multiple of `unit` up to `value`; `value` if there is none.
fn floor_multiple(value: u32, unit: u32) -> u32 {
    if value < unit { value } else { value / unit * unit }
}

/// [`shape`] within a device's limits.
pub(crate) fn shape_on(caps: &Caps, grid: Dim3, aim: u32) -> Dim3 {
    let Limits { max_threadgroup_size, simdgroup_width, .. } = caps.limits;
    let grid = if caps.kind == DeviceKind::Cpu { narrowed(grid, simdgroup_width) } else { grid };
    shape(grid, aim, max_threadgroup_size, simdgroup_width)
}

/// A plane or volume that is narrower than a simdgroup, with the power of two before its width if more than a quarter of the next one's lanes would
/// idle: on a CPU, threadgroups without idle lanes and narrow ones at the edge are faster.
fn narrowed(grid: Dim3, simdgroup: u32) -> Dim3 {
    let next = grid.x.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
    let is_narrow = next <= simdgroup && (grid.y > 1 || grid.z > 1);
    let x = if is_narrow && 4 * grid.x < 3 * next { next / 2 } else { grid.x };
    Dim3 { x, ..grid }
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
pub(crate) mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    const LIMITS: Dim3 = Dim3::new(1024, 1024, 64);

    pub(crate) fn signature(barriers: u32, grid_barriers: u32) -> Signature {
        Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: String::new(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: Some(CodeFacts { barriers, grid_barriers, ..CodeFacts::default() }),
            logs: Vec::new(),
        }
    }

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
        let narrow = |x: u32| narrowed(Dim3::new(x, 1000, 1), 32).x;
        assert_eq!([1, 3, 5, 6, 9, 12, 17, 24, 33].map(narrow), [1, 3, 4, 6, 8, 12, 16, 24, 33]);
        assert_eq!(narrowed(Dim3::new(5, 1, 1), 32).x, 5);
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
    fn a_grid_of_few_threads_is_spread_over_the_units() {
        let of = |threads: u32, aim: u32, units: u32| halved(threads.into(), aim, units, 4, 32);
        // 4 threadgroups for each of 2 units.
        let threads = [2048, 1793, 1792, 1024, 897, 896, 448, 256, 1];
        assert_eq!(threads.map(|n| of(n, 256, 2)), [256, 256, 128, 128, 128, 64, 32, 32, 32]);
        assert_eq!((of(4096, 256, 64), of(1 << 14, 256, 64), of(1 << 16, 256, 64)), (32, 64, 256));
        assert_eq!((of(100, 96, 2), of(100, 16, 2)), (32, 16), "whole simdgroups");
        assert_eq!(of(256, 256, 1), 256, "one unit");
        let of_gpu = [1 << 16, 33_537, 33_536, 1 << 14, 4096, 1].map(|n| halved(n, 256, 132, 1, 32));
        assert_eq!(of_gpu, [256, 256, 128, 64, 32, 32], "one threadgroup for each of 132 units");
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
        let (alone, together) = (signature(0, 0), signature(1, 0));
        let grid = Dim3::new(4096, 1, 1);
        let usual = |most, signature: &Signature| usual_size(grid, most, &caps, signature).to_array();
        assert_eq!(suggested_size(grid, 1024, &caps, &alone).x, 32, "the suggestion is spread over 64 units");
        assert_eq!(usual(1024, &alone), [256, 1, 1], "the fallback is not");
        let on = |threads, kind| {
            suggested_size(Dim3::new(threads, 1, 1), 1024, &Caps { kind, ..caps.clone() }, &alone).x
        };
        let sizes = [DeviceKind::Cpu, DeviceKind::Cuda, DeviceKind::Metal, DeviceKind::Sim];
        assert_eq!(
            sizes.map(|kind| on(4096, kind)),
            [32, 64, 256, 256],
            "nor on devices that have not been measured"
        );
        assert_eq!([512, 1023, 1024].map(|threads| on(threads, DeviceKind::Cuda)), [256, 256, 32]);
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
            [whole(35, 1, 1), whole(5, 8192, 1), whole(7, 5, 9), whole(7, 1, 9), whole(99, 99, 9)],
            [[256, 1, 1], [32, 8, 1], [32, 8, 1], [256, 1, 1], [32, 4, 2]]
        );
        assert_eq!(whole_size(Dim3::new(5, 9, 1), 100, &caps, &together).to_array(), [32, 2, 1]);
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
