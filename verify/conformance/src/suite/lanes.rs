//! Mapping of threads to lanes of simdgroups and quadgroups, and kernels that write many words per thread.

use std::collections::HashMap;

use bytemuck::Pod;
use elinvar::{Arg, Device, Grid, Source, bf16, f16};

use super::run;
use super::sheet::{PRELUDE, Value, Word};

/// Size of a grid and of its threadgroups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub grid: [usize; 3],
    pub group: [usize; 3],
}

/// The lanes of a simdgroup or quadgroup: the thread's index in the grid, or `None` for a lane without a thread.
pub(super) type Peers = Vec<Option<usize>>;

impl Shape {
    pub(super) fn line(threads: usize, group: usize) -> Self {
        Self { grid: [threads, 1, 1], group: [group, 1, 1] }
    }

    pub(super) fn threads(self) -> usize {
        self.grid.iter().product()
    }

    pub(super) fn grid(self) -> Grid {
        Grid::threads(self.grid).group(self.group.map(|n| n as u32))
    }

    /// The threadgroup of a thread, and the thread's index in a full threadgroup.
    pub(super) fn place(self, thread: usize) -> ([usize; 3], usize) {
        let [x, y, _] = self.grid;
        let at = [thread % x, thread / x % y, thread / x / y];
        let local = [0, 1, 2].map(|d| at[d] % self.group[d]);
        let nominal = local[0] + self.group[0] * (local[1] + self.group[1] * local[2]);
        ([0, 1, 2].map(|d| at[d] / self.group[d]), nominal)
    }

    /// For each thread, its lane and the lanes of its simdgroup or quadgroup.
    pub(super) fn peers(self, width: usize) -> Vec<(usize, Peers)> {
        let places = (0..self.threads()).map(|t| (self.place(t), t));
        let threads: HashMap<_, _> = places.collect();
        let of = |t| {
            let (group, nominal) = self.place(t);
            let first = nominal / width * width;
            (nominal % width, (first..first + width).map(|n| threads.get(&(group, n)).copied()).collect())
        };
        (0..self.threads()).map(of).collect()
    }
}

/// A kernel that writes `slots` words per thread to `o`.
pub(super) struct Words<'a> {
    pub name: &'a str,
    pub shape: Shape,
    pub slots: usize,
    /// Parameters from buffer 1 on, each preceded by a comma.
    pub parameters: &'a str,
    pub body: &'a str,
    /// Source before the kernel.
    pub declarations: &'a str,
}

/// Value of words that the kernel does not write.
pub(super) const UNWRITTEN: u64 = 0xdead_dead;

impl Words<'_> {
    pub(super) fn compile(&self, device: &Device) -> elinvar::Result<elinvar::Kernel> {
        let text = format!(
            "{PRELUDE}{}\nkernel void words(device ulong* out [[buffer(0)]]{},
                uint3 p [[thread_position_in_grid]], uint3 size [[threads_per_grid]],
                ushort lane [[thread_index_in_simdgroup]], ushort quad [[thread_index_in_quadgroup]]) {{
            uint i = p.x + size.x * (p.y + size.y * p.z);
            device ulong* o = out + {} * i;\n{}}}\n",
            self.declarations, self.parameters, self.slots, self.body
        );
        device.compile(Source::named(format!("{}.metal", self.name), text))?.kernel("words")
    }

    /// Runs the kernel; returns the words.
    pub(super) fn run(
        &self,
        device: &Device,
        kernel: &elinvar::Kernel,
        args: Vec<Arg>,
    ) -> elinvar::Result<Vec<u64>> {
        let mut out = device.buffer_with_data(&vec![UNWRITTEN; self.slots * self.shape.threads()])?;
        let mut all: Vec<Arg> = vec![(&mut out).into()];
        all.extend(args);
        run(device, kernel, self.shape.grid(), all)?;
        out.to_vec()
    }
}

/// Differences between the words and the expected ones, by thread and name of the slot; `None` admits any value.
pub(super) fn differences(
    got: &[u64],
    names: &[String],
    expected: impl Fn(usize, usize) -> Option<Word>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (slot, name) in names.iter().enumerate() {
        let mut rows = got.chunks(names.len()).enumerate();
        let first = rows.find_map(|(thread, row)| {
            let word = expected(thread, slot)?;
            let got = row[slot];
            (!word.admits(got)).then(|| format!("{name}, thread {thread}: {} for {word:?}", word.show(got)))
        });
        wrong.extend(first);
    }
    wrong
}

/// Test values of a type, and arithmetic.
pub(super) trait Number: Value + Pod {
    const INTEGER: bool;
    /// A value that distinguishes threads.
    fn own(t: usize) -> Self;
    /// A value whose sums are exact.
    fn term(t: usize) -> Self;
    /// A value whose products are exact.
    fn factor(t: usize) -> Self;
    fn zero() -> Self;
    fn one() -> Self;
    fn fold(fold: Fold, a: Self, b: Self) -> Self;
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fold {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

macro_rules! integers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            const INTEGER: bool = true;
            fn own(t: usize) -> Self {
                (t as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) as Self
            }
            fn term(t: usize) -> Self {
                Self::own(3 * t + 1)
            }
            fn factor(t: usize) -> Self {
                Self::own(t) | 1
            }
            fn zero() -> Self {
                0
            }
            fn one() -> Self {
                1
            }
            fn fold(fold: Fold, a: Self, b: Self) -> Self {
                match fold {
                    Fold::Sum => a.wrapping_add(b),
                    Fold::Product => a.wrapping_mul(b),
                    Fold::Min => a.min(b),
                    Fold::Max => a.max(b),
                    Fold::And => a & b,
                    Fold::Or => a | b,
                    Fold::Xor => a ^ b,
                }
            }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($ty:ty: $from:expr, $to:expr;)*) => {$(
        impl Number for $ty {
            const INTEGER: bool = false;
            fn own(t: usize) -> Self {
                $from(t as f32 - 9.0)
            }
            fn term(t: usize) -> Self {
                $from((t * 5 % 13) as f32 * 0.5 - 3.0)
            }
            fn factor(t: usize) -> Self {
                $from([2.0, 1.0, 1.0, 0.5, 1.0, -1.0, 1.0][t % 7])
            }
            fn zero() -> Self {
                $from(0.0)
            }
            fn one() -> Self {
                $from(1.0)
            }
            fn fold(fold: Fold, a: Self, b: Self) -> Self {
                let (a, b): (f32, f32) = ($to(a), $to(b));
                $from(match fold {
                    Fold::Sum => a + b,
                    Fold::Product => a * b,
                    Fold::Min => a.min(b),
                    _ => a.max(b),
                })
            }
        }
    )*};
}
floats! {
    f16: f16::from_f32, f16::to_f32;
    bf16: bf16::from_f32, bf16::to_f32;
    f32: std::convert::identity, std::convert::identity;
}
