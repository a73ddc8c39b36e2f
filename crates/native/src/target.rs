//! What machine code is made for: a processor, the threads of a vector, and how much clang optimizes.

use elinvar_driver::{Error, Result};

use crate::processor;

/// Sets the threads of a vector: a power of two up to 32. For tests and experiments.
const LANES: &str = "ELINVAR_CPU_LANES";
/// Sets the processor to compile for, as clang's `-march` (on 64-bit Arm `-mcpu`) names it.
const PROCESSOR: &str = "ELINVAR_CPU_TARGET";
/// Bits of a lane of most kernels.
const LANE_BITS: u32 = 32;

/// The level of code for this very processor, which goes from one process to another and into no file.
pub(crate) const NATIVE: &str = "native";

/// What machine code is made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The processor's name for clang.
    level: String,
    /// The options that name the processor, separated by blanks.
    pub(crate) processor: String,
    /// Threads of a vector.
    lanes: u32,
    /// Bits of the processor's vectors.
    bits: u32,
    /// Whether clang optimizes.
    pub(crate) optimized: bool,
}

impl Target {
    /// This machine's processor, unless the environment names another.
    ///
    /// # Errors
    /// `Environment` when it asks for an impossible number of lanes.
    pub fn from_env() -> Result<Self> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let lanes = set(LANES).map(|text| lanes(&text)).transpose()?;
        Ok(Self::new(set(PROCESSOR).as_deref(), lanes))
    }

    /// A processor, as clang's `-march` (on 64-bit Arm `-mcpu`) names it, and the threads of a vector, a power of
    /// two up to 32; `None` is this machine's.
    pub fn new(processor: Option<&str>, lanes: Option<u32>) -> Self {
        let name = processor.unwrap_or(NATIVE);
        // The bfloat instructions of some x86 processors flush subnormal numbers; without them the
        // results are the same everywhere.
        let options = match cfg!(target_arch = "aarch64") {
            true => format!("-mcpu={name}"),
            false => format!("-march={name} -mno-avx512bf16"),
        };
        let bits = match processor {
            Some("x86-64" | "x86-64-v2") => 128,
            Some("x86-64-v3") => 256,
            _ => processor::vector_bits().unwrap_or(128),
        };
        let lanes = lanes.unwrap_or((bits / LANE_BITS).clamp(1, 32));
        Self { level: name.to_owned(), processor: options, lanes, bits, optimized: true }
    }

    /// The levels of this machine's architecture that bundles can be packed for, as clang names them, the highest first. Those that this
    /// machine does not have are left out.
    pub fn levels() -> Vec<&'static str> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            // What each level has and those below have not; the rest comes with these.
            let levels = [
                ("x86-64", true),
                ("x86-64-v2", has!("sse4.2") && has!("popcnt")),
                ("x86-64-v3", has!("avx2") && has!("fma") && has!("bmi2") && has!("f16c") && has!("lzcnt")),
                ("x86-64-v4", has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl")),
            ];
            let here = levels.iter().take_while(|(_, is_here)| *is_here).count();
            levels[..here].iter().rev().map(|(name, _)| *name).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            vec!["generic"]
        }
    }

    /// One of [`Target::levels`].
    ///
    /// # Errors
    /// `InvalidArgument` for any other.
    pub fn of(level: &str) -> Result<Self> {
        let levels = Self::levels();
        if levels.contains(&level) {
            return Ok(Self::new(Some(level), None));
        }
        let known = levels.join("`, `");
        Err(Error::invalid(format!("unsupported level `{level}`; this machine supports `{known}`")))
    }

    /// The processor's name for clang.
    pub(crate) fn level(&self) -> &str {
        &self.level
    }

    /// The same with code that clang does not optimize: quickly made, slow.
    pub fn unoptimized(self) -> Self {
        Self { optimized: false, ..self }
    }

    /// Threads of a vector.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Vectors of that many threads that the processor's registers hold.
    pub fn registers(&self) -> u32 {
        let all = if self.bits >= 512 || cfg!(target_arch = "aarch64") { 32 } else { 16 };
        (all * self.bits / (self.lanes * LANE_BITS)).min(all)
    }

    /// Whether the processor loads and stores at an address per lane (AVX-512).
    pub fn gathers(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.bits >= 512
    }
}

fn lanes(text: &str) -> Result<u32> {
    let lanes = text.parse().ok().filter(|lanes: &u32| lanes.is_power_of_two() && *lanes <= 32);
    lanes.ok_or_else(|| Error::Environment(format!("{LANES} is `{text}`; it has to be 1, 2, 4, 8, 16 or 32")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_of_lanes_are_refused() {
        for text in ["1", "2", "4", "8", "16", "32"] {
            assert_eq!(lanes(text).unwrap().to_string(), text);
        }
        for text in ["0", "3", "64", "-4", "many", "4 "] {
            let error = lanes(text).unwrap_err().to_string();
            assert_eq!(error, format!("ELINVAR_CPU_LANES is `{text}`; it has to be 1, 2, 4, 8, 16 or 32"));
        }
    }
}
