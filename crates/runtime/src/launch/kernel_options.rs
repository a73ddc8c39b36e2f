//! [`KernelOptions`]: how a kernel of a library is specialized and compiled.

use elinvar_driver::{PipelineOptions, Tier};

use crate::Constants;

/// Options of [`crate::Library::kernel_with`]. The default has no function constants.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct KernelOptions {
    constants: Constants,
    tier: Tier,
}

impl KernelOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the values of function constants.
    pub fn constants(self, constants: &Constants) -> Self {
        Self { constants: constants.clone(), ..self }
    }

    /// Sets when the kernel's code is optimized. [`Tier::Adaptive`] by default.
    pub fn tier(self, tier: Tier) -> Self {
        Self { tier, ..self }
    }

    pub(crate) fn pipeline(self, checked: bool) -> PipelineOptions {
        PipelineOptions { constants: self.constants.list, checked, tier: self.tier }
    }
}

impl From<&Constants> for KernelOptions {
    fn from(constants: &Constants) -> Self {
        Self::new().constants(constants)
    }
}
