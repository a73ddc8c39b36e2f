//! [`Tiers`]: when code is optimized.

use elinvar_driver::{Error, PipelineOptions, Result, Tier};

/// Environment variable with the tier of kernels that have none, for tests and experiments.
const TIER: &str = "ELINVAR_CPU_TIER";
/// Size of a kernel's vectorized IR in bytes from which on optimization is costly: about half a second of clang's time. Unoptimized code takes a
/// fifth of it (`elinvar bench compile`).
const COSTLY: usize = 3 << 17;

/// When code is optimized.
pub(crate) struct Tiers {
    /// The tier that the environment sets.
    chosen: Option<Tier>,
    /// Size of the IR text in bytes from which on [`Tier::Adaptive`] starts with unoptimized code.
    pub costly: usize,
}

impl Tiers {
    /// From `ELINVAR_CPU_TIER`, which is `adaptive`, `quick`, `optimized`, or `replace`: adaptive with every kernel regarded as costly.
    ///
    /// # Errors
    /// `Environment` for any other value.
    pub fn from_env() -> Result<Self> {
        Self::parse(&std::env::var(TIER).unwrap_or_default())
    }

    fn parse(value: &str) -> Result<Self> {
        let (chosen, costly) = match value {
            "" | "adaptive" => (None, COSTLY),
            "quick" => (Some(Tier::Quick), COSTLY),
            "optimized" => (Some(Tier::Optimized), COSTLY),
            "replace" => (None, 0),
            _ => {
                return Err(Error::Environment(format!(
                    "{TIER} is `{value}`; it has to be adaptive, quick, optimized or replace"
                )));
            }
        };
        Ok(Self { chosen, costly })
    }

    /// The tier of a kernel with these options.
    pub fn of(&self, options: &PipelineOptions) -> Tier {
        match options.tier {
            Tier::Adaptive => self.chosen.unwrap_or_default(),
            pinned => pinned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, tier: Tier) -> (Tier, usize) {
        let tiers = Tiers::parse(value).unwrap();
        (tiers.of(&PipelineOptions { tier, ..PipelineOptions::default() }), tiers.costly)
    }

    #[test]
    fn the_environment_replaces_adaptive_only() {
        assert_eq!(of("", Tier::Adaptive), (Tier::Adaptive, COSTLY));
        assert_eq!(of("adaptive", Tier::Adaptive), (Tier::Adaptive, COSTLY));
        assert_eq!(of("replace", Tier::Adaptive), (Tier::Adaptive, 0));
        assert_eq!(of("quick", Tier::Adaptive), (Tier::Quick, COSTLY));
        assert_eq!(of("optimized", Tier::Adaptive), (Tier::Optimized, COSTLY));
        assert_eq!(of("quick", Tier::Optimized), (Tier::Optimized, COSTLY));
        assert_eq!(of("optimized", Tier::Quick), (Tier::Quick, COSTLY));
        let error = Tiers::parse("fast").err().unwrap().to_string();
        assert_eq!(error, "ELINVAR_CPU_TIER is `fast`; it has to be adaptive, quick, optimized or replace");
    }
}
