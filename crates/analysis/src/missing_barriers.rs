//! Missing barriers: a thread loads what another thread of its threadgroup stores, and no barrier orders the two.
//!
//! A pair of a load and a store of one threadgroup variable is reported only if there is a launch of one threadgroup in which two named threads
//! execute them at one address: positions and sizes are numbers then, and what depends on arguments or iterations has to be the same for both
//! accesses. No way between the two accesses may pass a barrier. Branches on what is not known, variables whose size the host chooses and
//! addresses from memory are not reported, nor are two stores.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, Callee, Op, Operand, Term, Type};
use elinvar_spmd::intrinsic::{Intrinsic, SIMDGROUP};

use crate::access::variable;
use crate::evaluate::{Launch, Position3, Thread};
use crate::forms::{Kernel, Space};
use crate::poly::{Poly, Root, Symbol};
use crate::portability::Violation;
use crate::walk::{Kind, touches};

/// Largest number of pairs that are looked at.
const MAX_PAIRS: usize = 1024;

/// An access of a threadgroup variable.
struct Access<'k> {
    block: BlockId,
    at: usize,
    kind: Kind,
    variable: &'k str,
    /// Its size in bytes.
    size: i128,
    bytes: i128,
    ptr: &'k Operand,
    offset: Poly,
    /// `None` if they are not known.
    guards: Option<Vec<Guard>>,
}

/// A branch that decides whether a block is executed.
#[derive(Clone)]
struct Guard {
    block: BlockId,
    cond: Operand,
    /// The outcome with which it is.
    wanted: bool,
}

/// What two threads do at one address.
struct Conflict {
    group: [u32; 3],
    loading: u32,
    storing: u32,
    byte: i128,
}

/// The loads of threadgroup variables that race with a store, one of each variable.
pub(crate) fn missing_barriers(kernel: &Kernel<'_>) -> Vec<Violation> {
    let accesses = accesses(kernel);
    let all = &accesses[..];
    let (mut found, mut named): (Vec<Violation>, HashSet<&str>) = (Vec::new(), HashSet::new());
    let mut offsets = Offsets { kernel, all, known: HashMap::new() };
    let of = |kind: Kind| (0..all.len()).filter(move |access| all[*access].kind == kind);
    let pairs = of(Kind::Load).flat_map(|load| {
        let stores = of(Kind::Store).filter(move |store| all[*store].variable == all[load].variable);
        stores.map(move |store| (load, store))
    });
    for (load_at, store_at) in pairs.take(MAX_PAIRS) {
        let (load, store) = (&all[load_at], &all[store_at]);
        if named.contains(load.variable) {
            continue;
        }
        let in_turn = in_one_turn(kernel, store, load)
            || in_one_turn(kernel, load, store)
            || on_two_ways(kernel, load, store);
        let next_turn = !in_turn && (in_next_turn(kernel, load, store) || in_next_turn(kernel, store, load));
        if !in_turn && !next_turn {
            continue;
        }
        let Some(conflict) = offsets.conflict(load_at, store_at, next_turn) else { continue };
        named.insert(load.variable);
        let place = |access: &Access<'_>| {
            kernel.module.location(&kernel.function.block(access.block).insts[access.at].metadata)
        };
        let line = place(store).map_or_else(String::new, |place| format!(" in line {}", place.line));
        let Conflict { group: [x, y, z], loading, storing, byte } = conflict;
        let variable = variable(load.variable);
        let next = if next_turn { " of another iteration" } else { "" };
        let reason = format!(
            "missing barrier: in a threadgroup of {x} x {y} x {z}, thread {loading} loads byte {byte} of `{variable}`, which thread \
             {storing} stores{line}{next} with no barrier between"
        );
        found.push(Violation { location: place(load), reason });
    }
    found
}

fn accesses<'k>(kernel: &'k Kernel<'_>) -> Vec<Access<'k>> {
    let mut all = Vec::new();
    for block in kernel.function.block_ids().filter(|block| kernel.dominators.is_reachable(*block)) {
        let mut guards: Option<Option<Vec<Guard>>> = None;
        for (at, inst) in kernel.function.block(block).insts.iter().enumerate() {
            for touch in touches(kernel.module, inst).into_iter().filter(|touch| touch.kind != Kind::Atomic) {
                let form = kernel.form(touch.ptr);
                let Some(Root::Global(name)) = form.root() else { continue };
                if kernel.space(form.root()) != Space::Threadgroup {
                    continue;
                }
                let Some(global) = kernel.module.globals.iter().find(|global| global.name == *name) else {
                    continue;
                };
                let guards = guards.get_or_insert_with(|| self::guards(kernel, block));
                all.push(Access {
                    block,
                    at,
                    kind: touch.kind,
                    variable: &global.name,
                    size: i128::from(global.ty.size_align(kernel.module).0),
                    bytes: i128::from(touch.bytes),
                    ptr: touch.ptr,
                    offset: form.without(|symbol| matches!(symbol, Symbol::Base(_))),
                    guards: guards.clone(),
                });
            }
        }
    }
    all
}

/// The branches that decide whether a block is executed; `None` if one of them does not decide alone.
fn guards(kernel: &Kernel<'_>, block: BlockId) -> Option<Vec<Guard>> {
    let mut found = Vec::new();
    for from in kernel.function.block_ids().filter(|from| kernel.dominators.is_reachable(*from)) {
        let term = &kernel.function.block(from).term;
        let successors = term.successors();
        let decides = from != block
            && successors.len() > 1
            && !kernel.post.post_dominates(block, from)
            && ahead(kernel, from, None).contains(&block);
        if !decides {
            continue;
        }
        let Term::CondBr { cond, .. } = term else { return None };
        let [on_true, on_false] = successors[..] else { return None };
        let leads = |to: BlockId| kernel.dominators.dominates(to, block);
        let wanted = match (leads(on_true), leads(on_false)) {
            (true, false) => true,
            (false, true) => false,
            _ => return None,
        };
        found.push(Guard { block: from, cond: cond.clone(), wanted });
    }
    Some(found)
}

/// The blocks behind a block without a turn back to a loop's header, up to and including `until`.
fn ahead(kernel: &Kernel<'_>, from: BlockId, until: Option<BlockId>) -> HashSet<BlockId> {
    let (mut seen, mut next) = (HashSet::new(), vec![from]);
    while let Some(block) = next.pop() {
        for to in kernel.function.block(block).term.successors() {
            if !kernel.dominators.dominates(to, block) && seen.insert(to) && Some(to) != until {
                next.push(to);
            }
        }
    }
    seen
}

/// Whether a barrier of any kind is among some instructions of a block.
fn has_barrier(kernel: &Kernel<'_>, block: BlockId, range: std::ops::Range<usize>) -> bool {
    kernel.function.block(block).insts[range].iter().any(|inst| {
        let Op::Call(call) = &inst.op else { return false };
        let Callee::Function(name) = &call.callee else { return true };
        match Intrinsic::parse(name) {
            Some(intrinsic) => intrinsic.is_threadgroup_barrier() || intrinsic == Intrinsic::SimdgroupBarrier,
            // A function that is not inlined may have one.
            None => {
                kernel.module.function(name).is_some_and(|callee| !callee.is_declaration())
                    || name.contains("barrier")
            }
        }
    })
}

fn len(kernel: &Kernel<'_>, block: BlockId) -> usize {
    kernel.function.block(block).insts.len()
}

/// Whether `second` is behind `first` on ways that pass no barrier, without another iteration of a loop around both.
fn in_one_turn(kernel: &Kernel<'_>, first: &Access<'_>, second: &Access<'_>) -> bool {
    if first.block == second.block {
        return first.at < second.at && !has_barrier(kernel, first.block, first.at + 1..second.at);
    }
    let outer = |access: &Access<'_>| {
        let guards = access.guards.iter().flatten().map(|guard| guard.block);
        guards.min_by_key(|block| depth(kernel, *block)).unwrap_or(access.block)
    };
    let (of_first, of_second) = (outer(first), outer(second));
    let is_joint = kernel.dominators.dominates(of_first, of_second)
        || kernel.post.post_dominates(of_second, of_first)
        || kernel.dominators.dominates(first.block, second.block);
    is_joint && no_barrier_from(kernel, first.block, first.at + 1, second)
}

/// Whether two accesses are on the two ways of a branch that threads can take differently, and no barrier is between it and them.
fn on_two_ways(kernel: &Kernel<'_>, a: &Access<'_>, b: &Access<'_>) -> bool {
    let mut up = std::iter::successors(Some(a.block), |block| kernel.dominators.idom(*block));
    let Some(common) = up.find(|block| kernel.dominators.dominates(*block, b.block)) else { return false };
    let differs =
        matches!(&kernel.function.block(common).term, Term::CondBr { cond, .. } if !is_uniform(kernel, cond));
    let is_apart = common != a.block
        && common != b.block
        && !ahead(kernel, a.block, None).contains(&b.block)
        && !ahead(kernel, b.block, None).contains(&a.block);
    differs
        && is_apart
        && [a, b].into_iter().all(|access| no_barrier_from(kernel, common, len(kernel, common), access))
}

/// Whether there are ways from an instruction to an access, and none of them passes a barrier.
fn no_barrier_from(kernel: &Kernel<'_>, block: BlockId, at: usize, to: &Access<'_>) -> bool {
    let behind = ahead(kernel, block, Some(to.block));
    behind.contains(&to.block)
        && !has_barrier(kernel, block, at..len(kernel, block))
        && !has_barrier(kernel, to.block, 0..to.at)
        && leading(kernel, &behind, to.block)
            .iter()
            .all(|block| !has_barrier(kernel, *block, 0..len(kernel, *block)))
}

/// Those of some blocks from which there is a way to a block without a turn back to a loop's header.
fn leading(kernel: &Kernel<'_>, blocks: &HashSet<BlockId>, to: BlockId) -> Vec<BlockId> {
    let mut found: Vec<BlockId> = Vec::new();
    loop {
        let leads = |block: &BlockId| {
            let mut next = kernel.function.block(*block).term.successors().into_iter();
            next.any(|next| {
                (next == to || found.contains(&next)) && !kernel.dominators.dominates(next, *block)
            })
        };
        let more: Vec<BlockId> = blocks
            .iter()
            .filter(|block| **block != to && !found.contains(block) && leads(block))
            .copied()
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn depth(kernel: &Kernel<'_>, block: BlockId) -> usize {
    std::iter::successors(Some(block), |block| kernel.dominators.idom(*block)).count()
}

/// Whether an iteration of a loop has `second` behind `first` of the iteration before, on ways that pass no barrier.
fn in_next_turn(kernel: &Kernel<'_>, first: &Access<'_>, second: &Access<'_>) -> bool {
    let around = kernel.loops.around(first.block);
    let Some(inner) = around.last().filter(|inner| kernel.loops.around(second.block).last() == Some(inner))
    else {
        return false;
    };
    let found = &kernel.loops.all[*inner];
    let latches: Vec<BlockId> = kernel
        .function
        .block_ids()
        .filter(|block| found.contains(*block))
        .filter(|block| kernel.function.block(*block).term.successors().contains(&found.header))
        .collect();
    let [latch] = latches[..] else { return false };
    // All threads take another iteration together.
    let is_uniform = kernel.function.block_ids().filter(|block| found.contains(*block)).all(|block| {
        let term = &kernel.function.block(block).term;
        let leaves = term.successors().iter().any(|to| !found.contains(*to));
        !leaves || matches!(term, Term::CondBr { cond, .. } if is_uniform(kernel, cond))
    });
    let to_latch = Access { block: latch, at: len(kernel, latch), ..first.placed() };
    let from_header = || {
        second.block == found.header && !has_barrier(kernel, second.block, 0..second.at)
            || second.block != found.header && no_barrier_from(kernel, found.header, 0, second)
    };
    let up_to_latch = first.block == latch && !has_barrier(kernel, latch, first.at + 1..len(kernel, latch))
        || first.block != latch && no_barrier_from(kernel, first.block, first.at + 1, &to_latch);
    is_uniform && up_to_latch && from_header()
}

impl Access<'_> {
    /// The place alone.
    fn placed(&self) -> Self {
        Self { offset: Poly::default(), guards: None, ..*self }
    }
}

/// Whether a condition is the same for all threads of a threadgroup: a comparison of arguments, sizes and iterations.
fn is_uniform(kernel: &Kernel<'_>, cond: &Operand) -> bool {
    let Some(inst) = cond.value().and_then(|value| kernel.definition(value)) else { return true };
    let Op::ICmp { a, b, .. } = &inst.op else { return false };
    [a, b].into_iter().all(|side| {
        kernel.form(side).symbols().all(|symbol| {
            !matches!(symbol, Symbol::Thread(_) | Symbol::Lane | Symbol::Simdgroup | Symbol::Value(_))
        })
    })
}

/// The offsets of a variable's accesses, by threadgroup.
struct Offsets<'k, 'm> {
    kernel: &'k Kernel<'m>,
    all: &'k [Access<'k>],
    known: HashMap<(usize, [u32; 3]), Option<Known>>,
}

/// A part that is the same for all threads, and the offset of each one without it; none of those that do not execute the access.
type Known = (Poly, Vec<Option<i128>>);

impl Offsets<'_, '_> {
    fn of(&mut self, access: usize, group: [u32; 3]) -> Option<&Known> {
        let (kernel, all) = (self.kernel, self.all);
        self.known.entry((access, group)).or_insert_with(|| offsets(kernel, &all[access], group)).as_ref()
    }

    /// Whether the threads of a threadgroup stay in the variable; `None` if that is not known.
    fn fits(&mut self, access: usize, group: [u32; 3]) -> Option<bool> {
        let (bytes, size) = (self.all[access].bytes, self.all[access].size);
        let (rest, offsets) = self.of(access, group)?;
        let fits = offsets.iter().flatten().all(|offset| *offset >= 0 && offset + bytes <= size);
        (!fits || rest.as_constant() == Some(0)).then_some(fits)
    }

    /// The largest threadgroup whose threads stay in the variable of an access with all that they do there. If it has addresses without numbers, the smallest
    /// threadgroup: what its threads do, those of larger ones do too.
    fn largest_group(&mut self, access: usize) -> Option<[u32; 3]> {
        let most = self.kernel.signature.max_threads_per_threadgroup.unwrap_or(1024).min(1024);
        let shapes: &[[u32; 3]] = match crate::access::dimensions(self.kernel) {
            1 => &[[1024, 1, 1], [512, 1, 1], [256, 1, 1], [128, 1, 1], [64, 1, 1], [32, 1, 1]],
            2 => &[[32, 32, 1], [16, 16, 1], [8, 8, 1], [8, 4, 1]],
            _ => &[[8, 8, 8], [4, 4, 4], [4, 4, 2]],
        };
        let variable = self.all[access].variable;
        let own: Vec<usize> =
            (0..self.all.len()).filter(|other| self.all[*other].variable == variable).collect();
        let allowed = || shapes.iter().copied().filter(|group| group.iter().product::<u32>() <= most);
        for group in allowed() {
            let fits: Option<Vec<bool>> = own.iter().map(|other| self.fits(*other, group)).collect();
            match fits {
                Some(fits) if fits.iter().all(|fits| *fits) => return Some(group),
                Some(_) => {}
                None => {
                    let smallest = allowed().next_back()?;
                    return (own.iter().all(|other| self.fits(*other, smallest) != Some(false)))
                        .then_some(smallest);
                }
            }
        }
        None
    }

    /// Two threads of a threadgroup that access one address.
    fn conflict(&mut self, load: usize, store: usize, is_next: bool) -> Option<Conflict> {
        let group = self.largest_group(load)?;
        let (rest, loads) = self.of(load, group)?.clone();
        let (other, stores) = self.of(store, group)?.clone();
        // Another iteration has other numbers.
        if rest != other || is_next && rest.symbols().any(|symbol| matches!(symbol, Symbol::Iteration(_))) {
            return None;
        }
        let (loaded, stored) = (self.all[load].bytes, self.all[store].bytes);
        for (loading, offset) in
            loads.iter().enumerate().filter_map(|(thread, offset)| Some((thread, (*offset)?)))
        {
            let meets = |at: i128, bytes: i128| at < offset + loaded && offset < at + bytes;
            let Some(storing) = stores.iter().position(|at| at.is_some_and(|at| meets(at, stored))) else {
                continue;
            };
            // What the thread stores itself, here or elsewhere, is its own.
            let all = self.all;
            let is_own = (0..all.len()).any(|access| {
                let is_store = all[access].kind == Kind::Store && all[access].variable == all[load].variable;
                is_store
                    && self.of(access, group).is_some_and(|(part, offsets)| {
                        *part == rest && offsets[loading].is_some_and(|at| meets(at, all[access].bytes))
                    })
            });
            if !is_own {
                let (loading, storing) = (loading as u32, storing as u32);
                return Some(Conflict { group, loading, storing, byte: offset });
            }
        }
        None
    }
}

fn offsets(kernel: &Kernel<'_>, access: &Access<'_>, group: [u32; 3]) -> Option<Known> {
    let guards = access.guards.as_ref()?;
    let launch = Launch { grid: group, group, ..Launch::default() };
    let (mut rest, mut all) = (None, Vec::new());
    for index in 0..group.iter().product() {
        let at = [index % group[0], index / group[0] % group[1], index / group[0] / group[1]];
        let mut thread = Thread::new(kernel, &launch, Position3 { group: [0; 3], thread: at });
        let mut executes = true;
        for guard in guards {
            match thread.condition(&guard.cond) {
                Some(outcome) => executes &= outcome == guard.wanted,
                None if is_uniform(kernel, &guard.cond) => {}
                None => return None,
            }
        }
        let address = thread.number(access.ptr, &Type::PTR).map(|number| (number.value, Poly::default()));
        let (own, uniform) = match address {
            Some(address) => address,
            None => number(&mut thread, &access.offset, group, index, at)?,
        };
        if *rest.get_or_insert_with(|| uniform.clone()) != uniform {
            return None;
        }
        all.push(executes.then_some(own));
    }
    Some((rest?, all))
}

/// An offset's number for a thread, and the part without a number, which is the same for all threads.
fn number(
    thread: &mut Thread<'_, '_>,
    offset: &Poly,
    group: [u32; 3],
    index: u32,
    at: [u32; 3],
) -> Option<(i128, Poly)> {
    let (mut own, mut uniform) = (0, Poly::default());
    for (factors, coefficient) in offset.terms() {
        let (mut known, mut open, mut is_own) = (coefficient, Vec::new(), false);
        for symbol in factors {
            let number = match symbol {
                Symbol::Thread(d) => at[usize::from(*d)],
                Symbol::Lane => index % SIMDGROUP,
                Symbol::Simdgroup => index / SIMDGROUP,
                Symbol::Group(_) => 0,
                Symbol::GroupSize(d) | Symbol::FullGroupSize(d) | Symbol::Grid(d) => group[usize::from(*d)],
                Symbol::Groups(_) => 1,
                Symbol::Scalar(..) | Symbol::Iteration(_) => {
                    open.push(symbol.clone());
                    continue;
                }
                Symbol::Value(value) => {
                    let number = thread.number(&Operand::Value(*value), &Type::I32)?;
                    number.root.is_none().then_some(())?;
                    // A negative number is not told from a large one.
                    u32::try_from(number.value).ok().filter(|number| *number < 1 << 31)?
                }
                Symbol::Base(_) => return None,
            };
            is_own |= !matches!(
                symbol,
                Symbol::Group(_)
                    | Symbol::GroupSize(_)
                    | Symbol::FullGroupSize(_)
                    | Symbol::Grid(_)
                    | Symbol::Groups(_)
            );
            known = known.checked_mul(i128::from(number))?;
        }
        if open.is_empty() {
            own += known;
            continue;
        }
        // A stride that is an argument is not followed.
        (!is_own).then_some(())?;
        let term = open
            .into_iter()
            .try_fold(Poly::constant(known), |term, symbol| term.times(&Poly::symbol(symbol)))?;
        uniform = uniform.plus(&term, 1)?;
    }
    Some((own, uniform))
}
