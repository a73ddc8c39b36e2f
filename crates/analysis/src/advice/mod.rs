//! Advice: changes of a kernel that make it faster, with the gain that the model expects.
//!
//! Each remedy has a pair of kernels, one that it finds and a mended twin with equal results, in `elinvar bench advice`; there is none without a
//! gain measured there, on the CPU, on a GPU, or on both ([`Remedy::machines`]).

mod model;
mod rules;

use elinvar_ir::Location;
use serde::Serialize;

pub use model::Machine;

use crate::{Analysis, Launch};

/// A change of a kernel or of its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Exchange x and y of the positions, and of the launch's sizes.
    SwapAxes,
    /// Let a thread process several small elements, as one vector.
    Vectorize,
    /// Lengthen the rows of a tile by an element.
    PadTile,
    /// Declare a small argument that is only read as `constant`.
    MoveToConstant,
    /// Load in front of a loop what does not change in it.
    Hoist,
    /// Let neighboring threads take the same way of a branch.
    SplitBranch,
    /// Reduce by `simd_sum` in place of a tree in threadgroup memory.
    SimdgroupReduction,
    /// Count in threadgroup memory, and add the counts of a threadgroup at its end.
    PrivatizeHistogram,
    /// Launch threadgroups of another size.
    ResizeGroup,
}

impl Remedy {
    /// All remedies.
    pub const ALL: [Self; 9] = [
        Self::SwapAxes,
        Self::Vectorize,
        Self::PadTile,
        Self::MoveToConstant,
        Self::Hoist,
        Self::SplitBranch,
        Self::SimdgroupReduction,
        Self::PrivatizeHistogram,
        Self::ResizeGroup,
    ];

    /// The name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SwapAxes => "swap-axes",
            Self::Vectorize => "vectorize",
            Self::PadTile => "pad-tile",
            Self::MoveToConstant => "move-to-constant",
            Self::Hoist => "hoist",
            Self::SplitBranch => "split-branch",
            Self::SimdgroupReduction => "simdgroup-reduction",
            Self::PrivatizeHistogram => "privatize-histogram",
            Self::ResizeGroup => "resize-group",
        }
    }

    /// The machines on which it is given.
    pub const fn machines(self) -> &'static [Machine] {
        match self {
            Self::SwapAxes | Self::Hoist | Self::SimdgroupReduction => &[Machine::Cpu, Machine::Gpu],
            // On the CPU their pairs take the same time: it has no banks, its vectors are of several threads already, and small threadgroups share
            // them.
            _ => &[Machine::Gpu],
        }
    }

    /// What to do.
    pub const fn description(self) -> &'static str {
        match self {
            Self::SwapAxes => "Exchange x and y of the positions and of the launch's sizes.",
            Self::Vectorize => "Let a thread process several elements, as one vector.",
            Self::PadTile => "Lengthen the rows of the tile by an element.",
            Self::MoveToConstant => "Declare the argument as `constant`.",
            Self::Hoist => "Load in front of the loop what does not change in it.",
            Self::SplitBranch => "Let neighboring threads take the same way of the branch.",
            Self::SimdgroupReduction => "Reduce by SIMD-group functions in place of a tree.",
            Self::PrivatizeHistogram => "Count in threadgroup memory, and add the counts at the end.",
            Self::ResizeGroup => "Launch threadgroups of another size.",
        }
    }
}

/// A piece of advice.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// The change.
    pub remedy: Remedy,
    /// The place; `None` for the launch.
    pub location: Option<Location>,
    /// The reason, in figures.
    pub reason: String,
    /// The expected time over the expected time of the mended kernel, by the model of the machine.
    pub gain: f64,
    /// Name of the argument or variable that it is about.
    pub object: Option<String>,
}

impl Analysis {
    /// Advice for a machine, the largest gain first. That on the launch needs its sizes.
    ///
    /// # Errors
    /// As [`analyze`](crate::analyze).
    pub fn advice(&self, machine: Machine, launch: Option<&Launch>) -> elinvar_driver::Result<Vec<Advice>> {
        let kernel = self.source.kernel()?;
        let code = model::Code::new(self, &kernel);
        let mut advice = rules::Rules { analysis: self, kernel: &kernel, machine, code }.all(launch);
        advice.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(advice)
    }
}
