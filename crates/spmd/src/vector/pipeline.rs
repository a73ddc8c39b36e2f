//! The pipeline of the CPU back end: from one thread's module to a function over threadgroups.

use std::borrow::Cow;
use std::rc::Rc;

use elinvar_ir::{Function, Module, verify};

use super::workgroup::{self, Inputs, WorkgroupFunction};
use super::{early_cse, output, safepoints, soa_private_arrays, unroll_and_jam};
use crate::analysis::lane_layout::{GroupSize, Layout, RowSizes};
use crate::analysis::liveness::Liveness;
use crate::analysis::uniformity::Uniformity;
use crate::analysis::{
    Analyses, BarrierLiveness, RegionCfgs, Regions, allowlist, barrier_divergence, legality,
};
use crate::kernel::Kernel;
use crate::pass::{Form, Pass, PassInfo, Preserves, Unit};
use crate::support::declarations::declared;
use crate::transform::bounds::{self, Checks, freeze};
use crate::transform::{
    bfloat_as_i16, converge_barriers, fix_irreducible, hoist_invariant_loads, if_convert, legalize_division,
    lower_bfloat, lower_disjoint, lower_fast_math, lower_half, lower_intrinsics, lower_logging, lower_scale,
    mem2reg, promote_copies, scalarize,
};
use crate::{ENTRY, Error, Options, Target, log_calls, tensor_products};

/// The passes, in order.
pub(crate) fn passes<'a>() -> Vec<Pass<State<'a>>> {
    use Form::{Kernel as K, Target as T, Thread, Workgroup as W};
    use Preserves::{ControlFlow, Everything, Nothing};
    #[allow(clippy::type_complexity)] // the columns of one table
    let list: [(_, _, _, _, fn(&State<'a>) -> bool, fn(&mut State<'a>) -> Result<(), Error>, _, _); 27] = [
        // name, input, output, preserves, applies, run, requires, ensures
        (
            "allowlist",
            Thread,
            Thread,
            Everything,
            always,
            allowlist,
            "nothing",
            "each call and variable is one that no kernel can leave its memory or threads through",
        ),
        (
            "tensor-products",
            Thread,
            Thread,
            Nothing,
            asks_for_tensor_products,
            decline_tensor_products,
            "allowlist",
            "products of tensors are computed by the code of the headers",
        ),
        (
            "promote-copies",
            Thread,
            Thread,
            ControlFlow,
            always,
            promote_copies,
            "allowlist",
            "no private variable of up to 512 bytes that is only copied, in aligned words",
        ),
        (
            "lower-disjoint",
            Thread,
            Thread,
            ControlFlow,
            always,
            lower_disjoint,
            "allowlist",
            "no `or disjoint`: it is `add`",
        ),
        (
            "freeze",
            Thread,
            Thread,
            Nothing,
            is_checked,
            freeze,
            "allowlist",
            "no undefined behavior and no poison in code that bounds checks depend on",
        ),
        (
            "bounds",
            Thread,
            Thread,
            Nothing,
            is_checked,
            bounds,
            "freeze",
            "each access that may leave its memory is behind a check that records the first fault",
        ),
        (
            "lower-logging",
            Thread,
            Thread,
            Nothing,
            has_logs,
            lower_logging,
            "bounds",
            "log calls are calls of functions that write to the device's log ring",
        ),
        (
            "converge-barriers",
            Thread,
            Thread,
            Nothing,
            always,
            converge_barriers,
            "bounds",
            "a barrier that any lane of a simdgroup reaches is reached by all that have not returned",
        ),
        (
            "lower-intrinsics",
            Thread,
            K,
            Nothing,
            always,
            lower_intrinsics,
            "an entry",
            "positions are values, barriers are edges, allocas are private arrays",
        ),
        (
            "scalarize",
            K,
            K,
            ControlFlow,
            always,
            scalarize,
            "lower-intrinsics",
            "no vector values, if every vector operation is known",
        ),
        (
            "lower-scale",
            K,
            K,
            ControlFlow,
            always,
            lower_scale,
            "lower-intrinsics",
            "scaling by a power of two is `llvm.ldexp` for targets that have it, else two products",
        ),
        (
            "legalize-division",
            K,
            K,
            ControlFlow,
            always,
            legalize_division,
            "lower-intrinsics",
            "division and shifts are defined for every operand",
        ),
        (
            "lower-half",
            K,
            K,
            ControlFlow,
            always,
            lower_half,
            "lower-intrinsics",
            "half converts to integers through float, and is compared and rounded there for targets without halves",
        ),
        (
            "lower-bfloat",
            K,
            K,
            ControlFlow,
            always,
            lower_bfloat,
            "lower-intrinsics",
            "bfloat values are i16, and computed with in float",
        ),
        (
            "lower-fast-math",
            K,
            K,
            ControlFlow,
            always,
            lower_fast_math,
            "lower-bfloat",
            "no fast-math flags: contraction is decided",
        ),
        (
            "hoist-invariant-loads",
            K,
            K,
            ControlFlow,
            always,
            hoist_invariant_loads,
            "lower-intrinsics",
            "loads of Options::invariant_bytes are the kernel's invariant loads",
        ),
        (
            "fix-irreducible",
            K,
            K,
            Nothing,
            may_be_irreducible,
            fix_irreducible,
            "lower-intrinsics",
            "every region's loops have one entry; else an error",
        ),
        (
            "choose-lanes",
            K,
            K,
            Everything,
            always,
            choose_lanes,
            "fix-irreducible",
            "lanes are Options::lanes, or 1 for code that has no vector form",
        ),
        (
            "if-convert",
            K,
            K,
            Nothing,
            may_if_convert,
            if_convert,
            "choose-lanes",
            "no divergent branch decides only on a few instructions without effects",
        ),
        (
            "soa-private-arrays",
            K,
            K,
            ControlFlow,
            always,
            soa_private_arrays,
            "choose-lanes",
            "private arrays accessed by elements of one size are in structure-of-arrays layout",
        ),
        (
            "unroll-and-jam",
            K,
            K,
            Everything,
            always,
            unroll_and_jam,
            "soa-private-arrays",
            "the factor is chosen: vectors per iteration",
        ),
        (
            "rematerialize",
            K,
            K,
            Everything,
            always,
            rematerialize,
            "unroll-and-jam",
            "each value live across a barrier is either kept or cheap to rematerialize",
        ),
        (
            "vectorize",
            K,
            W,
            Nothing,
            always,
            vectorize,
            "rematerialize",
            "one function runs whole threadgroups; each region has a uniform and a masked version",
        ),
        (
            "safepoints",
            W,
            W,
            Nothing,
            is_stoppable,
            safepoints,
            "vectorize",
            "loops of callees poll the stop byte",
        ),
        (
            "mem2reg",
            W,
            W,
            Nothing,
            always,
            mem2reg,
            "vectorize",
            "stack slots that only loads and stores use are SSA values",
        ),
        (
            "early-cse",
            W,
            W,
            ControlFlow,
            always,
            early_cse,
            "mem2reg",
            "no pure operation is dominated by an equal one; no dead code",
        ),
        ("link", W, T, Nothing, always, link, "vectorize", "a module of its own that defines all it names"),
    ];
    let pass = |(name, input, output, preserves, applies, run, requires, ensures)| Pass {
        info: PassInfo { name, input, output, requires, ensures },
        preserves,
        applies,
        run,
    };
    list.into_iter().map(pass).collect()
}

/// The unit of the pipeline.
pub(crate) struct State<'a> {
    options: &'a Options,
    /// The module as the front end emitted it.
    original: &'a Module,
    /// One thread's code.
    pub module: Cow<'a, Module>,
    pub checks: Option<Checks>,
    pub code: Code,
    layout: Layout,
    /// The sizes that code with a dynamic threadgroup size serves, once the lanes are chosen.
    pub row_sizes: Option<RowSizes>,
    /// Whether code that takes the threadgroup size as a value is valid for all sizes.
    serves_sizes: bool,
    live: Option<Rc<Liveness>>,
    analyses: Analyses,
}

/// State besides the module.
pub(crate) enum Code {
    Thread,
    Kernel(Box<Kernel>),
    Workgroup(Box<Kernel>, Box<WorkgroupFunction>),
    Target(Box<Module>, Box<WorkgroupFunction>),
}

impl<'a> State<'a> {
    pub fn new(module: &'a Module, options: &'a Options) -> Self {
        Self {
            options,
            original: module,
            module: Cow::Borrowed(module),
            checks: None,
            code: Code::Thread,
            layout: Layout::of(options.group, 1, false),
            row_sizes: None,
            serves_sizes: true,
            live: None,
            analyses: Analyses::default(),
        }
    }

    /// The module and the kernel, which exists between `lower-intrinsics` and `vectorize`.
    fn kernel(&mut self) -> Result<(&Module, &mut Kernel, &mut Analyses), Error> {
        match &mut self.code {
            Code::Kernel(kernel) => Ok((&self.module, kernel, &mut self.analyses)),
            _ => Err(Error::Malformed("no kernel".into())),
        }
    }
}

impl Unit for State<'_> {
    const TARGET: Target = Target::Cpu;

    fn name(&self) -> &str {
        &self.options.name
    }

    fn form(&self) -> Form {
        match &self.code {
            Code::Thread => Form::Thread,
            Code::Kernel(_) => Form::Kernel,
            Code::Workgroup(..) => Form::Workgroup,
            Code::Target(..) => Form::Target,
        }
    }

    fn text(&self) -> String {
        match &self.code {
            Code::Thread => declared(&self.module).to_string(),
            Code::Kernel(kernel) => kernel.to_module(&self.module).to_string(),
            Code::Workgroup(_, workgroup) => workgroup.function.to_string(),
            Code::Target(module, _) => module.to_string(),
        }
    }

    fn verify(&self) -> Result<(), String> {
        let result = match &self.code {
            Code::Thread => verify(&declared(&self.module)),
            Code::Kernel(kernel) => verify(&kernel.to_module(&self.module)),
            // Its callees are not declared yet.
            Code::Workgroup(..) => Ok(()),
            Code::Target(module, _) => verify(module),
        };
        result.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn invalidate(&mut self, preserves: Preserves) {
        self.analyses.invalidate(preserves);
    }
}

fn always(_: &State<'_>) -> bool {
    true
}

fn is_checked(state: &State<'_>) -> bool {
    state.options.checks.is_some()
}

fn is_stoppable(state: &State<'_>) -> bool {
    state.options.stoppable
}

/// Whether the kernel must be vectorized regardless of its loops.
fn may_be_irreducible(state: &State<'_>) -> bool {
    matches!(&state.code, Code::Kernel(kernel) if kernel.exchanges.is_some())
}

fn allowlist(state: &mut State<'_>) -> Result<(), Error> {
    allowlist::check(&state.module)
}

fn freeze(state: &mut State<'_>) -> Result<(), Error> {
    freeze::define(state.module.to_mut());
    Ok(())
}

fn bounds(state: &mut State<'_>) -> Result<(), Error> {
    let given = state.options.checks.as_deref().unwrap_or_default();
    state.checks = Some(bounds::insert(state.module.to_mut(), given)?);
    Ok(())
}

fn has_logs(state: &State<'_>) -> bool {
    matches!(state.code, Code::Thread) && lower_logging::is_needed(&state.module)
}

fn lower_logging(state: &mut State<'_>) -> Result<(), Error> {
    let sites = log_calls(state.original)?;
    lower_logging::lower(state.module.to_mut(), &sites, Target::Cpu)
}

fn asks_for_tensor_products(state: &State<'_>) -> bool {
    tensor_products::is_needed(&state.module)
}

fn decline_tensor_products(state: &mut State<'_>) -> Result<(), Error> {
    tensor_products::decline(state.module.to_mut());
    Ok(())
}

fn promote_copies(state: &mut State<'_>) -> Result<(), Error> {
    if let Some(module) = promote_copies::promote(&state.module) {
        state.module = Cow::Owned(module);
    }
    Ok(())
}

fn lower_disjoint(state: &mut State<'_>) -> Result<(), Error> {
    if let Some(module) = lower_disjoint::lower(&state.module) {
        state.module = Cow::Owned(module);
    }
    Ok(())
}

fn converge_barriers(state: &mut State<'_>) -> Result<(), Error> {
    let is_entry = |f: &Function| f.name == ENTRY && !f.is_declaration();
    let Some(index) = state.module.functions.iter().position(is_entry) else { return Ok(()) };
    let mut entry = state.module.functions[index].clone();
    if converge_barriers::converge(&state.module, &mut entry)? {
        let lowered = barrier_divergence::Entry::of(&state.module)?;
        let any_size = lowered.check_any_size();
        state.serves_sizes = any_size.is_ok();
        match state.options.group {
            GroupSize::Static(group) => lowered.check(group)?,
            GroupSize::Dynamic(_) => any_size?,
        }
        state.module.to_mut().functions[index] = entry;
    }
    Ok(())
}

fn lower_intrinsics(state: &mut State<'_>) -> Result<(), Error> {
    let mut kernel = lower_intrinsics::lower(&state.module)?;
    kernel.objects = state.options.objects;
    // General code would keep memory for the largest threadgroup of each of the grid.
    state.serves_sizes &= !kernel.is_cooperative();
    let (params, expected) = (kernel.function.params.len(), state.options.threadgroup_args.len());
    if params != expected {
        return Err(Error::Malformed(format!(
            "the entry takes {params} arguments, the signature has {expected}"
        )));
    }
    state.code = Code::Kernel(Box::new(kernel));
    Ok(())
}

fn scalarize(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.kernel()?;
    scalarize::scalarize(module, &mut kernel.function);
    Ok(())
}

fn legalize_division(state: &mut State<'_>) -> Result<(), Error> {
    state.kernel()?.1.functions_mut().for_each(legalize_division::legalize);
    Ok(())
}

fn lower_half(state: &mut State<'_>) -> Result<(), Error> {
    let has_half = state.options.half_arithmetic;
    let functions = state.kernel()?.1.functions_mut();
    functions.for_each(|function| lower_half::lower(function, has_half));
    Ok(())
}

fn lower_scale(state: &mut State<'_>) -> Result<(), Error> {
    let has_scalef = state.options.scalef;
    state.kernel()?.1.functions_mut().for_each(|function| lower_scale::lower(function, has_scalef));
    Ok(())
}

fn lower_bfloat(state: &mut State<'_>) -> Result<(), Error> {
    let kernel = state.kernel()?.1;
    kernel.functions_mut().for_each(lower_bfloat::lower);
    let defined = kernel.callees.iter().map(|callee| callee.name.clone()).collect();
    kernel.functions_mut().for_each(|function| bfloat_as_i16::rewrite(function, &defined));
    for array in &mut kernel.private_arrays {
        array.ty = bfloat_as_i16::replaced(&array.ty);
    }
    Ok(())
}

fn lower_fast_math(state: &mut State<'_>) -> Result<(), Error> {
    state.kernel()?.1.functions_mut().for_each(lower_fast_math::lower);
    Ok(())
}

fn hoist_invariant_loads(state: &mut State<'_>) -> Result<(), Error> {
    let options = state.options;
    let (module, kernel, _) = state.kernel()?;
    hoist_invariant_loads::hoist(module, kernel, &options.invariant_bytes);
    Ok(())
}

fn fix_irreducible(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, analyses) = state.kernel()?;
    match legality::reducible(module, kernel, analyses) {
        Ok(()) => Ok(()),
        Err(_) => fix_irreducible::split_regions(kernel).map_err(legality::irreducible),
    }
}

fn choose_lanes(state: &mut State<'_>) -> Result<(), Error> {
    let options = state.options;
    let (module, kernel, analyses) = state.kernel()?;
    let exchanges = kernel.exchanges.is_some();
    let lanes = match legality::vectorizable(module, kernel, analyses) {
        Ok(()) => options.lanes,
        // One lane, unless the kernel has simdgroup operations.
        Err(_) if !exchanges => 1,
        Err(why) => return Err(why),
    };
    state.row_sizes = state.serves_sizes.then(|| RowSizes::new(lanes, exchanges));
    state.layout = Layout::of(options.group, lanes, exchanges);
    Ok(())
}

fn may_if_convert(state: &State<'_>) -> bool {
    matches!(&state.code, Code::Kernel(kernel) if state.layout.lanes > 1 && if_convert::may_convert(kernel))
}

fn if_convert(state: &mut State<'_>) -> Result<(), Error> {
    let layout = state.layout.clone();
    let (module, kernel, analyses) = state.kernel()?;
    let uniform = analyses.get::<Uniformity>(module, kernel, &layout).map_err(legality::irreducible)?;
    if_convert::convert(kernel, &uniform.divergent);
    Ok(())
}

fn soa_private_arrays(state: &mut State<'_>) -> Result<(), Error> {
    let lanes = state.layout.lanes;
    let (module, kernel, _) = state.kernel()?;
    soa_private_arrays::transpose(module, kernel, lanes);
    Ok(())
}

fn unroll_and_jam(state: &mut State<'_>) -> Result<(), Error> {
    let (layout, registers) = (state.layout.clone(), state.options.registers);
    let (module, kernel, analyses) = state.kernel()?;
    let uniform = analyses.get::<Uniformity>(module, kernel, &layout).map_err(legality::irreducible)?;
    state.layout.factor = unroll_and_jam::factor(kernel, &uniform, &layout, registers);
    Ok(())
}

fn rematerialize(state: &mut State<'_>) -> Result<(), Error> {
    let layout = state.layout.clone();
    let (module, kernel, analyses) = state.kernel()?;
    let uniform = analyses.get::<Uniformity>(module, kernel, &layout).map_err(legality::irreducible)?;
    let live = analyses.get::<BarrierLiveness>(module, kernel, &());
    let live = Liveness::clone(&live)
        .with_address_operands(|value| uniform.address_operands(kernel, value))
        .rematerialize(|value| uniform.is_cheap(kernel, value));
    state.live = Some(Rc::new(live));
    Ok(())
}

fn vectorize(state: &mut State<'_>) -> Result<(), Error> {
    let (layout, options) = (state.layout.clone(), state.options);
    let live = state.live.clone().ok_or_else(|| Error::Malformed("no liveness".into()))?;
    let (module, kernel, analyses) = state.kernel()?;
    let uniform = analyses.get::<Uniformity>(module, kernel, &layout).map_err(legality::irreducible)?;
    // The layout in which the whole threadgroup is one iteration.
    let group = match kernel.barriers.is_empty() || layout.iterations() == 1 {
        true => uniform.clone(),
        false => {
            let whole = Layout { factor: layout.vectors(), ..layout.clone() };
            analyses.get::<Uniformity>(module, kernel, &whole).map_err(legality::irreducible)?
        }
    };
    let cfgs = match layout.lanes * layout.factor == 1 {
        true => None,
        false => Some(analyses.get::<RegionCfgs>(module, kernel, &()).map_err(legality::irreducible)?),
    };
    let regions = analyses.get::<Regions>(module, kernel, &());
    let inputs = Inputs {
        module,
        kernel,
        regions: &regions,
        cfgs: cfgs.as_deref().map(Vec::as_slice),
        live: &live,
        layout: &layout,
        uniform: &uniform,
        group: &group,
        options,
    };
    let workgroup = Box::new(workgroup::build(&inputs)?);
    if let Code::Kernel(kernel) = std::mem::replace(&mut state.code, Code::Thread) {
        state.code = Code::Workgroup(kernel, workgroup);
    }
    Ok(())
}

fn safepoints(state: &mut State<'_>) -> Result<(), Error> {
    if let Code::Workgroup(kernel, workgroup) = &mut state.code
        && let Some(stop) = &workgroup.stop
    {
        safepoints::insert(&mut workgroup.function, stop, &mut kernel.callees);
    }
    Ok(())
}

fn mem2reg(state: &mut State<'_>) -> Result<(), Error> {
    if let Code::Workgroup(_, workgroup) = &mut state.code {
        mem2reg::promote(&mut workgroup.function);
    }
    Ok(())
}

fn early_cse(state: &mut State<'_>) -> Result<(), Error> {
    if let Code::Workgroup(_, workgroup) = &mut state.code {
        early_cse::eliminate(&mut workgroup.function);
        mem2reg::remove_dead_code(&mut workgroup.function);
    }
    Ok(())
}

fn link(state: &mut State<'_>) -> Result<(), Error> {
    if let Code::Workgroup(kernel, workgroup) = &state.code {
        let output = output::module(&state.module, kernel, workgroup.function.clone(), state.options.scalef)?;
        if let Code::Workgroup(_, workgroup) = std::mem::replace(&mut state.code, Code::Thread) {
            state.code = Code::Target(Box::new(output), workgroup);
        }
    }
    Ok(())
}
