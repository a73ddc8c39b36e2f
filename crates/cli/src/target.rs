//! `--target`: what the command line compiles for, which need not be here.

use std::fmt;
use std::str::FromStr;

use elinvar_analysis::AppleFamily;

use crate::failure::Result;

/// `cpu[:LEVEL]`, `cuda[:sm_NN]` or `metal[:appleN]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This machine's processor, or a level of its architecture.
    Cpu(Option<&'static str>),
    Cuda(elinvar_ptx::Target),
    /// Apple's GPUs: Metal compiles on the device, or has compiled on a Mac.
    Metal,
    /// A family of Apple's GPUs, for checks of its limits and features.
    Apple(AppleFamily),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu(None)),
            Some(("cpu", level)) => {
                let levels = elinvar_native::Target::levels();
                let known = levels.iter().find(|known| **known == level);
                known.map(|level| Self::Cpu(Some(level))).ok_or_else(|| {
                    format!("this machine does not have level `{level}`; it has `{}`", levels.join("`, `"))
                })
            }
            None if text == "metal" => Ok(Self::Metal),
            Some(("metal", family)) => family.parse().map(Self::Apple),
            None if text == "cuda" => Ok(Self::Cuda(elinvar_ptx::Target::default())),
            Some(("cuda", name)) => {
                name.parse().map(Self::Cuda).map_err(|error: elinvar::Error| error.to_string())
            }
            _ => Err(format!(
                "unknown target `{text}`: expected cpu, cpu:LEVEL, cuda, cuda:sm_NN, metal or metal:appleN"
            )),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(None) => f.write_str("cpu"),
            Self::Cpu(Some(level)) => write!(f, "cpu:{level}"),
            Self::Cuda(target) => write!(f, "cuda:{target}"),
            Self::Metal => f.write_str("metal"),
            Self::Apple(family) => write!(f, "metal:{family}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_named_as_they_print() {
        for (text, printed) in [
            ("cpu", "cpu"),
            ("cuda", "cuda:sm_90"),
            ("cuda:sm_80", "cuda:sm_80"),
            ("cuda:sm_90", "cuda:sm_90"),
            ("metal", "metal"),
            ("metal:apple9", "metal:apple9"),
        ] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(printed));
        }
        for wrong in
            ["gpu", "cuda:", "cuda:sm_70", "cuda:90", "cpu:z80", "metal:3", "metal:apple1", "metal:apple", ""]
        {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
