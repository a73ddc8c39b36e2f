//! [`Activation`]: functions that are applied to the results of other operations before they are stored.

/// An activation function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `x`.
    #[default]
    None = 0,
    /// `max(x, 0)`.
    Relu = 1,
    /// `x · Φ(x)`, with the normal distribution function Φ.
    Gelu = 2,
    /// Gelu's approximation by tanh.
    GeluTanh = 3,
    /// `x · sigmoid(x)`.
    Silu = 4,
    /// `1 / (1 + e^-x)`.
    Sigmoid = 5,
    /// Hyperbolic tangent.
    Tanh = 6,
}

impl Activation {
    /// All functions.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Relu, Self::Gelu, Self::GeluTanh, Self::Silu, Self::Sigmoid, Self::Tanh];

    /// Its number in the kernels (`activate` of `common.metal`).
    pub(crate) const fn code(self) -> u32 {
        self as u32
    }
}
