//! [`Problem`]: a kernel with its data, for all implementations.

use super::team::Team;

/// The same work in plain Rust, on the kernel's arguments.
pub type Native = fn(&mut [Argument], &Team);

/// A kernel, its data, and the same work in Rust.
pub struct Problem {
    pub name: &'static str,
    /// Problem size, human-readable.
    pub size: &'static str,
    /// Name of the source file in `kernels`, without extension, and both texts.
    pub file: &'static str,
    pub metal: &'static str,
    pub opencl: &'static str,
    /// The kernel's name in both.
    pub kernel: &'static str,
    pub threads: [usize; 3],
    pub group: [usize; 3],
    pub args: Vec<Argument>,
    /// Minimum bytes moved, and floating-point operations, per iteration.
    pub bytes: Option<u64>,
    pub flops: Option<u64>,
    pub native: Native,
    /// Other baselines in Rust or in a library, by name.
    pub others: Vec<(&'static str, Native)>,
    /// Returns the elements of the result, or values computed from it.
    pub result: fn(&[Argument]) -> Vec<f64>,
    pub agreement: Agreement,
}

/// One argument of the kernel.
#[derive(Clone)]
pub enum Argument {
    Floats(Vec<f32>),
    Words(Vec<u32>),
    Bytes(Vec<u8>),
    /// Structures of four floats.
    Quads(Vec<[f32; 4]>),
    Float(f32),
    Word(u32),
}

/// Tolerance of comparisons.
#[derive(Clone, Copy)]
pub enum Agreement {
    /// Maximum difference per element, relative to the baseline's largest magnitude.
    Within(f64),
    /// Maximum fraction of different elements, for problems where rounding selects between two outcomes.
    Share(f64),
}

macro_rules! views {
    ($($name:ident, $name_mut:ident, $variant:ident, $element:ty;)*) => {$(
        /// The elements; panics if the argument has another variant.
        pub fn $name(&self) -> &[$element] {
            match self {
                Self::$variant(values) => values,
                _ => panic!(concat!("the argument is not of variant ", stringify!($variant))),
            }
        }

        #[allow(dead_code)] // not every type is written by a baseline
        pub fn $name_mut(&mut self) -> &mut [$element] {
            match self {
                Self::$variant(values) => values,
                _ => panic!(concat!("the argument is not of variant ", stringify!($variant))),
            }
        }
    )*};
}

impl Argument {
    views! {
        floats, floats_mut, Floats, f32;
        words, words_mut, Words, u32;
        bytes, bytes_mut, Bytes, u8;
        quads, quads_mut, Quads, [f32; 4];
    }

    pub fn float(&self) -> f32 {
        match self {
            Self::Float(value) => *value,
            _ => panic!("the argument is not a Float"),
        }
    }

    pub fn word(&self) -> u32 {
        match self {
            Self::Word(value) => *value,
            _ => panic!("the argument is not a Word"),
        }
    }

    /// Bytes of the argument.
    pub fn raw(&self) -> &[u8] {
        match self {
            Self::Floats(values) => bytemuck::cast_slice(values),
            Self::Words(values) => bytemuck::cast_slice(values),
            Self::Bytes(values) => values,
            Self::Quads(values) => bytemuck::cast_slice(values),
            Self::Float(value) => bytemuck::bytes_of(value),
            Self::Word(value) => bytemuck::bytes_of(value),
        }
    }

    /// Bytes of the argument, to be overwritten.
    pub fn raw_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Floats(values) => bytemuck::cast_slice_mut(values),
            Self::Words(values) => bytemuck::cast_slice_mut(values),
            Self::Bytes(values) => values,
            Self::Quads(values) => bytemuck::cast_slice_mut(values),
            Self::Float(value) => bytemuck::bytes_of_mut(value),
            Self::Word(value) => bytemuck::bytes_of_mut(value),
        }
    }

    /// All elements, for comparisons.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Self::Floats(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Self::Words(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Self::Bytes(values) => values.iter().map(|v| f64::from(*v)).collect(),
            Self::Quads(values) => values.iter().flatten().map(|v| f64::from(*v)).collect(),
            Self::Float(value) => vec![f64::from(*value)],
            Self::Word(value) => vec![f64::from(*value)],
        }
    }
}

impl Agreement {
    /// Describes the first difference, if any.
    pub fn difference(self, ours: &[f64], baseline: &[f64]) -> Option<String> {
        if ours.len() != baseline.len() {
            return Some(format!("{} elements instead of {}", ours.len(), baseline.len()));
        }
        let pairs = || ours.iter().zip(baseline).enumerate();
        match self {
            Self::Within(part) => {
                let scale = baseline.iter().fold(0.0f64, |most, v| most.max(v.abs()));
                // A NaN is never within tolerance.
                let far = pairs().find(|(_, (a, b))| {
                    (*a - *b).abs().partial_cmp(&(part * scale)).is_none_or(|o| o.is_gt())
                });
                far.map(|(at, (a, b))| format!("element {at} is {a}, not {b}"))
            }
            Self::Share(share) => {
                let wrong = pairs().filter(|(_, (a, b))| a != b).count();
                let most = (share * ours.len() as f64) as usize;
                (wrong > most).then(|| format!("{wrong} elements differ, at most {most} may"))
            }
        }
    }
}

/// Pseudorandom numbers below `limit`, the same on every run.
pub fn scattered(count: usize, limit: u32) -> impl Iterator<Item = u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (((state >> 32) * u64::from(limit)) >> 32) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_agree_within_their_tolerance_only() {
        assert!(Agreement::Within(0.1).difference(&[1.05, 0.0], &[1.0, 0.0]).is_none());
        assert!(Agreement::Within(0.1).difference(&[1.0, 0.2], &[1.0, 0.0]).is_some());
        assert!(Agreement::Within(0.1).difference(&[1.0, f64::NAN], &[1.0, 0.0]).is_some());
        assert!(Agreement::Within(0.0).difference(&[1.0], &[1.0, 0.0]).is_some());
        assert!(Agreement::Share(0.5).difference(&[1.0, 7.0], &[1.0, 0.0]).is_none());
        assert!(Agreement::Share(0.4).difference(&[1.0, 7.0], &[1.0, 0.0]).is_some());
    }
}
