//! Analyses: they compute facts about a kernel and do not change it.
//!
//! Passes of the CPU back end obtain analyses from an [`Analyses`], which computes each on first use and caches it until a pass
//! does not preserve it. Passes of NVPTX use one analysis each, so nothing is cached.
//!
//! [`Uniformity`] is computed for up to three lane layouts, since the layout is an input of the lattice. *Uniform* means equal
//! for all vectors of an iteration. With an unroll-and-jam factor of 1 that is one vector; the result determines the factor. With
//! the factor, fewer values are uniform. With the whole threadgroup as one iteration, the result has the values that are uniform
//! over the threadgroup, for early exits and for values that are stored once per threadgroup. Equal layouts share one result.

pub(crate) mod alias_roots;
pub(crate) mod alignment;
pub(crate) mod allowlist;
pub(crate) mod barrier_divergence;
pub(crate) mod cfg;
pub(crate) mod contiguous_rows;
pub(crate) mod divergence;
pub(crate) mod divergent_barriers;
pub(crate) mod facts;
pub(crate) mod index_narrowing;
pub(crate) mod interleaved_access;
pub(crate) mod lane_layout;
pub(crate) mod lane_rows;
pub(crate) mod legality;
pub(crate) mod linear_address;
pub(crate) mod liveness;
pub(crate) mod mask_classes;
pub(crate) mod mod_ref;
pub(crate) mod regions;
pub(crate) mod size_bound;
pub(crate) mod spin_waits;
pub(crate) mod stack_usage;
pub(crate) mod temporal_divergence;
pub(crate) mod uniformity;
pub(crate) mod vector_shape;

use std::any::Any;
use std::rc::Rc;
use std::time::Instant;

use elinvar_ir::{BlockId, Module};

use crate::kernel::Kernel;
use crate::pass::{Preserves, TARGET};
use cfg::{Cfg, Irreducible};
use lane_layout::Layout;
use liveness::Liveness;
use regions::Region;
use temporal_divergence::TemporalDivergence;
use uniformity::Uniformity;

/// An analysis of a kernel.
pub(crate) trait Analysis {
    const NAME: &str;
    /// Whether the result follows from the control-flow graph alone.
    const CONTROL_FLOW: bool;
    /// Inputs of the analysis besides the kernel.
    type Key: Clone + PartialEq + 'static;
    type Output: Clone + 'static;

    fn compute(module: &Module, kernel: &Kernel, key: &Self::Key, analyses: &mut Analyses) -> Self::Output;
}

struct Entry {
    name: &'static str,
    control_flow: bool,
    key: Box<dyn Any>,
    output: Box<dyn Any>,
}

/// The results of analyses of one kernel.
#[derive(Default)]
pub(crate) struct Analyses {
    entries: Vec<Entry>,
}

impl Analyses {
    /// Returns the result of an analysis; computes it if it is not cached.
    pub fn get<A: Analysis>(&mut self, module: &Module, kernel: &Kernel, key: &A::Key) -> A::Output {
        let found =
            self.entries.iter().find(|entry| entry.name == A::NAME && entry.key.downcast_ref() == Some(key));
        if let Some(output) = found.and_then(|entry| entry.output.downcast_ref::<A::Output>()) {
            return output.clone();
        }
        let start = Instant::now();
        let output = A::compute(module, kernel, key, self);
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        tracing::debug!(target: TARGET, analysis = A::NAME, ns);
        self.entries.push(Entry {
            name: A::NAME,
            control_flow: A::CONTROL_FLOW,
            key: Box::new(key.clone()),
            output: Box::new(output.clone()),
        });
        output
    }

    /// Drops the analyses that a pass has not preserved.
    pub fn invalidate(&mut self, preserves: Preserves) {
        match preserves {
            Preserves::Everything => {}
            Preserves::ControlFlow => self.entries.retain(|entry| entry.control_flow),
            Preserves::Nothing => self.entries.clear(),
        }
    }
}

/// The control-flow graph of the whole function, over its barriers.
pub(crate) struct FunctionCfg;

impl Analysis for FunctionCfg {
    const NAME: &str = "cfg";
    const CONTROL_FLOW: bool = true;
    type Key = ();
    type Output = Result<Rc<Cfg>, Irreducible>;

    fn compute(_: &Module, kernel: &Kernel, (): &(), _: &mut Analyses) -> Self::Output {
        Cfg::new(&kernel.function, BlockId(0), |_| false).map(Rc::new)
    }
}

/// The regions between barriers.
pub(crate) struct Regions;

impl Analysis for Regions {
    const NAME: &str = "regions";
    const CONTROL_FLOW: bool = true;
    type Key = ();
    type Output = Rc<Vec<Region>>;

    fn compute(_: &Module, kernel: &Kernel, (): &(), _: &mut Analyses) -> Self::Output {
        Rc::new(regions::regions(kernel))
    }
}

/// The control-flow graph of each region; `None` for an empty region.
pub(crate) struct RegionCfgs;

/// By region.
pub(crate) type CfgOfRegions = Rc<Vec<Option<Rc<Cfg>>>>;

impl Analysis for RegionCfgs {
    const NAME: &str = "region-cfgs";
    const CONTROL_FLOW: bool = true;
    type Key = ();
    type Output = Result<CfgOfRegions, Irreducible>;

    fn compute(module: &Module, kernel: &Kernel, (): &(), analyses: &mut Analyses) -> Self::Output {
        let regions = analyses.get::<Regions>(module, kernel, &());
        let ends = |block| kernel.barrier_after(block).is_some();
        let cfgs = regions.iter().map(|region| match region.blocks.is_empty() {
            true => Ok(None),
            false => Cfg::new(&kernel.function, region.start, ends).map(|cfg| Some(Rc::new(cfg))),
        });
        Ok(Rc::new(cfgs.collect::<Result<_, _>>()?))
    }
}

/// The values that are live across each barrier.
pub(crate) struct BarrierLiveness;

impl Analysis for BarrierLiveness {
    const NAME: &str = "liveness";
    const CONTROL_FLOW: bool = false;
    type Key = ();
    type Output = Rc<Liveness>;

    fn compute(_: &Module, kernel: &Kernel, (): &(), _: &mut Analyses) -> Self::Output {
        Rc::new(liveness::across_barriers(kernel))
    }
}

/// Temporal divergence, by the lanes of a vector.
impl Analysis for TemporalDivergence {
    const NAME: &str = "temporal-divergence";
    const CONTROL_FLOW: bool = false;
    type Key = u32;
    type Output = Result<Rc<Self>, Irreducible>;

    fn compute(module: &Module, kernel: &Kernel, lanes: &u32, analyses: &mut Analyses) -> Self::Output {
        // With one lane there is no masked version.
        if *lanes == 1 || kernel.barriers.is_empty() {
            return Ok(Rc::new(Self::default()));
        }
        let regions = analyses.get::<Regions>(module, kernel, &());
        let live = analyses.get::<BarrierLiveness>(module, kernel, &());
        let cfgs = analyses.get::<RegionCfgs>(module, kernel, &())?;
        Ok(Rc::new(Self::new(kernel, &regions, &cfgs, &live)))
    }
}

impl Analysis for Uniformity {
    const NAME: &str = "uniformity";
    const CONTROL_FLOW: bool = false;
    type Key = Layout;
    type Output = Result<Rc<Self>, Irreducible>;

    fn compute(module: &Module, kernel: &Kernel, layout: &Layout, analyses: &mut Analyses) -> Self::Output {
        if layout.lanes * layout.factor == 1 {
            return Ok(Rc::new(Self::of_one_lane(kernel)));
        }
        let temporal = analyses.get::<TemporalDivergence>(module, kernel, &layout.lanes)?;
        let cfg = analyses.get::<FunctionCfg>(module, kernel, &())?;
        Ok(Rc::new(Self::new(module, kernel, layout, cfg, &temporal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_kept_until_a_pass_does_not_preserve_them() {
        let module = Module::parse("define void @__elinvar_entry(ptr %a) {\n ret void\n}").unwrap();
        let kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let mut analyses = Analyses::default();
        let layout = Layout::new([64, 1, 1], 8, false);
        let uniformity =
            |analyses: &mut Analyses| analyses.get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let cfg = |analyses: &mut Analyses| analyses.get::<FunctionCfg>(&module, &kernel, &()).unwrap();
        let (first, flow) = (uniformity(&mut analyses), cfg(&mut analyses));
        assert!(Rc::ptr_eq(&first, &uniformity(&mut analyses)));
        let wider = Layout { factor: 2, ..layout.clone() };
        let other = analyses.get::<Uniformity>(&module, &kernel, &wider).unwrap();
        assert!(!Rc::ptr_eq(&first, &other), "another layout is another analysis");
        analyses.invalidate(Preserves::ControlFlow);
        assert!(Rc::ptr_eq(&flow, &cfg(&mut analyses)) && !Rc::ptr_eq(&first, &uniformity(&mut analyses)));
        analyses.invalidate(Preserves::Nothing);
        assert!(!Rc::ptr_eq(&flow, &cfg(&mut analyses)));
    }
}
