//! The pipeline for NVPTX: from one thread's module to a module that clang compiles to PTX.

use std::borrow::Cow;

use elinvar_ir::{Function, Module, verify};

use super::entry::{self, Wrapped};
use super::shared_memory::{self, Memory};
use super::tensor_products::Functions;
use super::{
    Options, approximate_math, barriers, grid_barriers, loop_versioning, simdgroup, target, tensor_products,
    vectorize_copies, yields, zero_shared_memory,
};
use crate::analysis::allowlist;
use crate::pass::{Form, Pass, PassInfo, Preserves, Unit};
use crate::support::calls;
use crate::support::declarations::declare_called;
use crate::support::ir::threadgroup_globals;
use crate::transform::bounds::{self, Checks, freeze};
use crate::transform::{converge_barriers, legalize_division, lower_logging, lower_scale, promote_copies};
use crate::{ENTRY, Error, Target, log_calls};

/// The passes, in order.
pub(crate) fn passes<'a>() -> Vec<Pass<State<'a>>> {
    use Form::{Device as D, Target as T, Thread};
    #[allow(clippy::type_complexity)] // the columns of one table
    let list: [(_, _, _, fn(&State<'a>) -> bool, fn(&mut State<'a>) -> Result<(), Error>, _, _); 20] = [
        // name, input, output, applies, run, requires, ensures
        (
            "allowlist",
            Thread,
            Thread,
            always,
            allowlist,
            "nothing",
            "each call and variable is one that no kernel can leave its memory or threads through",
        ),
        (
            "tensor-products",
            Thread,
            Thread,
            asks_for_tensor_products,
            lower_tensor_products,
            "allowlist",
            "products of tensors are calls of functions that are defined behind the module, or the device has none",
        ),
        (
            "promote-copies",
            Thread,
            Thread,
            always,
            promote_copies,
            "allowlist",
            "no private variable of up to 512 bytes that is only copied, in aligned words",
        ),
        (
            "freeze",
            Thread,
            Thread,
            is_checked,
            freeze,
            "allowlist",
            "no undefined behavior and no poison in code that bounds checks depend on",
        ),
        (
            "bounds",
            Thread,
            Thread,
            is_checked,
            bounds,
            "freeze",
            "each access that may leave its memory is behind a check that records the first fault",
        ),
        (
            "lower-logging",
            Thread,
            Thread,
            has_logs,
            lower_logging,
            "bounds",
            "log calls are calls of functions that write to the device's log ring",
        ),
        (
            "zero-shared-memory",
            Thread,
            Thread,
            is_checked,
            zero_shared_memory,
            "bounds",
            "threadgroup memory is zero before the kernel's own code",
        ),
        (
            "converge-barriers",
            Thread,
            Thread,
            always,
            converge_barriers,
            "zero-shared-memory",
            "a barrier that any lane of a simdgroup reaches is reached by all that have not returned",
        ),
        (
            "grid-barriers",
            Thread,
            Thread,
            has_grid_barriers,
            grid_barriers,
            "converge-barriers",
            "grid barriers are calls of a function that waits at a counter",
        ),
        (
            "yields",
            Thread,
            Thread,
            has_yields,
            lower_yields,
            "converge-barriers",
            "a resident kernel sleeps and meets at a threadgroup barrier where it yields",
        ),
        (
            "shared-memory",
            Thread,
            Thread,
            always,
            shared_memory,
            "no callee names a threadgroup variable",
            "threadgroup variables are in shared memory",
        ),
        (
            "kernel-entry",
            Thread,
            D,
            always,
            kernel_entry,
            "shared-memory",
            "the kernel has its parameters and a prologue that computes positions; threads outside the grid have returned",
        ),
        (
            "legalize-division",
            D,
            D,
            always,
            legalize_division,
            "kernel-entry",
            "division and shifts are defined for every operand",
        ),
        (
            "lower-scale",
            D,
            D,
            always,
            lower_scale,
            "kernel-entry",
            "scaling by a power of two is two products",
        ),
        (
            "barriers",
            D,
            D,
            always,
            barriers,
            "kernel-entry",
            "barriers and fences are PTX's; atomic operations are relaxed, with the scope of the device or the system",
        ),
        (
            "vectorize-copies",
            D,
            D,
            always,
            vectorize_copies,
            "kernel-entry",
            "copies of constant size use 16-byte words where their addresses allow it",
        ),
        (
            "simdgroup",
            D,
            D,
            exchanges,
            simdgroup,
            "kernel-entry",
            "functions across a simdgroup are calls of the library with the mask of active lanes",
        ),
        (
            "loop-versioning",
            D,
            D,
            always,
            loop_versioning,
            "kernel-entry",
            "a strided loop of one block that loads has a version whose counter does not wrap",
        ),
        (
            "approximate-math",
            D,
            D,
            is_approximate,
            approximate_math,
            "kernel-entry",
            "divisions that have to be rounded correctly say so",
        ),
        (
            "retarget",
            D,
            T,
            always,
            retarget,
            "all above",
            "triple, data layout, attributes and annotations are NVPTX's; intrinsics are declared",
        ),
    ];
    let pass = |(name, input, output, applies, run, requires, ensures)| Pass {
        info: PassInfo { name, input, output, requires, ensures },
        // No analysis is shared by passes.
        preserves: Preserves::Nothing,
        applies,
        run,
    };
    list.into_iter().map(pass).collect()
}

/// The unit of the pipeline.
pub(crate) struct State<'a> {
    options: &'a Options,
    /// Functions that are defined behind the module.
    pub(super) products: Functions,
    /// The module as the front end emitted it.
    original: &'a Module,
    pub module: Cow<'a, Module>,
    pub checks: Option<Checks>,
    pub(super) memory: Memory,
    /// The kernel while it is separate from its module, and its shape.
    kernel: Option<Function>,
    pub(super) wrapped: Option<Wrapped>,
    is_done: bool,
}

impl<'a> State<'a> {
    pub fn new(module: &'a Module, options: &'a Options) -> Self {
        Self {
            options,
            products: Functions::default(),
            original: module,
            module: Cow::Borrowed(module),
            checks: None,
            memory: Memory { static_bytes: 0, dynamic_base: 0 },
            kernel: None,
            wrapped: None,
            is_done: false,
        }
    }

    /// The module without the kernel, the kernel and its shape: between `kernel-entry` and `retarget`.
    fn device(&mut self) -> Result<(&mut Module, &mut Function, &Wrapped), Error> {
        match (&mut self.kernel, &self.wrapped) {
            (Some(kernel), Some(wrapped)) => Ok((self.module.to_mut(), kernel, wrapped)),
            _ => Err(Error::Malformed("no kernel".into())),
        }
    }

    /// The module with the kernel, and a declaration of every intrinsic.
    fn joined(&self) -> Cow<'_, Module> {
        if self.is_done {
            return Cow::Borrowed(&self.module);
        }
        let mut module = Module::clone(&self.module);
        module.functions.extend(self.kernel.clone());
        declare_called(&mut module, |_| true);
        Cow::Owned(module)
    }
}

impl Unit for State<'_> {
    const TARGET: Target = Target::Nvptx;

    fn name(&self) -> &str {
        &self.options.name
    }

    fn form(&self) -> Form {
        match (self.is_done, &self.wrapped) {
            (true, _) => Form::Target,
            (false, Some(_)) => Form::Device,
            (false, None) => Form::Thread,
        }
    }

    fn text(&self) -> String {
        self.joined().to_string()
    }

    fn verify(&self) -> Result<(), String> {
        verify(&self.joined())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    fn invalidate(&mut self, _: Preserves) {}
}

fn always(_: &State<'_>) -> bool {
    true
}

fn is_checked(state: &State<'_>) -> bool {
    state.options.checks.is_some()
}

fn is_approximate(state: &State<'_>) -> bool {
    state.options.approximate
}

/// Whether the kernel has simdgroup operations.
fn exchanges(state: &State<'_>) -> bool {
    state.wrapped.as_ref().is_some_and(|wrapped| wrapped.mask.is_some())
}

fn allowlist(state: &mut State<'_>) -> Result<(), Error> {
    allowlist::check(&state.module)
}

fn asks_for_tensor_products(state: &State<'_>) -> bool {
    crate::tensor_products::is_needed(&state.module)
}

fn lower_tensor_products(state: &mut State<'_>) -> Result<(), Error> {
    let module = state.module.to_mut();
    match state.options.tensor_products && state.options.checks.is_none() {
        true => state.products = tensor_products::lower(module)?,
        false => crate::tensor_products::decline(module),
    }
    Ok(())
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
    lower_logging::is_needed(&state.module)
}

fn lower_logging(state: &mut State<'_>) -> Result<(), Error> {
    let sites = log_calls(state.original)?;
    lower_logging::lower(state.module.to_mut(), &sites, Target::Nvptx)
}

/// Index of the entry in its module.
fn entry_index(module: &Module) -> Result<usize, Error> {
    let index = module.functions.iter().position(|f| f.name == ENTRY && !f.is_declaration());
    index.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))
}

fn zero_shared_memory(state: &mut State<'_>) -> Result<(), Error> {
    let index = entry_index(&state.module)?;
    let names = threadgroup_globals(&state.module);
    let variables = state.module.globals.iter().filter(|global| names.contains(&global.name));
    let sizes = variables.map(|global| (global.name.clone(), global.ty.size_align(&state.module).0));
    let sizes: Vec<(String, u64)> = sizes.collect();
    zero_shared_memory::write(&mut state.module.to_mut().functions[index], &sizes, &state.options.arguments);
    Ok(())
}

fn promote_copies(state: &mut State<'_>) -> Result<(), Error> {
    if let Some(module) = promote_copies::promote(&state.module) {
        state.module = Cow::Owned(module);
    }
    Ok(())
}

fn converge_barriers(state: &mut State<'_>) -> Result<(), Error> {
    let index = entry_index(&state.module)?;
    let mut entry = state.module.functions[index].clone();
    if converge_barriers::converge(&state.module, &mut entry)? {
        state.module.to_mut().functions[index] = entry;
    }
    Ok(())
}

fn has_grid_barriers(state: &State<'_>) -> bool {
    grid_barriers::is_needed(&state.module)
}

fn grid_barriers(state: &mut State<'_>) -> Result<(), Error> {
    grid_barriers::lower(state.module.to_mut())
}

fn has_yields(state: &State<'_>) -> bool {
    yields::is_needed(&state.module)
}

fn lower_yields(state: &mut State<'_>) -> Result<(), Error> {
    yields::lower(state.module.to_mut())
}

fn shared_memory(state: &mut State<'_>) -> Result<(), Error> {
    let index = entry_index(&state.module)?;
    let names = threadgroup_globals(&state.module);
    calls::callees(&state.module, &state.module.functions[index], &names)?;
    state.memory = shared_memory::place(state.module.to_mut(), &names);
    Ok(())
}

fn kernel_entry(state: &mut State<'_>) -> Result<(), Error> {
    let index = entry_index(&state.module)?;
    let mut kernel = state.module.to_mut().functions.remove(index);
    state.wrapped = Some(entry::wrap(&state.module, &mut kernel, state.options)?);
    state.kernel = Some(kernel);
    Ok(())
}

fn legalize_division(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    module.functions.iter_mut().chain([kernel]).for_each(legalize_division::legalize);
    Ok(())
}

fn lower_scale(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    module.functions.iter_mut().chain([kernel]).for_each(|function| lower_scale::lower(function, false));
    Ok(())
}

fn barriers(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    barriers::write(module, kernel)
}

fn vectorize_copies(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    vectorize_copies::write(module, kernel)
}

fn simdgroup(state: &mut State<'_>) -> Result<(), Error> {
    let approximate = state.options.approximate;
    let (module, kernel, wrapped) = state.device()?;
    let Some(mask) = wrapped.mask else { return Ok(()) };
    let how =
        simdgroup::How { approximate, is_permuted: wrapped.is_permuted.as_ref(), threads: &wrapped.threads };
    simdgroup::write(module, kernel, wrapped.body, mask, how)
}

fn loop_versioning(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    loop_versioning::version(module, kernel);
    Ok(())
}

fn approximate_math(state: &mut State<'_>) -> Result<(), Error> {
    let (module, kernel, _) = state.device()?;
    module.functions.iter_mut().chain([kernel]).for_each(approximate_math::write);
    Ok(())
}

fn retarget(state: &mut State<'_>) -> Result<(), Error> {
    let options = state.options;
    let kernel = state.kernel.take().ok_or_else(|| Error::Malformed("no kernel".into()))?;
    let module = state.module.to_mut();
    module.functions.push(kernel);
    let products = &state.products;
    target::check_calls(module, &|name| products.contain(name))?;
    declare_called(module, |name| name.starts_with("llvm."));
    target::retarget(module, options);
    state.is_done = true;
    Ok(())
}
