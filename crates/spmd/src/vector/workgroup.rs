//! Emits the function over threadgroups: the loops over threadgroups ([`crate::vector::workgroup_tiling`]), and
//! within them the regions in the order in which the threads reach them.
//!
//! ```text
//! entry → threadgroups ⟲ → region 0 ⟲ iterations → region k ⟲ iterations → … → next threadgroup
//! ```
//!
//! All threads of a threadgroup run a region before any runs the next. Each iteration that reaches a barrier records its number;
//! if two iterations of a threadgroup record different ones, the function returns a fault.
//!
//! At a grid barrier, and where a resident kernel yields, the function returns, after it has stored where it is to be resumed. A call for
//! the same threadgroup begins with the region behind that barrier.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use elinvar_ir::{
    BinaryOp, BlockId, Const, Function, IntPredicate, Module, Op, Operand, Ordering, Term, Type, Typed,
    ValueId,
};

use crate::analysis::cfg::Cfg;
use crate::analysis::lane_layout::Layout;
use crate::analysis::liveness::Liveness;
use crate::analysis::regions::{self, Region};
use crate::analysis::uniformity::Uniformity;
use crate::intrinsic::Position;
use crate::kernel::{Barrier, BarrierKind, Kernel};
use crate::support::builder::{Builder, call, i32_const, i64_const};
use crate::support::gep::stride;
use crate::vector::barrier_context::{BarrierContext, ContextSlot, RESUME};
use crate::vector::early_exit::EarlyExits;
use crate::vector::emit::{Emit, Forms, Slots, Source};
use crate::vector::iterations::{self, ExitedLanes, Iterations, Positions};
use crate::vector::private_counters;
use crate::vector::prologue::Prologue;
use crate::vector::versions::{self, Exits};
use crate::vector::workgroup_tiling::{self, WorkgroupLoops};
use crate::{Error, FaultSite, Options, SUSPENDED, SYMBOL, YIELDED_BUSY, YIELDED_IDLE};

/// Inputs of the emission.
pub(crate) struct Inputs<'a> {
    pub module: &'a Module,
    pub kernel: &'a Kernel,
    pub regions: &'a [Region],
    /// The control-flow graph of each region; `None` with one lane.
    pub cfgs: Option<&'a [Option<Rc<Cfg>>]>,
    pub live: &'a Liveness,
    pub layout: &'a Layout,
    pub uniform: &'a Uniformity,
    /// Uniformity over the whole threadgroup.
    pub group: &'a Uniformity,
    pub options: &'a Options,
}

/// The function over threadgroups.
pub(crate) struct WorkgroupFunction {
    pub function: Function,
    /// The address of the stop byte, of a function that can be stopped.
    pub stop: Option<Operand>,
    pub scratch_bytes: u64,
    /// Whether it has tables of [`private_counters`].
    pub private_counters: bool,
    /// Whether it returns at grid barriers.
    pub cooperative: bool,
    pub faults: Vec<FaultSite>,
}

/// Emits the function over threadgroups.
pub(crate) fn build(inputs: &Inputs<'_>) -> Result<WorkgroupFunction, Error> {
    let Inputs { module, kernel, regions, live, layout, uniform, options, .. } = *inputs;
    let mut function = Function::new(SYMBOL, Type::I32);
    // A loop over vectors that copies or clears threadgroup memory is short: a call of memcpy takes longer, and spills vectors.
    function.suffix = r#"nounwind null_pointer_is_valid "no-builtin-memcpy" "no-builtin-memset""#.into();
    let mut source = Source::new(module, kernel, uniform, layout, options);
    // The dynamic threadgroup memory begins behind the barrier contexts.
    let mut context = BarrierContext::new(
        &source,
        live,
        inputs.group,
        regions::returns_diverge(kernel, regions, inputs.group),
    );
    // Code for single threads has no vector of addresses to test.
    let counters = match layout.lanes {
        1 => Vec::new(),
        // Behind a grid barrier, other threadgroups may read the buffer.
        _ if kernel.is_cooperative() => Vec::new(),
        _ => private_counters::find(kernel, options),
    };
    let needs = (&context, !counters.is_empty());
    let (prologue, threadgroup) = Prologue::write(module, kernel, options, layout, needs, &mut function)?;
    source.threadgroup = threadgroup;
    let mut b = Builder::new(&mut function, prologue.entry);
    source.counters = private_counters::begin(&mut b, kernel, options, &prologue, counters);
    context.place_shared(&mut function, prologue.entry, kernel, &prologue.scratch);
    let suspending_barriers =
        kernel.barriers.iter().enumerate().filter(|(_, barrier)| barrier.kind.suspends());
    let (suspending_barriers, faults) =
        suspending_barriers.map(|(number, barrier)| (number, missed(barrier))).unzip();
    let mut group = WorkgroupWriter {
        inputs,
        source: &source,
        context: &context,
        prologue: &prologue,
        is_tiled: workgroup_tiling::is_profitable(inputs),
        slots: Slots::default(),
        privates: HashMap::new(),
        suspending_barriers,
        faults,
    };
    group.place_privates(&mut function);
    group.write(&mut function)?;
    let faults = group.faults;
    let private_counters = !source.counters.is_empty();
    let (stop, scratch_bytes) = (prologue.stop, context.bytes);
    let cooperative = kernel.is_cooperative();
    Ok(WorkgroupFunction { function, stop, scratch_bytes, private_counters, cooperative, faults })
}

struct WorkgroupWriter<'a> {
    inputs: &'a Inputs<'a>,
    source: &'a Source<'a>,
    context: &'a BarrierContext,
    prologue: &'a Prologue,
    /// Whether rows of iterations are interleaved over several threadgroups.
    is_tiled: bool,
    slots: Slots,
    /// Addresses of private arrays: of an iteration's first thread, or with barriers of the threadgroup's.
    privates: HashMap<ValueId, Operand>,
    /// Numbers of the barriers at which the function returns. That at index `n` has the fault code `n + 1`.
    suspending_barriers: Vec<usize>,
    faults: Vec<FaultSite>,
}

/// The fault of a grid whose threadgroups do not all arrive at a grid barrier.
fn missed(barrier: &Barrier) -> FaultSite {
    let message = "not all threadgroups of the grid arrived at this grid barrier".to_owned();
    FaultSite { message, location: barrier.location.clone() }
}

impl<'a> WorkgroupWriter<'a> {
    fn place_privates(&mut self, f: &mut Function) {
        let mut b = Builder::new(f, self.prologue.entry);
        let layout = self.source.layout;
        for private in &self.source.kernel.private_arrays {
            let place = match self.context.private(private.value) {
                Some(offset) => b.gep(Type::I8, self.prologue.scratch.clone(), i64_const(offset)),
                None => {
                    let ty = Type::array(u64::from(layout.lanes * layout.factor), private.ty.clone());
                    b.alloca(ty, private.align.max(64), "private")
                }
            };
            self.privates.insert(private.value, place.into());
        }
    }

    fn write(&mut self, f: &mut Function) -> Result<(), Error> {
        let groups = workgroup_tiling::loops(f, self.prologue, self.source.layout, self.is_tiled);
        let mut b = Builder::new(f, groups.exit);
        for (param, _) in &self.prologue.arguments {
            if let Some(table) = self.source.counters.get(param) {
                table.flush(&mut b, self.prologue.entry);
            }
        }
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(0)))));
        b.at = groups.body;
        let starts: Vec<BlockId> = self.inputs.regions.iter().map(|_| b.f.new_block(None)).collect();
        if !self.suspending_barriers.is_empty() {
            self.resume(&mut b, &starts);
        }
        // Content of other kernels must not be visible.
        for (address, bytes) in &self.prologue.cleared {
            let [zero, volatile] = [Const::int(8, 0), Const::int(1, 0)].map(Operand::from);
            let args = [
                (Type::PTR, address.clone()),
                (Type::I8, zero),
                (Type::I64, bytes.clone()),
                (Type::I1, volatile),
            ];
            b.effect(call(Type::Void, "llvm.memset.p0.i64", &args));
        }
        b.br(starts[0]);
        for number in 0..self.inputs.regions.len() {
            if !self.inputs.regions[number].blocks.is_empty() {
                self.region(f, number, &starts, &groups)?;
            }
        }
        Ok(())
    }

    /// Branches to the region at which a suspended threadgroup is resumed; continues in a block for one that begins.
    fn resume(&self, b: &mut Builder<'_>, starts: &[BlockId]) {
        let begins = b.f.new_block(None);
        let place = b.gep(Type::I8, self.prologue.scratch.clone(), i64_const(RESUME));
        let value = Typed::new(Type::I32, b.load(Type::I32, place, Some("resume")));
        let suspending =
            self.suspending_barriers.iter().filter(|k| !self.inputs.regions[**k + 1].blocks.is_empty());
        let cases = suspending.map(|k| (i32_const(*k as u32 + 1), starts[k + 1])).collect();
        b.end(Term::Switch { value, default: begins, cases });
        b.at = begins;
    }

    /// A block that suspends the threadgroup at barrier `k`.
    fn suspend(&self, f: &mut Function, k: usize) -> BlockId {
        let block = f.new_block(None);
        let mut b = Builder::new(f, block);
        let fault = self.suspending_barriers.iter().position(|barrier| *barrier == k).unwrap_or(0) + 1;
        let fault = match self.inputs.kernel.barriers[k].kind {
            BarrierKind::Yield { idle: false } => YIELDED_BUSY,
            BarrierKind::Yield { idle: true } => YIELDED_IDLE,
            BarrierKind::Grid | BarrierKind::Threadgroup => fault as u32,
        };
        for (offset, word) in [(RESUME, k as u32 + 1), (RESUME + 4, fault)] {
            let place = b.gep(Type::I8, self.prologue.scratch.clone(), i64_const(offset));
            b.store(Type::I32, i32_const(word), place);
        }
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(SUSPENDED as u32)))));
        block
    }

    fn region(
        &mut self,
        f: &mut Function,
        number: usize,
        starts: &[BlockId],
        group: &WorkgroupLoops,
    ) -> Result<(), Error> {
        let (region, source) = (&self.inputs.regions[number], self.source);
        let mut b = Builder::new(f, starts[number]);
        if number > 0 {
            // Loops with barriers pass here.
            self.prologue.poll(&mut b);
        }
        if number > 0 && source.kernel.barriers[number - 1].device {
            b.effect(Op::Fence(elinvar_ir::Atomic { ordering: Ordering::AcqRel, scope: None }));
        }
        if !region.barriers.is_empty() {
            b.store(Type::I32, i32_const(0), self.prologue.arrived.clone());
        }
        let exited = self.context.returned.map(|offset| ExitedLanes {
            base: b.gep(Type::I8, self.prologue.scratch.clone(), i64_const(offset)),
        });
        let before: Option<&BTreeSet<ValueId>> = number.checked_sub(1).map(|n| &self.inputs.live.across[n]);
        let shared = before.map(|live| self.context.read_shared(&mut b, source.kernel, live));
        let shared = shared.unwrap_or_default();
        let early_exits = match !self.is_tiled && source.layout.iterations() > 1 {
            true => EarlyExits { inputs: self.inputs, context: self.context }.of(region),
            false => HashMap::new(),
        };
        let last = (!early_exits.is_empty()).then(|| self.last(&mut b));
        let iterations = iterations::vector_loop(
            &mut b,
            source.layout,
            &self.prologue.full,
            group.row.as_ref(),
            last.as_ref(),
        );
        let place =
            ContextSlot { scratch: self.prologue.scratch.clone(), iteration: iterations.wide.clone() };
        let mut slots = std::mem::take(&mut self.slots);
        let mut emit = Emit::new(source, f, self.prologue.entry, &mut slots, HashMap::new());
        emit.begin(region.start, iterations.body, None);
        let positions = iterations::positions(&mut emit, &iterations);
        emit.given = self.given(&mut emit, group, &positions, &iterations);
        if number > 0 {
            for value in &self.inputs.live.across[number - 1] {
                match shared.get(value) {
                    Some(one) => emit.put(*value, one.clone()),
                    None => self.context.restore(&mut emit, &place, *value, region.start),
                }
            }
            for value in &self.inputs.live.rematerialized[number - 1] {
                emit.rematerialize(*value);
            }
        }
        let (decide, given) = (emit.b.at, emit.given.clone());
        let mut exits = RegionExits {
            source,
            live: self.inputs.live,
            context: self.context,
            prologue: self.prologue,
            region,
            place,
            next: iterations.next,
            iteration: iterations.iteration.clone(),
            exited: exited.as_ref(),
            early_exits,
            last,
            faults: &mut self.faults,
        };
        let mut emit_versions = Emit::new(source, f, self.prologue.entry, &mut slots, given.clone());
        emit_versions.has_prefix_masks = exits.last.is_some();
        let cfg = self.inputs.cfgs.and_then(|cfgs| cfgs.get(number)?.clone());
        let made = versions::write(emit_versions, region, cfg, decide, &mut exits);
        let mut emit = Emit::new(source, f, self.prologue.entry, &mut slots, given);
        emit.begin(region.start, decide, None);
        self.decide(&mut emit, number, &made, group, (&positions, &iterations, exited.as_ref()));
        self.slots = slots;
        let mut b = Builder::new(f, iterations.done);
        self.go_on(&mut b, region, starts, group.next);
        Ok(())
    }

    /// A slot for whether an iteration is the last one with work, initially false.
    fn last(&self, b: &mut Builder<'_>) -> Operand {
        let slot: Operand = Builder::new(b.f, self.prologue.entry).alloca(Type::I1, 1, "last").into();
        b.store(Type::I1, Const::int(1, 0), slot.clone());
        slot
    }

    /// Start of an iteration: selects the version and the mask.
    fn decide(
        &self,
        emit: &mut Emit<'_, '_>,
        number: usize,
        made: &versions::Entries,
        group: &WorkgroupLoops,
        (positions, iterations, exited): (&Positions, &Iterations, Option<&ExitedLanes>),
    ) {
        if let (Some(exited), 0) = (exited, number) {
            (0..emit.factor()).for_each(|part| exited.clear(emit, &iterations.iteration, part));
        }
        let exited = exited.filter(|_| number > 0);
        let exact = if exited.is_some() { Some(false) } else { self.source.layout.is_exact() };
        if exact != Some(false) {
            let some = emit.b.f.new_block(None);
            emit.b.cond_br(group.complete.clone(), made.uniform, some);
            emit.b.at = some;
        }
        let mut lanes = iterations::existing(emit, positions, &group.size);
        if let Some(exited) = exited {
            for (part, lanes) in lanes.iter_mut().enumerate() {
                let gone = exited.load(emit, &iterations.iteration, part);
                let (ty, ones) = (emit.mask_type(), emit.mask_of(true));
                let left = emit.b.binary(BinaryOp::Xor, "", &ty, gone, ones);
                *lanes = emit.b.binary(BinaryOp::And, "", &ty, lanes.clone(), left).into();
            }
        }
        if exact != Some(true) || made.masked.is_none() {
            let partly = emit.b.f.new_block(None);
            let all = emit.all(&lanes);
            let otherwise = if made.masked.is_some() { partly } else { iterations.next };
            emit.b.cond_br(all, made.uniform, otherwise);
            emit.b.at = partly;
        }
        let Some((masked, slots)) = &made.masked else {
            return emit.b.end(Term::Unreachable);
        };
        let ty = emit.mask_type();
        for (slot, lanes) in slots.iter().zip(&lanes) {
            emit.b.store(ty.clone(), lanes.clone(), slot.clone());
        }
        let any = emit.any(&lanes);
        emit.b.cond_br(any, *masked, iterations.next);
    }

    /// Values of parameters, positions and private arrays in an iteration's body.
    fn given(
        &self,
        emit: &mut Emit<'_, '_>,
        group: &WorkgroupLoops,
        positions: &Positions,
        iterations: &Iterations,
    ) -> HashMap<ValueId, Forms> {
        let one = |value: Operand| Forms { scalars: vec![value], vectors: Vec::new() };
        let prologue = self.prologue.arguments.iter().chain(&self.prologue.invariant);
        let mut given: HashMap<ValueId, Forms> = prologue.map(|(v, what)| (*v, one(what.clone()))).collect();
        for (value, (position, dim)) in &self.source.kernel.positions {
            let forms = match position {
                Position::Thread => positions.thread[*dim].clone(),
                Position::Group => one(group.position[*dim].clone()),
                Position::GroupSize => one(group.size[*dim].clone()),
                Position::FullGroupSize => one(self.prologue.full.threads[*dim].clone()),
                Position::Grid => one(self.prologue.grid[*dim].clone()),
                Position::Groups => one(self.prologue.groups[*dim].clone()),
                Position::ArgumentBytes => one(self.prologue.sizes[*dim].clone()),
                Position::FaultRecord => one(self.prologue.record.clone()),
                Position::LogRing => one(self.prologue.log_ring.clone()),
                Position::LogKernel => one(self.prologue.log_kernel.clone()),
                Position::GridCounter => one(Const::Null.into()),
            };
            given.insert(*value, forms);
        }
        let layout = self.source.layout;
        for private in &self.source.kernel.private_arrays {
            let size = stride(self.source.module, &private.ty) * u64::from(layout.lanes);
            let mut first = self.privates[&private.value].clone();
            if !self.source.kernel.barriers.is_empty() {
                let ty = Type::array(size * u64::from(layout.factor), Type::I8);
                first = emit.b.gep(ty, first, iterations.wide.clone()).into();
            }
            let part = |part: u32| -> Operand {
                emit.b.gep(Type::I8, first.clone(), i64_const(size * u64::from(part))).into()
            };
            let scalars = (0..layout.factor).map(part).collect();
            given.insert(private.value, Forms { scalars, vectors: Vec::new() });
        }
        given
    }

    /// After all iterations: continues at the region of the barrier that they reached, or with the next threadgroup.
    fn go_on(&self, b: &mut Builder<'_>, region: &Region, starts: &[BlockId], latch: BlockId) {
        if region.barriers.is_empty() {
            b.br(latch);
            return;
        }
        let arrived = b.load(Type::I32, self.prologue.arrived.clone(), None);
        let mut target = |k: usize| match self.inputs.kernel.barriers[k].kind.suspends() {
            true => self.suspend(b.f, k),
            false => starts[k + 1],
        };
        let cases = region.barriers.iter().map(|k| (i32_const(*k as u32 + 1), target(*k))).collect();
        b.end(Term::Switch { value: Typed::new(Type::I32, arrived), default: latch, cases });
    }
}

/// Actions where lanes leave a region.
struct RegionExits<'a> {
    source: &'a Source<'a>,
    live: &'a Liveness,
    context: &'a BarrierContext,
    prologue: &'a Prologue,
    region: &'a Region,
    place: ContextSlot,
    next: BlockId,
    iteration: Operand,
    exited: Option<&'a ExitedLanes>,
    /// Early exits, and the slot that records them.
    early_exits: HashMap<BlockId, BlockId>,
    last: Option<Operand>,
    faults: &'a mut Vec<FaultSite>,
}

impl RegionExits<'_> {
    /// Returns a fault if an iteration has reached another barrier.
    fn check_same_barrier(&mut self, b: &mut Builder<'_>, barrier: usize) {
        let (fault, fine) = (b.f.new_block(None), b.f.new_block(None));
        let other = b.load(Type::I32, self.prologue.arrived.clone(), None);
        let none = b.icmp(IntPredicate::Eq, &Type::I32, other, i32_const(0));
        let same = b.icmp(IntPredicate::Eq, &Type::I32, other, i32_const(barrier as u32 + 1));
        let good = b.binary(BinaryOp::Or, "", &Type::I1, none, same);
        b.cond_br(good, fine, fault);
        let message = "threads of one threadgroup arrived at different barriers".to_owned();
        let location = self.source.kernel.barriers[barrier].location.clone();
        self.faults.push(FaultSite { message, location });
        b.at = fault;
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(self.faults.len() as u32)))));
        b.at = fine;
    }
}

impl Exits for RegionExits<'_> {
    fn next(&self) -> BlockId {
        self.next
    }

    fn safepoints(&self) -> HashSet<BlockId> {
        self.prologue
            .stop
            .as_ref()
            .map(|_| self.region.back_edge_targets(self.source.kernel))
            .unwrap_or_default()
    }

    fn poll(&self, b: &mut Builder<'_>) {
        self.prologue.poll(b);
    }

    fn early_exits(&self) -> &HashMap<BlockId, BlockId> {
        &self.early_exits
    }

    fn exit_early(&self, b: &mut Builder<'_>) {
        if let Some(slot) = &self.last {
            b.store(Type::I1, self.prologue.full.x_ascends(), slot.clone());
        }
    }

    fn arrive(&mut self, emit: &mut Emit<'_, '_>, barrier: usize) {
        let kernel = self.source.kernel;
        let cont = kernel.barriers[barrier].cont;
        let defined = self.region.defined(kernel);
        for value in self.live.across[barrier].intersection(&defined) {
            self.context.save(emit, &self.place, *value, cont);
        }
        if self.region.barriers.len() > 1 {
            self.check_same_barrier(&mut emit.b, barrier);
        }
        emit.b.store(Type::I32, i32_const(barrier as u32 + 1), self.prologue.arrived.clone());
    }

    fn returned(&mut self, emit: &mut Emit<'_, '_>, masks: &[Operand]) {
        if let Some(exited) = self.exited {
            for (part, mask) in masks.iter().enumerate() {
                exited.add(emit, &self.iteration, part, mask.clone());
            }
        }
    }

    fn notes_returns(&self) -> bool {
        self.exited.is_some()
    }
}
