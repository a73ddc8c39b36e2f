//! [`PipelineOptions`]: specialization of a kernel at pipeline creation.

use crate::{Diagnostic, ElementType, Scalar};

/// Options of a pipeline. The default has no function constants and no bounds checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PipelineOptions {
    /// Values of function constants. Constants that are not listed are undefined.
    pub constants: Vec<Constant>,
    /// Whether memory accesses are bounds checked: out-of-bounds reads return 0, out-of-bounds writes are dropped, and the
    /// submission ends in a [`crate::Fault`].
    pub checked: bool,
    /// When the kernel's code is optimized. It does not change results, and is ignored by devices that have one tier of code.
    pub tier: Tier,
}

/// When a kernel's code is optimized. Both tiers compute the same results, except for the sign and payload of NaNs.
///
/// The CPU driver has both tiers; other devices have optimized code only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Tier {
    /// If optimization would take long, the first launches run unoptimized code, while optimized code is compiled in the background. It
    /// replaces the former between launches. From the second threadgroup size on, launches run code that serves many sizes, until it has
    /// run for so long with one that code specialized for this size is compiled in the background.
    #[default]
    Adaptive,
    /// Unoptimized code, which is compiled quickly; from the second threadgroup size on, one that serves many sizes.
    Quick,
    /// Optimized code, specialized for each threadgroup size. The first launch with a size waits for it.
    Optimized,
}

/// The value of a function constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Constant {
    /// The constant, by index or name.
    pub key: ConstantKey,
    /// Type of the value; for a vector, of a component.
    pub scalar: Scalar,
    /// The value in native byte order: one scalar for each component, without padding.
    pub bytes: Vec<u8>,
}

/// A function constant that a source declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FunctionConstant {
    /// Qualified name of the variable.
    pub name: String,
    /// Index of `[[function_constant(n)]]`.
    pub index: u32,
    /// Type: a scalar or a vector.
    pub ty: ElementType,
}

/// A valid kernel that the device does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnsupportedKernel {
    /// Name of the kernel.
    pub name: String,
    /// The reason, with the source location of the unsupported feature, such as a texture parameter.
    pub reason: Diagnostic,
}

/// Identifies a function constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ConstantKey {
    /// Index of `[[function_constant(n)]]`.
    Index(u32),
    /// Qualified name of the variable.
    Name(String),
}

impl From<u32> for ConstantKey {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl From<&str> for ConstantKey {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for ConstantKey {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}
