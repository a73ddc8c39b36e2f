//! [`Specialization`]: when code is specialized for a threadgroup size.

use std::time::Duration;

use elinvar_driver::{Error, Result, Tier};

/// Environment variable that replaces the tiers' choice, for tests and experiments.
const SIZES: &str = "ELINVAR_CPU_SIZES";
/// Processor time that launches with a size spend in general code before that size has code of its own: about what building it takes
/// (`elinvar bench compile`), so that both together cost at most twice as much as the better choice.
const EVIDENCE: Duration = Duration::from_millis(100);

/// When a kernel's code is specialized for a threadgroup size.
///
/// Other sizes run *general* code, which takes the size as a value and serves all sizes with the same layout of threads in vectors
/// ([`RowSizes`](elinvar_spmd::RowSizes)). A size that general code does not serve is always specialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Specialization {
    /// Number of sizes that are specialized at their first launch. The next one is the first that runs general code.
    pub sizes: usize,
    /// Processor time of the launches of general code with one size after which specialized code replaces it; `None` for never.
    pub evidence: Option<Duration>,
}

impl Specialization {
    /// Each size is specialized at its first launch.
    pub const ALWAYS: Self = Self { sizes: usize::MAX, evidence: None };
    /// General code whenever there is some.
    const NEVER: Self = Self { sizes: 0, evidence: None };
    /// The first size is specialized.
    const FIRST: Self = Self { sizes: 1, evidence: None };
    /// The first size is specialized, and others on evidence.
    const ADAPTIVE: Self = Self { sizes: 1, evidence: Some(EVIDENCE) };

    fn of(tier: Tier) -> Self {
        match tier {
            Tier::Adaptive => Self::ADAPTIVE,
            Tier::Quick => Self::FIRST,
            Tier::Optimized => Self::ALWAYS,
        }
    }
}

/// The choice that the environment makes for all tiers.
pub(crate) struct Sizes(Option<Specialization>);

impl Sizes {
    /// From `ELINVAR_CPU_SIZES`, which is `adaptive`, `general` or `specialized`.
    ///
    /// # Errors
    /// `Environment` for any other value.
    pub fn from_env() -> Result<Self> {
        Self::parse(&std::env::var(SIZES).unwrap_or_default())
    }

    fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "adaptive" => Ok(Self(None)),
            "general" => Ok(Self(Some(Specialization::NEVER))),
            "specialized" => Ok(Self(Some(Specialization::ALWAYS))),
            _ => Err(Error::Environment(format!(
                "{SIZES} is `{value}`; it has to be adaptive, general or specialized"
            ))),
        }
    }

    /// The choice for kernels of a tier.
    pub fn of(&self, tier: Tier) -> Specialization {
        self.0.unwrap_or_else(|| Specialization::of(tier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_replaces_the_choice_of_every_tier() {
        let tiers = [Tier::Adaptive, Tier::Quick, Tier::Optimized];
        let of = |value| tiers.map(|tier| Sizes::parse(value).unwrap().of(tier));
        let chosen = [Specialization::ADAPTIVE, Specialization::FIRST, Specialization::ALWAYS];
        assert_eq!((of(""), of("adaptive")), (chosen, chosen));
        assert_eq!(of("general"), [Specialization::NEVER; 3]);
        assert_eq!(of("specialized"), [Specialization::ALWAYS; 3]);
        let error = Sizes::parse("all").err().unwrap().to_string();
        assert_eq!(error, "ELINVAR_CPU_SIZES is `all`; it has to be adaptive, general or specialized");
    }
}
