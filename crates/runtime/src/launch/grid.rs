//! [`Grid`]: size of a launch and of its threadgroups.
//!
//! A grid holds the caller's numbers, or the memory of an indirect launch's counts. The launch validates and completes it against
//! the limits of kernel and device.

use bytemuck::Pod;
use elinvar_driver as driver;
use elinvar_driver::{Caps, Dim3, Error, Result, Scalar};

use crate::launch::args::Element;
use crate::memory::operands::counts_place;
use crate::memory::span::Span;
use crate::memory::usage::{Access, Usage, Who};
use crate::{BufferSlice, Kernel};

/// The size of a launch, in threads or in whole threadgroups.
///
/// ```
/// use elinvar::Grid;
/// let by_threads = Grid::threads((1920, 1080)); // any size; threadgroups at the edges are smaller
/// let by_groups = Grid::groups(64).group(256); // 64 threadgroups of 256 threads
/// # let _ = (by_threads, by_groups);
/// ```
#[derive(Clone, Debug)]
pub struct Grid {
    count: Count,
    group: Option<[i128; 3]>,
    cooperative: bool,
}

#[derive(Clone, Debug)]
enum Count {
    Threads([i128; 3]),
    Groups([i128; 3]),
    /// Threadgroup counts in memory.
    Indirect(Span, Element),
}

/// A validated and complete grid.
pub(crate) struct Size {
    pub(crate) grid: driver::Grid,
    pub(crate) group: Dim3,
    /// The use of the memory with the counts.
    pub(crate) counts: Option<Usage>,
}

impl Grid {
    /// A number of threads, `threads_per_grid` in MSL. If it is not a multiple of the threadgroup's size, threadgroups at the
    /// edges are smaller, as with Metal's `dispatchThreads`. If a size is 0, nothing runs.
    pub fn threads(count: impl Extent) -> Self {
        Self { count: Count::Threads(count.sizes()), group: None, cooperative: false }
    }

    /// A number of whole threadgroups, `threadgroups_per_grid` in MSL. Requires [`Grid::group`]. If a size is 0, nothing runs.
    pub fn groups(count: impl Extent) -> Self {
        Self { count: Count::Groups(count.sizes()), group: None, cooperative: false }
    }

    /// A number of whole threadgroups that is read from memory when the launch begins. Requires [`Grid::group`]. The first three
    /// `u32` of the buffer or slice are the counts along x, y and z (`MTLDispatchThreadgroupsIndirectArguments` in Metal); work
    /// before the launch may write them. If one is 0, nothing runs. Each run of a recording or a graph reads them again.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Device, Grid, Source};
    /// # let device = Device::system_default()?;
    /// # let library = device.compile(Source::msl("…"))?;
    /// # let (find, work) = (library.kernel("find")?, library.kernel("work")?);
    /// # let stream = device.stream()?;
    /// # let (input, mut found) = (device.buffer::<f32>(1 << 20)?, device.buffer::<f32>(1 << 20)?);
    /// let mut counts = device.buffer_with_data(&[0u32, 1, 1])?;
    /// // SAFETY: `find` writes what it finds and how many groups of 64 that makes; `work` stays within `found`.
    /// unsafe { find.launch(&stream, Grid::threads(1 << 20), (&input, &mut found, &mut counts)) }?;
    /// unsafe { work.launch(&stream, Grid::indirect(&counts).group(64), (&mut found,)) }?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The launch is rejected for a buffer of another device, elements other than `u32` or bytes, fewer than 12 bytes, or a slice
    /// at an offset that is not a multiple of 4 bytes. Counts above the device's limits end the launch in an error that has them
    /// if [`Features::sees_counts`](crate::Features::sees_counts) is true; otherwise the behavior is undefined, as in Metal.
    pub fn indirect<'b, T: Pod>(counts: impl Into<BufferSlice<'b, T>>) -> Self {
        let count = Count::Indirect(counts.into().span, Element::of::<T>());
        Self { count, group: None, cooperative: false }
    }

    /// Sets the threadgroup's size in threads. Without it, a size is chosen for the grid's dimensions and the kernel's limit; see
    /// [`Kernel::suggest`].
    #[must_use]
    pub fn group(mut self, size: impl Extent) -> Self {
        self.group = Some(size.sizes());
        self
    }

    /// Makes the launch cooperative: all its threadgroups are resident at once, as a kernel with grid barriers requires. The launch is
    /// rejected if the grid has more than [`Kernel::resident_groups`]. No effect on a kernel without grid barriers.
    #[must_use]
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// Whether the launch is cooperative.
    /// The threads and the threadgroup of a run on the host; without a threadgroup it is at most 32 threads along x.
    ///
    /// # Panics
    /// For an indirect grid, and for sizes that are out of range or zero.
    #[doc(hidden)]
    pub fn host_sizes(&self) -> ([u32; 3], [u32; 3]) {
        let sizes = |sizes: [i128; 3]| sizes.map(|size| u32::try_from(size).expect("a size of a grid"));
        match &self.count {
            Count::Threads(count) => {
                let threads = sizes(*count);
                (threads, self.group.map_or([threads[0].clamp(1, 32), 1, 1], sizes))
            }
            Count::Groups(count) => {
                let group = sizes(self.group.expect("a threadgroup size, set with `.group(..)`"));
                (std::array::from_fn(|d| sizes(*count)[d] * group[d]), group)
            }
            Count::Indirect(..) => panic!("an indirect grid has its size on the device"),
        }
    }

    pub(crate) fn is_cooperative(&self) -> bool {
        self.cooperative
    }

    /// Class of grids for which a measurement holds: the sizes rounded up to powers of two, and the threadgroup.
    pub(crate) fn size_class(&self) -> ([u128; 3], Option<[i128; 3]>) {
        let counts = match &self.count {
            Count::Threads(counts) | Count::Groups(counts) => *counts,
            Count::Indirect(..) => [0; 3],
        };
        (
            counts.map(|count| count.unsigned_abs().checked_next_power_of_two().unwrap_or(u128::MAX)),
            self.group,
        )
    }

    /// Whether it has a threadgroup size.
    pub(crate) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// The complete size; `None` if nothing runs.
    pub(crate) fn resolve(&self, launched: &Kernel) -> Result<Option<Size>> {
        let kernel = &launched.signature().name;
        let (threads, group) = match &self.count {
            Count::Threads(count) => {
                let threads = checked(kernel, "grid", *count)?;
                let group = self.given_group(launched)?;
                (threads, group.unwrap_or_else(|| launched.choose_size(threads)))
            }
            Count::Groups(count) => {
                let count = checked(kernel, "grid", *count)?.to_array();
                let group = self.whole_group(launched, "Grid::groups")?;
                let side = |d: usize| i128::from(count[d]) * i128::from(group.to_array()[d]);
                (checked(kernel, "grid", std::array::from_fn(side))?, group)
            }
            Count::Indirect(span, element) => {
                let same = || format!("{}: the buffer is", counts_place(kernel));
                launched.device().expect_same(&span.storage.device, same)?;
                check_counts(kernel, span, *element)?;
                let group = self.whole_group(launched, "Grid::indirect")?;
                let slice = driver::MemorySlice { len: driver::Grid::COUNTS_BYTES, ..span.memory_slice() };
                let who = Who::Counts(launched.pipeline.clone());
                let usage = Usage { storage: span.storage.clone(), who, access: Access::Read, covers: false };
                let grid = driver::Grid::Indirect(slice);
                return Ok(Some(Size { grid, group, counts: Some(usage) }));
            }
        };
        let grid = driver::Grid::Threads(threads);
        Ok((threads.volume() > 0).then_some(Size { grid, group, counts: None }))
    }

    fn given_group(&self, launched: &Kernel) -> Result<Option<Dim3>> {
        let Some(sizes) = self.group else { return Ok(None) };
        let (kernel, caps) = (&launched.signature().name, launched.device().caps());
        let group = checked(kernel, "threadgroup", sizes)?;
        let max = launched.max_threads_per_threadgroup().min(caps.limits.max_threads_per_threadgroup);
        check_group(kernel, group, max, caps)?;
        Ok(Some(group))
    }

    /// The threadgroup size of a grid that is given in threadgroups, which requires one.
    fn whole_group(&self, launched: &Kernel, what: &str) -> Result<Dim3> {
        self.given_group(launched)?.ok_or_else(|| {
            let kernel = &launched.signature().name;
            Error::invalid(format!(
                "kernel `{kernel}`: `{what}` requires a threadgroup size, set with `.group(..)`"
            ))
        })
    }
}

/// Validates the memory of an indirect launch's counts.
pub(crate) fn check_counts(kernel: &str, span: &Span, element: Element) -> Result<()> {
    let refuse = |reason: String| Err(Error::invalid(format!("{}: {reason}", counts_place(kernel))));
    match element {
        Element::Raw | Element::Scalars { scalar: Scalar::U32, .. } => {}
        Element::Scalars { scalar: Scalar::U8, lanes: 1, .. } => {}
        Element::Scalars { name, .. } | Element::Pod { name, .. } => {
            return refuse(format!("expected u32, given a buffer of `{name}`"));
        }
        Element::Inbox | Element::Queue { .. } | Element::LaunchQueue => {
            return refuse("expected u32".into());
        }
        Element::Double => return refuse("expected u32, given a buffer of `f64`".into()),
    }
    let (bytes, align) = (driver::Grid::COUNTS_BYTES, driver::Grid::COUNTS_ALIGN);
    if !span.offset.is_multiple_of(align) {
        return refuse(format!(
            "the slice begins at byte {}, which is not a multiple of {align}",
            span.offset
        ));
    }
    if span.len < bytes {
        return refuse(format!("needs at least {bytes} bytes (three u32), the buffer has {}", span.len));
    }
    Ok(())
}

/// A size in one to three dimensions: a number, a tuple or array of up to three numbers, or a [`Dim3`]. Numbers are `u32`, `i32`,
/// `u64` or `usize`; launches reject numbers outside 0 to `u32::MAX`.
pub trait Extent {
    /// The sizes along x, y and z; 1 for unused dimensions.
    fn sizes(self) -> [i128; 3];
}

/// A number type for a size along one dimension.
pub trait Side: Copy {
    /// Converts the number without loss.
    fn side(self) -> i128;
}

macro_rules! sides {
    ($($number:ty),*) => {$(
        impl Side for $number {
            fn side(self) -> i128 {
                self as i128
            }
        }

        impl Extent for $number {
            fn sizes(self) -> [i128; 3] {
                [self.side(), 1, 1]
            }
        }
    )*};
}
sides!(u32, i32, u64, usize);

impl Extent for Dim3 {
    fn sizes(self) -> [i128; 3] {
        self.to_array().map(i128::from)
    }
}

impl<X: Side, Y: Side> Extent for (X, Y) {
    fn sizes(self) -> [i128; 3] {
        [self.0.side(), self.1.side(), 1]
    }
}

impl<X: Side, Y: Side, Z: Side> Extent for (X, Y, Z) {
    fn sizes(self) -> [i128; 3] {
        [self.0.side(), self.1.side(), self.2.side()]
    }
}

impl<S: Side> Extent for [S; 1] {
    fn sizes(self) -> [i128; 3] {
        [self[0].side(), 1, 1]
    }
}

impl<S: Side> Extent for [S; 2] {
    fn sizes(self) -> [i128; 3] {
        [self[0].side(), self[1].side(), 1]
    }
}

impl<S: Side> Extent for [S; 3] {
    fn sizes(self) -> [i128; 3] {
        self.map(Side::side)
    }
}

/// Converts numbers to 32-bit sizes.
pub(crate) fn checked(kernel: &str, what: &str, sizes: [i128; 3]) -> Result<Dim3> {
    let mut checked = [0; 3];
    for (i, size) in sizes.into_iter().enumerate() {
        checked[i] = u32::try_from(size).map_err(|_| {
            let (axis, max) = (["x", "y", "z"][i], u32::MAX);
            Error::invalid(format!("kernel `{kernel}`: {what} size {axis} = {size} is not within 0..={max}"))
        })?;
    }
    Ok(Dim3::from(checked))
}

fn check_group(kernel: &str, group: Dim3, max: u32, caps: &Caps) -> Result<()> {
    let volume = group.volume();
    if volume == 0 {
        return Err(Error::invalid(format!("kernel `{kernel}`: threadgroup {group} has no threads")));
    }
    if volume > u128::from(max) {
        return Err(Error::invalid(format!(
            "kernel `{kernel}`: threadgroup {group} has {volume} threads, at most {max} allowed"
        )));
    }
    let limits = caps.limits.max_threadgroup_size.to_array();
    for (i, (size, limit)) in group.to_array().into_iter().zip(limits).enumerate() {
        if size > limit {
            let axis = ["x", "y", "z"][i];
            return Err(Error::invalid(format!(
                "kernel `{kernel}`: threadgroup size {axis} = {size}, at most {limit} allowed"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_three_aligned_words() {
        use elinvar_driver::Driver as _;
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let buffer = crate::Device::new(device).buffer::<u8>(64).unwrap();
        let checked = |offset, len| {
            let span = Span { offset, len, ..buffer.span.clone() };
            check_counts("k", &span, Element::Raw).map_err(|error| error.to_string())
        };
        for (offset, len) in [(0, 12), (4, 12), (16, 48), (8, 13)] {
            assert_eq!(checked(offset, len), Ok(()), "{len} bytes from {offset} on");
        }
        for offset in [1, 2, 3, 5] {
            assert!(
                checked(offset, 12)
                    .unwrap_err()
                    .contains(&format!("begins at byte {offset}, which is not a multiple of 4"))
            );
        }
        assert!(checked(0, 11).unwrap_err().contains("needs at least 12 bytes"));
    }

    #[test]
    fn sizes_come_in_many_forms() {
        let len = vec![0u8; 7].len();
        assert_eq!(len.sizes(), [7, 1, 1]);
        assert_eq!((3, len).sizes(), [3, 7, 1]);
        assert_eq!([1u32, 2, 3].sizes(), [1, 2, 3]);
        assert_eq!([5u64].sizes(), [5, 1, 1]);
        assert_eq!([5, -2].sizes(), [5, -2, 1]);
        assert_eq!((-1, 4u64, 2).sizes(), [-1, 4, 2]);
        assert_eq!(Dim3::new(1, 2, 3).sizes(), [1, 2, 3]);
    }
}
