//! [`Target`]: target GPUs of code generation.

use std::fmt;
use std::str::FromStr;

use elinvar_driver::{Error, Result};
use serde::{Deserialize, Serialize};

/// A compute capability. PTX for one runs on all later ones, since the driver compiles it; PTX for an architecture, as `sm_90a`, runs on that
/// one only, and has its instructions (PTX ISA, ".target").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Target {
    /// 10 · major + minor: 90 for `sm_90`.
    capability: u32,
    /// Whether it is for this architecture only.
    specific: bool,
}

impl Target {
    /// Minimum capability: independent thread scheduling, and `mma` with 16-bit floats.
    const LEAST: u32 = 80;
    /// The distinguished capabilities, all of which every supported clang knows.
    const KNOWN: [Self; 5] = [
        Self::specific(90),
        Self::general(90),
        Self::general(89),
        Self::general(86),
        Self::general(Self::LEAST),
    ];

    const fn general(capability: u32) -> Self {
        Self { capability, specific: false }
    }

    const fn specific(capability: u32) -> Self {
        Self { capability, specific: true }
    }

    /// The target for a GPU of this compute capability: the latest known one that is not above it.
    ///
    /// # Errors
    /// `Unsupported` below 8.0.
    pub fn of(major: u32, minor: u32) -> Result<Self> {
        let capability = major.saturating_mul(10).saturating_add(minor);
        if capability < Self::LEAST {
            let least = Self::general(Self::LEAST);
            return Err(Error::unsupported(format!(
                "compute capability {major}.{minor}; {least} or above is required"
            )));
        }
        // Capabilities in between run code for the next lower one.
        let known = Self::KNOWN.into_iter().find(|known| known.runs_on(capability));
        Ok(known.unwrap_or(Self::general(Self::LEAST)))
    }

    fn runs_on(self, capability: u32) -> bool {
        if self.specific { self.capability == capability } else { self.capability <= capability }
    }

    /// The targets whose code runs on this one, in descending order.
    pub fn that_run(self) -> impl Iterator<Item = Self> {
        Self::KNOWN
            .into_iter()
            .filter(move |known| known.runs_on(self.capability) && (self.specific || !known.specific))
    }

    /// Whether it has the matrix instructions of Hopper's warpgroups.
    pub(crate) fn has_wgmma(self) -> bool {
        self == Self::specific(90)
    }

    /// 10 · major + minor.
    pub fn capability(self) -> u32 {
        self.capability
    }

    /// The PTX version, as clang's feature name: the first with the capability and all used instructions.
    pub(crate) fn feature(self) -> &'static str {
        match self {
            Self { specific: true, .. } => "+ptx80",
            Self { capability: 89.., .. } => "+ptx78",
            _ => "+ptx77",
        }
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::general(90)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.capability, if self.specific { "a" } else { "" })
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
        if let Some(known) = Self::KNOWN.into_iter().find(|known| known.to_string() == text) {
            return Ok(known);
        }
        let number = text.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok());
        let number = number.ok_or_else(|| {
            Error::invalid(format!("`{text}` is not a target; expected a compute capability such as `sm_90`"))
        })?;
        let target = Self::of(number / 10, number % 10)?;
        Err(Error::invalid(format!(
            "`{text}` is not a known target; the latest known one before it is `{target}`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_becomes_the_last_that_is_known() {
        for (major, minor, name) in
            [(8, 0, "sm_80"), (8, 7, "sm_86"), (8, 9, "sm_89"), (9, 0, "sm_90a"), (12, 0, "sm_90")]
        {
            assert_eq!(Target::of(major, minor).unwrap().to_string(), name);
        }
        let names: Vec<String> =
            Target::of(8, 9).unwrap().that_run().map(|target| target.to_string()).collect();
        assert_eq!(names, ["sm_89", "sm_86", "sm_80"]);
        // Code for one architecture runs on no other, and an older bundle's code on it.
        let of = |major, minor| {
            Target::of(major, minor).unwrap().that_run().map(|t| t.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(9, 0), ["sm_90a", "sm_90", "sm_89", "sm_86", "sm_80"]);
        assert_eq!(of(10, 0), ["sm_90", "sm_89", "sm_86", "sm_80"]);
        assert_eq!("sm_90a".parse::<Target>().unwrap(), Target::of(9, 0).unwrap());
        assert!(matches!(Target::of(7, 5), Err(Error::Unsupported(_))));
        assert_eq!("sm_90".parse::<Target>().unwrap(), Target::default());
        for text in ["sm_75", "sm_87", "90", "sm_", "sm_-1"] {
            text.parse::<Target>().unwrap_err();
        }
    }
}
