//! [`Grid`]: how many threads a launch runs, and in groups of which size.
//!
//! A grid is a request in the caller's numbers; it is checked and completed against the kernel's and the
//! device's limits by the launch, since only that knows both. It knows nothing of arguments.

use elinvar_driver::{Caps, Dim3, Error, Result};

use crate::Kernel;

/// The size of a launch: threads, or whole threadgroups.
///
/// ```
/// use elinvar::Grid;
/// let by_threads = Grid::threads((1920, 1080)); // any number; edge groups are smaller
/// let by_groups = Grid::groups(64).group(256); // 64 groups of 256 threads
/// # let _ = (by_threads, by_groups);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    count: [i128; 3],
    whole_groups: bool,
    group: Option<[i128; 3]>,
}

impl Grid {
    /// So many threads in all, `threads_per_grid` in MSL. Groups at the far edges are smaller where the
    /// group's size does not divide the grid's, as with Metal's `dispatchThreads`. A size of zero
    /// runs nothing and is no error.
    pub fn threads(count: impl Extent) -> Self {
        Self { count: count.sizes(), whole_groups: false, group: None }
    }

    /// So many whole threadgroups, `threadgroups_per_grid` in MSL; needs [`Grid::group`].
    pub fn groups(count: impl Extent) -> Self {
        Self { count: count.sizes(), whole_groups: true, group: None }
    }

    /// Threads of a threadgroup. Without it a size is chosen that suits the grid's dimensions and the
    /// kernel's limit.
    #[must_use]
    pub fn group(mut self, size: impl Extent) -> Self {
        self.group = Some(size.sizes());
        self
    }

    /// The count, of threads or of groups.
    pub(crate) fn count(&self, kernel: &str) -> Result<Dim3> {
        checked(kernel, "grid", self.count)
    }

    /// Whether it says how many threads a group has.
    pub(crate) fn has_group(&self) -> bool {
        self.group.is_some()
    }

    /// Threads of the grid and of a group; `None` when there is nothing to run.
    pub(crate) fn resolve(&self, launched: &Kernel) -> Result<Option<(Dim3, Dim3)>> {
        let (kernel, caps) = (&launched.signature().name, launched.device().caps());
        let count = self.count(kernel)?;
        let max = launched.max_threads_per_threadgroup().min(caps.max_threads_per_threadgroup);
        let group = match self.group {
            Some(sizes) => {
                let group = checked(kernel, "threadgroup", sizes)?;
                check_group(kernel, group, max, caps)?;
                group
            }
            None if self.whole_groups => {
                return Err(Error::invalid(format!(
                    "kernel `{kernel}`: `Grid::groups` needs the threads of a group, with `.group(..)`"
                )));
            }
            None => launched.choose(count).group,
        };
        let threads = match self.whole_groups {
            true => checked(
                kernel,
                "grid",
                std::array::from_fn(|i| i128::from(count.to_array()[i]) * i128::from(group.to_array()[i])),
            )?,
            false => count,
        };
        Ok((threads.volume() > 0).then_some((threads, group)))
    }
}

/// A size in one to three dimensions: a number, a tuple or array of up to three, or a [`Dim3`].
/// Numbers may be of the types `u32`, `i32`, `u64`, `usize`; what does not fit 32 bits is refused by the launch.
pub trait Extent {
    /// The sizes along x, y and z; 1 where none is given.
    fn sizes(self) -> [i128; 3];
}

/// A number that may be a size along one dimension.
pub trait Side: Copy {
    /// The number.
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

fn checked(kernel: &str, what: &str, sizes: [i128; 3]) -> Result<Dim3> {
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
    let limits = caps.max_threadgroup_size.to_array();
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
    fn sizes_come_in_many_forms() {
        let len = vec![0u8; 7].len();
        assert_eq!(len.sizes(), [7, 1, 1]);
        assert_eq!((3, len).sizes(), [3, 7, 1]);
        assert_eq!([1u32, 2, 3].sizes(), [1, 2, 3]);
        assert_eq!((-1, 4u64, 2).sizes(), [-1, 4, 2]);
        assert_eq!(Dim3::new(1, 2, 3).sizes(), [1, 2, 3]);
    }
}
