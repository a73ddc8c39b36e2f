//! `--target`: what the command line compiles for, which need not be here.

use std::fmt;
use std::str::FromStr;

use elinvar_analysis::{AppleFamily, System};

use crate::failure::Result;

/// `cpu[:LEVEL]`, `cuda[:sm_NN]` or `metal[:appleN][:SYSTEM]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This machine's processor, or a level of its architecture.
    Cpu(Option<&'static str>),
    Cuda(elinvar_ptx::Target),
    /// Apple's GPUs: Metal compiles on the device, or has compiled on a Mac.
    Metal,
    /// A family of Apple's GPUs, and a system or version of the language, for checks of their limits and features.
    Apple(AppleFamily, Option<System>),
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
            Some(("metal", rest)) => apple(rest),
            None if text == "cuda" => Ok(Self::Cuda(elinvar_ptx::Target::default())),
            Some(("cuda", name)) => {
                name.parse().map(Self::Cuda).map_err(|error: elinvar::Error| error.to_string())
            }
            _ => Err(format!(
                "unknown target `{text}`: expected cpu, cpu:LEVEL, cuda, cuda:sm_NN, metal, metal:appleN, metal:SYSTEM or metal:appleN:SYSTEM"
            )),
        }
    }
}

/// `appleN`, a system such as `macos13`, `ios16` or `msl3.1`, or both; without a family, that of M1.
fn apple(text: &str) -> Result<Target, String> {
    let (family, system) = match text.split_once(':') {
        Some((family, system)) => (family.parse()?, Some(system.parse()?)),
        None if text.starts_with("apple") => (text.parse()?, None),
        None => {
            let either = |why| format!("{why}, or a GPU family, apple2 to apple10");
            (AppleFamily::M1, Some(text.parse().map_err(either)?))
        }
    };
    Ok(Target::Apple(family, system))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(None) => f.write_str("cpu"),
            Self::Cpu(Some(level)) => write!(f, "cpu:{level}"),
            Self::Cuda(target) => write!(f, "cuda:{target}"),
            Self::Metal => f.write_str("metal"),
            Self::Apple(family, None) => write!(f, "metal:{family}"),
            Self::Apple(family, Some(system)) => write!(f, "metal:{family}:{system}"),
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
            ("metal:apple9:ios17", "metal:apple9:ios17"),
            ("metal:macos13", "metal:apple7:macos13"),
            ("metal:msl2.4", "metal:apple7:msl2.4"),
        ] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(printed));
        }
        for wrong in [
            "gpu",
            "cuda:",
            "cuda:sm_70",
            "cuda:90",
            "cpu:z80",
            "metal:3",
            "metal:apple1",
            "metal:apple",
            "metal:",
            "metal:macos9",
            "metal:macos13:apple7",
            "metal:apple7:",
            "metal:apple7:macos13:ios16",
            "",
        ] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
