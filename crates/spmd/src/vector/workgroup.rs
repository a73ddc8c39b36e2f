//! Writes the function over threadgroups: the loop over [`groups`](crate::vector::workgroup_tiling), and within it the regions in the order
//! in which the threads of a group arrive at them.
//!
//! ```text
//! entry → groups ⟲ → region 0 ⟲ steps → region k ⟲ steps → … → next group
//! ```
//! All threads of a group run a region before any runs the next. Each step that arrives at a barrier notes its
//! number; if two of a group note different ones the function returns a fault.

use std::collections::{BTreeSet, HashMap, HashSet};

use elinvar_ir::{
    BinaryOp, BlockId, Const, Function, IntPredicate, Module, Op, Operand, Ordering, Term, Type, Typed,
    ValueId,
};

use super::output;
use crate::analysis::lane_layout::Layout;
use crate::analysis::liveness::Live;
use crate::analysis::regions::{self, Region};
use crate::analysis::uniformity::Uniformity;
use crate::primitive::Position;
use crate::support::builder::{Builder, call, i32_const, i64_const};
use crate::transform::lower_primitives::Kernel;
use crate::vector::barrier_context::{self, Context, Place};
use crate::vector::early_exit::Quits;
use crate::vector::emit::{Emit, Forms, Slots, Source};
use crate::vector::iterations::{self, Marks, Positions, Steps};
use crate::vector::prologue::Frame;
use crate::vector::versions::{self, Exits};
use crate::vector::workgroup_tiling::{self, Groups};
use crate::{Compiled, Error, FaultSite, Options, SYMBOL};

/// What is built from.
pub(crate) struct Parts<'a> {
    pub module: &'a Module,
    pub kernel: &'a Kernel,
    pub regions: &'a [Region],
    pub live: &'a Live,
    pub layout: &'a Layout,
    pub uniform: &'a Uniformity,
    /// What is known of values across all threads of a group.
    pub group: &'a Uniformity,
    pub options: &'a Options,
}

/// Build the function and print it with what it needs of the module.
pub(crate) fn build(parts: &Parts<'_>) -> Result<Compiled, Error> {
    let Parts { module, kernel, regions, live, layout, uniform, options, .. } = *parts;
    let mut function = Function::new(SYMBOL, Type::I32);
    function.suffix = "nounwind null_pointer_is_valid".into();
    let mut source = Source::new(module, kernel, uniform, layout, options);
    // What crosses barriers decides where the dynamic threadgroup memory begins.
    let context =
        Context::new(&source, live, parts.group, regions::returns_apart(kernel, regions, parts.group));
    let (frame, threadgroup) = Frame::write(module, kernel, options, context.bytes, &mut function)?;
    source.threadgroup = threadgroup;
    let mut group = GroupLoop {
        parts,
        source: &source,
        context: &context,
        frame: &frame,
        rows: workgroup_tiling::rows(parts),
        slots: Slots::default(),
        privates: HashMap::new(),
        faults: Vec::new(),
    };
    group.place_privates(&mut function);
    group.write(&mut function)?;
    let faults = group.faults;
    let ir = output::module_text(module, kernel, function, frame.stop.as_ref())?;
    Ok(Compiled { ir, scratch_bytes: context.bytes, faults, checks: None })
}

struct GroupLoop<'a> {
    parts: &'a Parts<'a>,
    source: &'a Source<'a>,
    context: &'a Context,
    frame: &'a Frame,
    /// Rows of steps that are run in several groups in turn.
    rows: u32,
    slots: Slots,
    /// Where private arrays begin: of a step's first thread, or with barriers of the group's.
    privates: HashMap<ValueId, Operand>,
    faults: Vec<FaultSite>,
}

impl<'a> GroupLoop<'a> {
    fn place_privates(&mut self, f: &mut Function) {
        let mut b = Builder::new(f, self.frame.entry);
        let layout = self.source.layout;
        for private in &self.source.kernel.privates {
            let place = match self.context.private(private.value) {
                Some(offset) => b.gep(Type::I8, self.frame.scratch.clone(), i64_const(offset)),
                None => {
                    let ty = Type::array(u64::from(layout.lanes * layout.parts), private.ty.clone());
                    b.alloca(ty, private.align.max(64), "private")
                }
            };
            self.privates.insert(private.value, place.into());
        }
    }

    fn write(&mut self, f: &mut Function) -> Result<(), Error> {
        let groups = workgroup_tiling::groups(f, self.frame, self.parts.options.group, self.rows);
        let mut b = Builder::new(f, groups.exit);
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(0)))));
        b.at = groups.body;
        // What another kernel has left there is not for this one.
        for (address, bytes) in &self.frame.cleared {
            let [zero, volatile] = [Const::int(8, 0), Const::int(1, 0)].map(Operand::from);
            let args = [
                (Type::PTR, address.clone()),
                (Type::I8, zero),
                (Type::I64, bytes.clone()),
                (Type::I1, volatile),
            ];
            b.effect(call(Type::Void, "llvm.memset.p0.i64", &args));
        }
        let starts: Vec<BlockId> = self.parts.regions.iter().map(|_| b.f.new_block(None)).collect();
        b.br(starts[0]);
        for number in 0..self.parts.regions.len() {
            if !self.parts.regions[number].blocks.is_empty() {
                self.region(f, number, &starts, &groups)?;
            }
        }
        Ok(())
    }

    fn region(
        &mut self,
        f: &mut Function,
        number: usize,
        starts: &[BlockId],
        group: &Groups,
    ) -> Result<(), Error> {
        let (region, source) = (&self.parts.regions[number], self.source);
        let mut b = Builder::new(f, starts[number]);
        if number > 0 {
            // A loop with a barrier in it comes by here.
            self.frame.poll(&mut b);
        }
        if number > 0 && source.kernel.barriers[number - 1].device {
            b.effect(Op::Fence(elinvar_ir::Atomic { ordering: Ordering::AcqRel, scope: None }));
        }
        if !region.barriers.is_empty() {
            b.store(Type::I32, i32_const(0), self.frame.arrived.clone());
        }
        let marks = self
            .context
            .returned
            .map(|offset| Marks { base: b.gep(Type::I8, self.frame.scratch.clone(), i64_const(offset)) });
        let before: Option<&BTreeSet<ValueId>> = number.checked_sub(1).map(|n| &self.parts.live.across[n]);
        let shared =
            before.map(|live| self.context.read_shared(&mut b, source.kernel, &self.frame.scratch, live));
        let shared = shared.unwrap_or_default();
        let quits = match self.rows == 1 && source.layout.steps() > 1 {
            true => Quits { parts: self.parts, context: self.context }.of(region),
            false => HashMap::new(),
        };
        let last = (!quits.is_empty()).then(|| self.last(&mut b));
        let steps = iterations::steps(&mut b, source.layout, (&group.row, self.rows), last.as_ref());
        let place = Place { scratch: self.frame.scratch.clone(), step: steps.wide.clone() };
        let mut slots = std::mem::take(&mut self.slots);
        let mut emit = Emit::new(source, f, self.frame.entry, &mut slots, HashMap::new());
        emit.begin(region.start, steps.body, None);
        let positions = iterations::positions(&mut emit, &steps);
        emit.given = self.given(&mut emit, group, &positions, &steps);
        if number > 0 {
            for value in &self.parts.live.across[number - 1] {
                match shared.get(value) {
                    Some(one) => emit.put(*value, one.clone()),
                    None => self.context.restore(&mut emit, &place, *value, region.start),
                }
            }
            for value in &self.parts.live.anew[number - 1] {
                emit.anew(*value);
            }
        }
        let (decide, given) = (emit.b.at, emit.given.clone());
        let mut leave = Leave {
            source,
            live: self.parts.live,
            context: self.context,
            frame: self.frame,
            region,
            place,
            next: steps.next,
            step: steps.step.clone(),
            marks: marks.as_ref(),
            quits,
            last,
            faults: &mut self.faults,
        };
        let copy = Emit::new(source, f, self.frame.entry, &mut slots, given.clone());
        let made = versions::write(copy, region, decide, &mut leave).map_err(crate::irreducible)?;
        let mut emit = Emit::new(source, f, self.frame.entry, &mut slots, given);
        emit.begin(region.start, decide, None);
        self.decide(&mut emit, number, &made, group, (&positions, &steps, marks.as_ref()));
        self.slots = slots;
        let mut b = Builder::new(f, steps.done);
        self.go_on(&mut b, region, starts, group.next);
        Ok(())
    }

    /// A slot for whether a step is the last that has something to do, which is not so yet.
    fn last(&self, b: &mut Builder<'_>) -> Operand {
        let slot: Operand = Builder::new(b.f, self.frame.entry).alloca(Type::I1, 1, "last").into();
        b.store(Type::I1, Const::int(1, 0), slot.clone());
        slot
    }

    /// At the start of a step: which of the copies to run, for which lanes.
    fn decide(
        &self,
        emit: &mut Emit<'_, '_>,
        number: usize,
        made: &versions::Starts,
        group: &Groups,
        (positions, steps, marks): (&Positions, &Steps, Option<&Marks>),
    ) {
        if let (Some(marks), 0) = (marks, number) {
            (0..emit.parts()).for_each(|part| marks.clear(emit, &steps.step, part));
        }
        let marks = marks.filter(|_| number > 0);
        let exact = self.source.layout.is_exact() && marks.is_none();
        if exact {
            let some = emit.b.f.new_block(None);
            emit.b.cond_br(group.complete.clone(), made.all, some);
            emit.b.at = some;
        }
        let mut lanes = iterations::existing(emit, positions, &group.size);
        if let Some(marks) = marks {
            for (part, lanes) in lanes.iter_mut().enumerate() {
                let gone = marks.load(emit, &steps.step, part);
                let (ty, ones) = (emit.mask_type(), emit.mask_of(true));
                let left = emit.b.binary(BinaryOp::Xor, "", &ty, gone, ones);
                *lanes = emit.b.binary(BinaryOp::And, "", &ty, lanes.clone(), left).into();
            }
        }
        if !exact || made.masked.is_none() {
            let partly = emit.b.f.new_block(None);
            let all = emit.all(&lanes);
            let otherwise = if made.masked.is_some() { partly } else { steps.next };
            emit.b.cond_br(all, made.all, otherwise);
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
        emit.b.cond_br(any, *masked, steps.next);
    }

    /// What stands for parameters, positions and private arrays in the body of a step.
    fn given(
        &self,
        emit: &mut Emit<'_, '_>,
        group: &Groups,
        positions: &Positions,
        steps: &Steps,
    ) -> HashMap<ValueId, Forms> {
        let one = |value: Operand| Forms { scalars: vec![value], vectors: Vec::new() };
        let frame = self.frame.arguments.iter().chain(&self.frame.fixed);
        let mut given: HashMap<ValueId, Forms> = frame.map(|(v, what)| (*v, one(what.clone()))).collect();
        for (value, (position, dim)) in &self.source.kernel.positions {
            let forms = match position {
                Position::Thread => positions.thread[*dim].clone(),
                Position::Group => one(group.position[*dim].clone()),
                Position::GroupSize => one(group.size[*dim].clone()),
                Position::FullGroupSize => one(i32_const(self.parts.options.group[*dim]).into()),
                Position::Grid => one(self.frame.grid[*dim].clone()),
                Position::Groups => one(self.frame.groups[*dim].clone()),
                Position::ArgumentBytes => one(self.frame.sizes[*dim].clone()),
                Position::FaultRecord => one(self.frame.record.clone()),
            };
            given.insert(*value, forms);
        }
        let layout = self.source.layout;
        for private in &self.source.kernel.privates {
            let size =
                barrier_context::private_size(self.source.module, &private.ty) * u64::from(layout.lanes);
            let mut first = self.privates[&private.value].clone();
            if !self.source.kernel.barriers.is_empty() {
                let ty = Type::array(size * u64::from(layout.parts), Type::I8);
                first = emit.b.gep(ty, first, steps.wide.clone()).into();
            }
            let part = |part: u32| -> Operand {
                emit.b.gep(Type::I8, first.clone(), i64_const(size * u64::from(part))).into()
            };
            let scalars = (0..layout.parts).map(part).collect();
            given.insert(private.value, Forms { scalars, vectors: Vec::new() });
        }
        given
    }

    /// After all steps: to the region of the barrier they arrived at, or to the next group.
    fn go_on(&self, b: &mut Builder<'_>, region: &Region, starts: &[BlockId], latch: BlockId) {
        if region.barriers.is_empty() {
            b.br(latch);
            return;
        }
        let arrived = b.load(Type::I32, self.frame.arrived.clone(), None);
        let cases = region.barriers.iter().map(|k| (i32_const(*k as u32 + 1), starts[k + 1])).collect();
        b.end(Term::Switch { value: Typed::new(Type::I32, arrived), default: latch, cases });
    }
}

/// What happens where lanes leave a region.
struct Leave<'a> {
    source: &'a Source<'a>,
    live: &'a Live,
    context: &'a Context,
    frame: &'a Frame,
    region: &'a Region,
    place: Place,
    next: BlockId,
    step: Operand,
    marks: Option<&'a Marks>,
    /// Branches behind which no step is left that has something to do, and the slot to note it in.
    quits: HashMap<BlockId, BlockId>,
    last: Option<Operand>,
    faults: &'a mut Vec<FaultSite>,
}

impl Leave<'_> {
    /// Return a fault if a step has arrived at another barrier than this one.
    fn check_same_barrier(&mut self, b: &mut Builder<'_>, barrier: usize) {
        let (fault, fine) = (b.f.new_block(None), b.f.new_block(None));
        let other = b.load(Type::I32, self.frame.arrived.clone(), None);
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

impl Exits for Leave<'_> {
    fn next(&self) -> BlockId {
        self.next
    }

    fn polls(&self) -> HashSet<BlockId> {
        self.frame.stop.as_ref().map(|_| self.region.again(self.source.kernel)).unwrap_or_default()
    }

    fn poll(&self, b: &mut Builder<'_>) {
        self.frame.poll(b);
    }

    fn quits(&self) -> &HashMap<BlockId, BlockId> {
        &self.quits
    }

    fn quit(&self, b: &mut Builder<'_>) {
        if let Some(slot) = &self.last {
            b.store(Type::I1, Const::int(1, -1), slot.clone());
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
        emit.b.store(Type::I32, i32_const(barrier as u32 + 1), self.frame.arrived.clone());
    }

    fn returned(&mut self, emit: &mut Emit<'_, '_>, masks: &[Operand]) {
        if let Some(marks) = self.marks {
            for (part, mask) in masks.iter().enumerate() {
                marks.add(emit, &self.step, part, mask.clone());
            }
        }
    }

    fn notes_returns(&self) -> bool {
        self.marks.is_some()
    }
}
