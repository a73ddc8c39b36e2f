//! [`Emitted`]: a kernel as clang emits it, and its optimization, which reads nothing else of the source.

use std::collections::BTreeSet;

use elinvar_driver::Signature;
use serde::{Deserialize, Serialize};

use crate::clang::InductionVariables;
use crate::clang::toolchain::Toolchain;
use crate::ir::address_spaces::{self as pointers, Unexpected};
use crate::ir::recursion::{self, Recursion};
use crate::ir::{dynamic_initializers, inlining, legalize};
use crate::program::Specialized;
use crate::reflection::{self, tables};
use crate::rewrite::{function_constants, glue};
use crate::{Error, clang, stage};

/// Limits how often a kernel is optimized to choose among overloads; each time at least one call is resolved.
const OVERLOAD_ROUNDS: usize = 32;

/// A kernel with values of function constants, before optimization.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Emitted {
    /// Unoptimized IR.
    pub ir: String,
    pub interface: Interface,
    /// Whether functions of the source are overloaded on address spaces only.
    pub has_overloads: bool,
}

/// What a kernel takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interface {
    /// With arguments conditional on function constants.
    pub signature: Signature,
    /// Whether each argument is conditional on function constants.
    pub conditional: Vec<bool>,
}

/// Why a kernel is rejected; the program makes of it an error with places in the source.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The function constant with this number has no value.
    Constant(usize),
    /// The condition of the argument with this index is not a constant.
    Condition(usize),
    /// The overload with this number is called for a pointer to memory for which Metal chooses another one.
    Overload(usize, &'static str),
    /// Calls remain of the overload with this number.
    Calls(usize),
    /// Recursion that is not limited.
    Recursion(Recursion),
    /// A dynamic initializer in this line of a file.
    Initializer(String, u32),
    /// An error without a place.
    Other(Error),
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

type Result<T> = std::result::Result<T, Rejection>;

impl Emitted {
    /// The kernel's optimized code. One run of clang.
    ///
    /// # Errors
    /// `Other` with `Clang` or `Io`, and all others.
    pub(crate) fn optimize(&self, toolchain: &Toolchain, width: InductionVariables) -> Result<Specialized> {
        let optimizer = Optimizer { toolchain, has_overloads: self.has_overloads };
        self.interface.with_code(optimizer.without_recursion(&self.ir, width)?)
    }
}

impl Interface {
    /// A kernel with this interface, from its optimized IR.
    pub(crate) fn with_code(&self, ir: String) -> Result<Specialized> {
        let (present, ir) = tables::extract(ir, glue::PRESENT);
        let mut present = present.into_iter().skip(1);
        let mut there = Vec::new();
        for (argument, conditional) in self.conditional.iter().enumerate() {
            there.push(match conditional.then(|| present.next()) {
                None => true,
                Some(Some(value)) if value == glue::ABSENT + 1 => true,
                Some(Some(glue::ABSENT)) => false,
                _ => return Err(Rejection::Condition(argument)),
            });
        }
        if let Some(missing) = function_constants::undefined(&ir) {
            return Err(Rejection::Constant(missing));
        }
        expect_overloads(&ir)?;
        expect_constant_initializers(&ir)?;
        let (_, ir) = tables::extract_line(ir, "llvm.global_ctors");
        let mut signature = self.signature.clone();
        let mut there = there.into_iter();
        signature.args.retain(|_| there.next().unwrap_or(true));
        if let Some((first, second)) = reflection::index_conflict(&signature.args) {
            let message = format!(
                "kernel `{}`: arguments `{first}` and `{second}` have the same index, and with these function constants both are \
                 there",
                signature.name
            );
            return Err(Rejection::Other(Error::Constant(message)));
        }
        Ok(Specialized { ir, signature })
    }
}

/// Optimization of IR.
pub(crate) struct Optimizer<'a> {
    pub toolchain: &'a Toolchain,
    /// Whether functions of the source are overloaded on address spaces only.
    pub has_overloads: bool,
}

impl Optimizer<'_> {
    /// Legalize and optimize IR, which then has no recursion.
    fn without_recursion(&self, written: &str, width: InductionVariables) -> Result<String> {
        let ir = self.inlined(written, width)?;
        let Some(remaining) = recursion::find(written).and_then(|_| recursion::find(&ir)) else {
            return Ok(ir);
        };
        let expanded = self.optimize(&recursion::expand(written, &ir), width)?;
        if !recursion::reaches_limit(&expanded) && recursion::find(&expanded).is_none() {
            return Ok(expanded);
        }
        Err(Rejection::Recursion(remaining))
    }

    /// Optimize IR, again if functions remain that have to be inlined.
    pub(crate) fn inlined(&self, written: &str, width: InductionVariables) -> Result<String> {
        let mut ir = self.optimize(written, width)?;
        let mut functions = BTreeSet::new();
        loop {
            let required = inlining::required(&ir);
            // A kernel without a value that it needs is rejected; recursion is expanded instead.
            let rejected = || function_constants::undefined(&ir).is_some() || recursion::find(&ir).is_some();
            if required.is_subset(&functions) || rejected() {
                return Ok(ir);
            }
            functions.extend(required);
            ir = self.optimize(&inlining::inline(written, &functions), width)?;
        }
    }

    /// Legalize and optimize IR, again for calls of overloads that have been chosen.
    fn optimize(&self, written: &str, width: InductionVariables) -> Result<String> {
        self.optimize_marked(&inlining::inline_single_calls(written).0, width)
    }

    /// [`Optimizer::optimize`] of IR in which calls have been marked.
    pub(crate) fn optimize_marked(&self, written: &str, width: InductionVariables) -> Result<String> {
        let flags = clang::optimize_flags(width);
        let optimize = |ir: &str| {
            let output = stage::timed("optimize", || clang::run(self.toolchain, &flags, ir))?;
            if output.success { Ok(output.text()?) } else { Err(output.unexplained_failure().into()) }
        };
        let legalize = |ir: &str| stage::timed("define", || legalize::legalize(ir));
        if !self.has_overloads {
            return optimize(&legalize(written));
        }
        let (entries, written) = pointers::of_arguments(written);
        let mut ir = optimize(&legalize(&written))?;
        for _ in 0..OVERLOAD_ROUNDS {
            match pointers::resolve(&ir, &entries) {
                Some(resolved) => ir = optimize(&resolved)?,
                None => break,
            }
        }
        // In code that remains, after the choice among overloads.
        match pointers::expectations(&ir, &entries).filter(|_| !pointers::asks(&ir)) {
            None => Ok(ir),
            Some((_, Some(Unexpected { overload, space }))) => Err(Rejection::Overload(overload, space)),
            Some((ir, None)) => optimize(&ir),
        }
    }
}

/// Expect that each call of overloads has been chosen.
pub(crate) fn expect_overloads(ir: &str) -> Result<()> {
    pointers::unresolved(ir).map_or(Ok(()), |number| Err(Rejection::Calls(number)))
}

fn expect_constant_initializers(ir: &str) -> Result<()> {
    if !ir.lines().any(|line| line.starts_with("@llvm.global_ctors") && !line.contains(" [0 x ")) {
        return Ok(());
    }
    let (file, line) = dynamic_initializers::find(ir).unwrap_or_default();
    Err(Rejection::Initializer(file, line))
}
