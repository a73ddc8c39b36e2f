//! How a kernel is specialised when its pipeline is made.

use crate::{Diagnostic, ElementType, Scalar};

/// What a pipeline is made with, beside the kernel's name. The default has no constants and no checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PipelineOptions {
    /// Values of function constants.
    pub constants: Vec<Constant>,
    /// Whether every access to an argument's memory is checked against its bounds: reads outside give
    /// zero, writes outside are dropped, and the submission ends in a [`crate::Fault`].
    pub checked: bool,
}

/// The value of a function constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Constant {
    /// Which constant.
    pub key: ConstantKey,
    /// Type of the value, or of a component.
    pub scalar: Scalar,
    /// The value's bytes, one scalar for each component, without padding.
    pub bytes: Vec<u8>,
}

/// A function constant that a source declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FunctionConstant {
    /// The variable's name, with its namespaces.
    pub name: String,
    /// The index of `[[function_constant(n)]]`.
    pub index: u32,
    /// Its type: a scalar or a vector.
    pub ty: ElementType,
}

/// A kernel of a source that is well-formed and that the device cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UnsupportedKernel {
    /// Its name.
    pub name: String,
    /// Why, at the place in the source that is the reason, such as a parameter that is a texture.
    pub reason: Diagnostic,
}

/// What identifies a function constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ConstantKey {
    /// The index of `[[function_constant(n)]]`.
    Index(u32),
    /// The variable's name.
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
