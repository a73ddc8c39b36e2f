//! [`Target`]: target GPUs of code generation.

use std::fmt;
use std::str::FromStr;

use elinvar_driver::{Error, Result};
use serde::{Deserialize, Serialize};

/// A compute capability. PTX for one runs on all later ones, since the driver compiles it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// 10 · major + minor: 90 for `sm_90`.
    capability: u32,
}

impl Target {
    /// Minimum capability: independent thread scheduling, and `mma` with 16-bit floats.
    const LEAST: u32 = 80;
    /// The distinguished capabilities, all of which every supported clang knows.
    const KNOWN: [u32; 4] = [90, 89, 86, Self::LEAST];

    /// The target for a GPU of this compute capability: the latest known one that is not above it.
    ///
    /// # Errors
    /// `Unsupported` below 8.0.
    pub fn of(major: u32, minor: u32) -> Result<Self> {
        let capability = major.saturating_mul(10).saturating_add(minor);
        if capability < Self::LEAST {
            let least = Self { capability: Self::LEAST };
            return Err(Error::unsupported(format!(
                "compute capability {major}.{minor}; {least} or above is required"
            )));
        }
        // Capabilities in between run code for the next lower one.
        let known = Self::KNOWN.into_iter().find(|known| *known <= capability);
        Ok(Self { capability: known.unwrap_or(Self::LEAST) })
    }

    /// The targets whose code runs on this one, in descending order.
    pub fn that_run(self) -> impl Iterator<Item = Self> {
        Self::KNOWN
            .into_iter()
            .filter(move |known| *known <= self.capability)
            .map(|capability| Self { capability })
    }

    /// 10 · major + minor.
    pub fn capability(self) -> u32 {
        self.capability
    }

    /// The PTX version, as clang's feature name: the first with the capability and all used instructions.
    pub(crate) fn feature(self) -> &'static str {
        if self.capability >= 89 { "+ptx78" } else { "+ptx77" }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self { capability: Self::KNOWN[0] }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.capability)
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok());
        let number = number.ok_or_else(|| {
            Error::invalid(format!("`{text}` is not a target; expected a compute capability such as `sm_90`"))
        })?;
        let target = Self::of(number / 10, number % 10)?;
        match target.capability == number {
            true => Ok(target),
            false => Err(Error::invalid(format!(
                "`{text}` is not a known target; the latest known one before it is `{target}`"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_becomes_the_last_that_is_known() {
        for (major, minor, name) in
            [(8, 0, "sm_80"), (8, 7, "sm_86"), (8, 9, "sm_89"), (9, 0, "sm_90"), (12, 0, "sm_90")]
        {
            assert_eq!(Target::of(major, minor).unwrap().to_string(), name);
        }
        let names: Vec<String> =
            Target::of(8, 9).unwrap().that_run().map(|target| target.to_string()).collect();
        assert_eq!(names, ["sm_89", "sm_86", "sm_80"]);
        assert!(matches!(Target::of(7, 5), Err(Error::Unsupported(_))));
        assert_eq!("sm_90".parse::<Target>().unwrap(), Target::default());
        for text in ["sm_75", "sm_87", "90", "sm_", "sm_-1"] {
            text.parse::<Target>().unwrap_err();
        }
    }
}
