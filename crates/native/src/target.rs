//! [`Target`]: processor, number of lanes of a vector, and optimization level.

use elinvar_driver::{Error, Result};

use crate::generate::Level;
use crate::processor;

/// Environment variable with the number of lanes of a vector, a power of two up to 32; for tests and experiments.
const LANES: &str = "ELINVAR_CPU_LANES";
/// Environment variable with the processor to compile for, as a value of clang's `-march` (on 64-bit Arm, `-mcpu`).
const PROCESSOR: &str = "ELINVAR_CPU_TARGET";
/// Width in bits of the values that determine the default number of lanes.
const LANE_BITS: u32 = 32;

/// Level of code for this machine's processor, which is passed between processes and not stored in files.
pub(crate) const NATIVE: &str = "native";

/// A compilation target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The processor, as clang names it.
    name: String,
    /// clang's options for the processor, separated by spaces.
    pub(crate) processor: String,
    /// Number of lanes of a vector.
    lanes: u32,
    /// Width of the processor's vector registers in bits.
    bits: u32,
    /// Whether clang optimizes.
    pub(crate) optimized: bool,
}

impl Target {
    /// This machine's processor, unless overridden by the environment.
    ///
    /// # Errors
    /// `Environment` if the environment specifies an invalid number of lanes.
    pub fn from_env() -> Result<Self> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let lanes = set(LANES).map(|text| lanes(&text)).transpose()?;
        Ok(Self::new(set(PROCESSOR).as_deref(), lanes))
    }

    /// A processor, as a value of clang's `-march` (on 64-bit Arm, `-mcpu`), and the number of lanes of a vector, a power of two up to
    /// 32. `None` selects this machine's processor, and one lane for each 32 bits of its vector registers.
    pub fn new(processor: Option<&str>, lanes: Option<u32>) -> Self {
        let name = processor.unwrap_or(NATIVE);
        // AVX512-BF16 instructions flush subnormals. Without them, results are the same on all processors.
        let options = match cfg!(target_arch = "aarch64") {
            true => format!("-mcpu={name}"),
            false => format!("-march={name} -mno-avx512bf16"),
        };
        let bits = match processor {
            Some("x86-64" | "x86-64-v2") => 128,
            Some("x86-64-v3") => 256,
            Some("x86-64-v4") => 512,
            _ => processor::vector_bits().unwrap_or(128),
        };
        let lanes = lanes.unwrap_or((bits / LANE_BITS).clamp(1, 32));
        Self { name: name.to_owned(), processor: options, lanes, bits, optimized: true }
    }

    /// Levels of this machine's architecture that this machine supports, as clang names them, highest first. Bundles can be packed for
    /// each of them.
    pub fn levels() -> Vec<&'static str> {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            // Features that each level adds; the remaining ones are present on all processors with these.
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

    /// The target for one of [`Target::levels`].
    ///
    /// # Errors
    /// `InvalidArgument` for any other level.
    pub fn of(level: &str) -> Result<Self> {
        let levels = Self::levels();
        if levels.contains(&level) {
            return Ok(Self::new(Some(level), None));
        }
        let known = levels.join("`, `");
        Err(Error::invalid(format!("unsupported level `{level}`; this machine supports `{known}`")))
    }

    /// The processor, as clang names it.
    pub(crate) fn processor_name(&self) -> &str {
        &self.name
    }

    /// The same target with clang's optimizations disabled.
    pub fn unoptimized(self) -> Self {
        Self { optimized: false, ..self }
    }

    /// clang's optimization level for optimized code.
    pub(crate) fn level(&self) -> Level {
        if self.optimized { Level::O3 } else { Level::O0 }
    }

    /// Number of lanes of a vector.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Number of vectors of 32-bit lanes that fit in the vector registers, at most the number of registers.
    pub fn registers(&self) -> u32 {
        let all = if self.bits >= 512 || cfg!(target_arch = "aarch64") { 32 } else { 16 };
        (all * self.bits / (self.lanes * LANE_BITS)).min(all)
    }

    /// Whether the processor has instructions for arithmetic with halves (AVX512-FP16). No level of x86-64 has.
    pub fn half_arithmetic(&self) -> bool {
        cfg!(target_arch = "aarch64") || self.name == NATIVE && processor::has_half_arithmetic()
    }

    /// Whether the processor has `vscalefps` (AVX-512).
    pub fn scalef(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.bits >= 512
    }

    /// Whether the processor has gather and scatter instructions (AVX-512).
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
