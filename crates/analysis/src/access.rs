//! Accesses and branches as facts: their addresses, classes and transactions.

use elinvar_ir::{BlockId, Callee, IntPredicate, Location, Op, Operand, Term, ValueId};
use elinvar_spmd::intrinsic::{Intrinsic, Position};
use serde::Serialize;

use crate::forms::{Kernel, Space, Taint};
use crate::operations::{self, Operations};
use crate::poly::{Poly, Root, Symbol};
use crate::traffic::{self, LINE, SECTOR};
use crate::trips::Trips;
use crate::walk::{Kind, Site, touches};

/// How the addresses of a simdgroup's lanes, consecutive threads along x, relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// All lanes access one address.
    Broadcast,
    /// Each lane accesses what follows that of the lane before.
    Contiguous,
    /// Lanes are a distance apart that is constant or depends on arguments.
    Strided,
    /// The address depends on the position in another way, such as by a division.
    Computed,
    /// The address depends on loaded data that differs between lanes.
    Gather,
}

/// An access of memory.
#[derive(Clone, Debug, Serialize)]
pub struct Access {
    /// Its place in the user's source.
    pub location: Option<Location>,
    /// Load, store or atomic operation.
    pub kind: Kind,
    /// Address space.
    pub space: Space,
    /// Name of the argument or variable; `None` behind an address from memory.
    pub object: Option<String>,
    /// Bytes that a thread accesses.
    pub bytes: u64,
    /// Alignment in bytes that the code guarantees.
    pub align: u64,
    /// The class.
    pub class: Class,
    /// The offset from the object's start in bytes, as a function of positions, counters and arguments; `None` if it has no closed form.
    pub offset: Option<String>,
    /// Distance between consecutive lanes along x in bytes, if it is a constant.
    pub lane_stride_bytes: Option<i64>,
    /// That distance as a formula.
    pub lane_stride: Option<String>,
    /// Transactions of 32 bytes of a full simdgroup along x, if its first lane's address is aligned. For a gather and for a distance that
    /// depends on arguments, the most there can be. `None` for threadgroup memory and for computed addresses.
    pub sectors: Option<u64>,
    /// Transactions of 128 bytes, likewise.
    pub lines: Option<u64>,
    /// Bytes that the lanes use over bytes that the sectors move, up to 1. `None` for a broadcast.
    pub efficiency: Option<f64>,
    /// For threadgroup memory, the factor by which bank conflicts lengthen the access; 1 without.
    pub bank_conflicts: Option<f64>,
    /// Indices in [`Analysis::loops`](crate::Analysis::loops) of the loops around it, outermost first.
    pub loops: Vec<usize>,
    #[serde(skip)]
    pub(crate) site: Site,
    /// The formula of the offset without its constant, and the constant; `None` without a closed form.
    #[serde(skip)]
    pub(crate) place: Option<(String, i128)>,
    /// Whether a branch lets few lanes execute it: on loaded data, or on a position's equality, as in `lane == 0`.
    #[serde(skip)]
    pub(crate) is_rare: bool,
}

/// A branch that lanes of a simdgroup can take differently.
#[derive(Clone, Debug, Serialize)]
pub struct Branch {
    /// Its place in the user's source.
    pub location: Option<Location>,
    /// Whether it depends on loaded data; otherwise on positions.
    pub by_data: bool,
    /// Operations between the branch and where its ways meet, of all ways.
    pub operations: Operations,
}

/// A loop.
#[derive(Clone, Debug, Serialize)]
pub struct LoopFacts {
    /// Its place in the user's source.
    pub location: Option<Location>,
    /// Number of iterations.
    pub trips: Trips,
    /// Number of loops around it.
    pub depth: usize,
    /// Operations of an iteration, with those of inner loops once.
    pub operations: Operations,
    /// Whether it contains a threadgroup barrier.
    pub has_barrier: bool,
}

/// Whether a symbol differs between lanes as a closed form.
fn is_lane(symbol: &Symbol) -> bool {
    matches!(symbol, Symbol::Thread(_) | Symbol::Lane)
}

pub(crate) fn name_of(kernel: &Kernel<'_>, symbol: &Symbol) -> String {
    let at =
        |name: &str, dimension: &u8| format!("{name}.{}", ["x", "y", "z"][usize::from(*dimension).min(2)]);
    match symbol {
        Symbol::Base(root) => object(kernel, root).unwrap_or_else(|| "private".into()),
        Symbol::Thread(d) => at("thread", d),
        Symbol::Lane => "lane".into(),
        Symbol::Simdgroup => "simdgroup".into(),
        Symbol::Group(d) => at("group", d),
        Symbol::GroupSize(d) => at("group_size", d),
        Symbol::FullGroupSize(d) => at("group_size", d),
        Symbol::Grid(d) => at("grid", d),
        Symbol::Groups(d) => at("groups", d),
        Symbol::Scalar(index, offset) => {
            let name = kernel.signature.args.get(*index).map_or("?", |arg| arg.name.as_str());
            if *offset == 0 { name.into() } else { format!("{name}[{offset}]") }
        }
        Symbol::Iteration(index) => format!("iteration{index}"),
        Symbol::Value(value) => loaded(kernel, *value).unwrap_or_else(|| format!("v{}", value.0)),
    }
}

/// The name of a number that is loaded from a constant place of an object.
fn loaded(kernel: &Kernel<'_>, value: ValueId) -> Option<String> {
    let Op::Load { ptr, .. } = &kernel.definition(value)?.op else { return None };
    let form = kernel.form(&ptr.op);
    let name = object(kernel, form.root()?)?;
    match form.without(|symbol| matches!(symbol, Symbol::Base(_))).as_constant()? {
        0 => Some(name),
        offset => Some(format!("{name}[{offset}]")),
    }
}

fn object(kernel: &Kernel<'_>, root: &Root) -> Option<String> {
    match root {
        Root::Argument(index) => Some(kernel.signature.args.get(*index)?.name.clone()),
        Root::Global(name) => Some(variable(name).to_owned()),
        Root::Private(_) => None,
    }
}

/// The name of a variable in the source: `_ZZ…E4tile` is `tile`, whose length is 4.
pub(crate) fn variable(mangled: &str) -> &str {
    let digits = || mangled.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at);
    let starts = |before: &'static str| {
        let is_start = move |at: &usize| mangled[..*at].ends_with(|c: char| before.contains(c));
        digits().filter(is_start)
    };
    let name = |at: usize| {
        let rest = mangled[at..].trim_start_matches(|c: char| c.is_ascii_digit());
        let len: usize = mangled[at..mangled.len() - rest.len()].parse().ok()?;
        let (name, behind) = rest.split_at_checked(len)?;
        // Variables of one name in a function are numbered, and so are copies.
        (!name.is_empty() && (behind.is_empty() || behind.starts_with(['_', '.']))).then_some(name)
    };
    // Of a function's variable, behind its type; of others, behind `_Z` or `_ZL`. Types have lengths too.
    starts("E").find_map(name).or_else(|| starts("ZL").find_map(name)).unwrap_or(mangled)
}

pub(crate) fn text(kernel: &Kernel<'_>, poly: &Poly) -> String {
    poly.text(|symbol| name_of(kernel, symbol))
}

fn stride(form: &Poly) -> Option<Poly> {
    stride_along(form, 0)?.plus(&form.coefficient(&Symbol::Lane)?, 1)
}

/// The change of an address from a thread to the next one along a dimension.
pub(crate) fn stride_along(form: &Poly, dimension: u8) -> Option<Poly> {
    form.coefficient(&Symbol::Thread(dimension))
}

fn class(kernel: &Kernel<'_>, form: &Poly, taint: Taint, bytes: u64) -> (Class, Option<Poly>) {
    let own = form.symbols().map(|symbol| (symbol, kernel.taint_of(symbol)));
    let opaque = own.filter(|(symbol, taint)| taint.lane && !is_lane(symbol));
    let opaque = opaque.fold(None, |all: Option<bool>, (_, taint)| Some(all.unwrap_or(false) || taint.data));
    match opaque {
        Some(true) => return (Class::Gather, None),
        Some(false) => return (Class::Computed, None),
        None if form.root().is_none() && taint.data => return (Class::Gather, None),
        None => {}
    }
    let Some(stride) = stride(form) else { return (Class::Computed, None) };
    let class = match stride.as_constant() {
        Some(0) => Class::Broadcast,
        Some(step) if step.unsigned_abs() == u128::from(bytes) => Class::Contiguous,
        _ => Class::Strided,
    };
    (class, Some(stride))
}

/// The accesses of a kernel, but those of the thread's own variables.
pub(crate) fn accesses(kernel: &Kernel<'_>) -> Vec<Access> {
    let mut all = Vec::new();
    for block in kernel.function.block_ids().filter(|block| kernel.dominators.is_reachable(*block)) {
        for (at, inst) in kernel.function.block(block).insts.iter().enumerate() {
            for (which, touch) in touches(kernel.module, inst).into_iter().enumerate() {
                let form = kernel.form(touch.ptr);
                let space = kernel.space(form.root());
                if space == Space::Thread {
                    continue;
                }
                let (class, stride) = class(kernel, &form, kernel.taint(touch.ptr), touch.bytes);
                let constant = stride.as_ref().and_then(Poly::as_constant);
                let offset = form.without(|symbol| matches!(symbol, Symbol::Base(_)));
                let is_closed = form.root().is_some()
                    && !offset.symbols().any(|symbol| matches!(symbol, Symbol::Value(_)));
                let mut access = Access {
                    location: kernel.module.location(&inst.metadata),
                    kind: touch.kind,
                    space,
                    object: form.root().and_then(|root| object(kernel, root)),
                    bytes: touch.bytes,
                    align: touch.align,
                    class,
                    offset: is_closed.then(|| text(kernel, &offset)),
                    lane_stride_bytes: constant.and_then(|stride| i64::try_from(stride).ok()),
                    lane_stride: stride.as_ref().map(|stride| text(kernel, stride)),
                    sectors: None,
                    lines: None,
                    efficiency: None,
                    bank_conflicts: None,
                    loops: kernel.loops.around(block),
                    site: (block, at, which),
                    place: is_closed.then(|| {
                        let constant = offset.constant_term();
                        let rest = offset.plus(&Poly::constant(constant), -1).unwrap_or_default();
                        (text(kernel, &rest), constant)
                    }),
                    is_rare: is_rare(kernel, block),
                };
                access.estimate(constant);
                all.push(access);
            }
        }
    }
    all
}

/// Whether a block is on one way only of a branch on loaded data, or on a position's equality.
fn is_rare(kernel: &Kernel<'_>, block: BlockId) -> bool {
    let branches = |from: &BlockId| {
        let term = &kernel.function.block(*from).term;
        let Term::CondBr { cond: Operand::Value(cond), .. } = term else { return false };
        let by_equality = matches!(
            kernel.definition(*cond).map(|inst| &inst.op),
            Some(Op::ICmp { pred: IntPredicate::Eq | IntPredicate::Ne, .. })
        );
        let decides = kernel.dominators.dominates(*from, block) && !kernel.post.post_dominates(block, *from);
        *from != block
            && decides
            && kernel.divergent[from.0 as usize]
            && (by_equality || kernel.taint(&Operand::Value(*cond)).data)
    };
    kernel.function.block_ids().any(|from| branches(&from))
}

impl Access {
    /// The instruction's block in the entry, its index there, and which of its accesses this is: a copy reads first, then writes.
    pub fn instruction(&self) -> (BlockId, usize, usize) {
        self.site
    }

    /// Transactions and conflicts of a full simdgroup.
    fn estimate(&mut self, stride: Option<i128>) {
        // Lanes in places of their own.
        const APART: i128 = 1 << 20;
        let step = match (self.class, stride) {
            (Class::Computed, _) => return,
            (_, Some(step)) => step,
            (_, None) => APART,
        };
        let offsets: Vec<i128> = (0..32).map(|lane| lane * step).collect();
        if self.space == Space::Threadgroup {
            self.bank_conflicts = stride.map(|_| traffic::bank_conflicts(&offsets, self.bytes));
            return;
        }
        let sectors = traffic::segments(&offsets, self.bytes, SECTOR);
        self.sectors = Some(sectors);
        self.lines = Some(traffic::segments(&offsets, self.bytes, LINE));
        if self.class != Class::Broadcast {
            let used = traffic::distinct_bytes(&offsets, self.bytes);
            self.efficiency = Some(used as f64 / (sectors * SECTOR) as f64);
        }
    }
}

/// The divergent branches of a kernel.
pub(crate) fn branches(kernel: &Kernel<'_>) -> Vec<Branch> {
    let blocks = kernel.function.block_ids().filter(|block| kernel.divergent[block.0 as usize]);
    let branch = |block| {
        let code = kernel.function.block(block);
        let by_data = code.term.operands().iter().any(|operand| kernel.taint(operand).data);
        let mut inside = Operations::default();
        let meet = kernel.post.ipdom(block);
        let (mut seen, mut next) = (vec![false; kernel.function.blocks.len()], code.term.successors());
        while let Some(at) = next.pop() {
            if Some(at) != meet && at != block && !std::mem::replace(&mut seen[at.0 as usize], true) {
                inside.add(&operations::of_block(kernel.function.block(at)), 1.0);
                next.extend(kernel.function.block(at).term.successors());
            }
        }
        Branch { location: kernel.module.location(&code.term_metadata), by_data, operations: inside }
    };
    blocks.map(branch).collect()
}

/// Number of dimensions of the positions that a kernel uses.
pub(crate) fn dimensions(kernel: &Kernel<'_>) -> u32 {
    let mut most = 1;
    for inst in kernel.function.blocks.iter().flat_map(|block| &block.insts) {
        let Op::Call(call) = &inst.op else { continue };
        let Callee::Function(name) = &call.callee else { continue };
        if let (Some(Intrinsic::Position(Position::Group)), Some(Operand::Const(dimension))) =
            (Intrinsic::parse(name), call.args.first().map(|arg| &arg.op))
        {
            most = most.max(dimension.as_unsigned(32).map_or(1, |d| d as u32 + 1));
        }
    }
    most.min(3)
}

/// Names of the `constant` arguments whose numbers addresses, loops or branches depend on.
pub(crate) fn scalars(kernel: &Kernel<'_>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, arg) in kernel.signature.args.iter().enumerate() {
        let is_read = |inst: &elinvar_ir::Inst| {
            let Op::Load { ptr, ty, .. } = &inst.op else { return false };
            ty.is_int() && kernel.form(&ptr.op).root() == Some(&Root::Argument(index))
        };
        let mut insts = kernel.function.blocks.iter().flat_map(|block| &block.insts);
        if arg.constant && insts.any(is_read) {
            names.push(arg.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::variable;

    #[test]
    fn variables_have_their_names_in_the_source() {
        for (mangled, name) in [
            ("_ZZ6reduceE4tile", "tile"),
            ("_ZZ6reducePU9MTLdevicefjE5tile2", "tile2"),
            ("_ZZ1kvE1s_0", "s"),
            ("_ZZ1kPU9MTLdevicefRKjDv2_jDv4_jE1s", "s"),
            ("_Z4tile", "tile"),
            ("_ZZ2k3vE12a1234567890b", "a1234567890b"),
            ("_ZZ1kvE2é", "é"),
            ("_ZL5table.12", "table"),
            ("table", "table"),
            ("t4", "t4"),
            ("", ""),
        ] {
            assert_eq!(variable(mangled), name);
        }
    }
}
