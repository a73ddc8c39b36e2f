//! Writes the function over threadgroups: the loop over groups, and within it the regions in the order
//! in which the threads of a group arrive at them.
//!
//! ```text
//! entry → group ⟲ → region 0 ⟲ threads → region k ⟲ threads → … → next group
//! ```
//! All threads of a group run a region before any runs the next. Each thread that arrives at a barrier
//! notes its number; if two threads of a group note different ones the function returns a fault.

use std::collections::HashMap;

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Function, IntPredicate, Module, Op, Operand, Ordering, Term, Type, Typed,
    ValueId,
};

use crate::builder::{Builder, i32_const, i64_const};
use crate::constants::Threadgroup;
use crate::context::Context;
use crate::copy::{self, Scope};
use crate::live::Live;
use crate::prepare::Kernel;
use crate::primitive::Position;
use crate::region::Region;
use crate::threads::{ThreadLoop, thread_loop};
use crate::{Compiled, Error, FaultSite, Options, SYMBOL, output};

/// Byte offsets in `Launch`: three u32 each.
const LAUNCH_THREADS: u64 = 8;
const LAUNCH_GROUPS: u64 = 20;
/// Byte offsets in `Launch`: an address each.
const LAUNCH_SIZES: u64 = 32;
const LAUNCH_RECORD: u64 = 40;

/// Build the function and print it with what it needs of `module`.
pub(crate) fn build(
    module: &Module,
    kernel: &Kernel,
    regions: &[Region],
    live: &Live,
    options: &Options,
) -> Result<Compiled, Error> {
    let threads = options.group.iter().map(|g| u64::from(*g)).product();
    let context = Context::new(module, kernel, regions, live, threads);
    let mut function = Function::new(SYMBOL, Type::I32);
    function.suffix = "nounwind null_pointer_is_valid".into();
    let frame = Frame::write(module, kernel, live, options, &context, &mut function)?;
    let mut group =
        GroupLoop { kernel, regions, live, options, context: &context, frame, faults: Vec::new() };
    group.write(&mut function);
    let faults = group.faults;
    let ir = output::module_text(module, kernel, function)?;
    Ok(Compiled { ir, scratch_bytes: context.bytes, faults, checks: None })
}

/// What the entry block sets up once per call.
struct Frame {
    scratch: Operand,
    begin: Operand,
    end: Operand,
    /// Parameters and, without barriers, private arrays of the per-thread function.
    known: HashMap<ValueId, Operand>,
    slots: HashMap<ValueId, Operand>,
    threadgroup: Threadgroup,
    /// `threads_per_grid` and `threadgroups_per_grid`, i32 each.
    grid: [Operand; 3],
    groups: [Operand; 3],
    /// Bytes of each argument's memory and address of the fault record, with bounds checks.
    sizes: Vec<Operand>,
    record: Operand,
    /// Slot for the number of the barrier that the group's threads have arrived at, 0 for none.
    arrived: Operand,
    last: BlockId,
}

impl Frame {
    fn write(
        module: &Module,
        kernel: &Kernel,
        live: &Live,
        options: &Options,
        context: &Context,
        f: &mut Function,
    ) -> Result<Frame, Error> {
        let launch = f.add_param(Type::PTR, "nocapture noundef readonly", Some("launch"));
        let scratch = f.add_param(Type::PTR, "noundef align 64", Some("scratch"));
        let begin = f.add_param(Type::I64, "noundef", Some("begin"));
        let end = f.add_param(Type::I64, "noundef", Some("end"));
        let entry = f.new_block(Some("entry"));
        let mut b = Builder::new(f, entry);
        let mut threadgroup = Threadgroup::default();
        for name in &kernel.threadgroup {
            let Some(global) = module.global(name) else { continue };
            let variable = b.alloca(global.ty.clone(), global.align.unwrap_or(1).max(64), "threadgroup");
            threadgroup.insert(name.clone(), variable.into());
        }
        for operand in constants(&kernel.function) {
            threadgroup.materialize(operand, &mut b)?;
        }
        let mut known = HashMap::new();
        if kernel.barriers.is_empty() {
            for private in &kernel.privates {
                let array = b.alloca(private.ty.clone(), private.align, "private");
                known.insert(private.value, array.into());
            }
        }
        let mut slots = HashMap::new();
        for value in &live.all {
            let ty = kernel.function.ty(*value).clone();
            let align = ty.size_align(module).1;
            slots.insert(*value, b.alloca(ty, align, "slot").into());
        }
        let arrived = b.alloca(Type::I32, 4, "arrived").into();
        arguments(&mut b, kernel, options, context.bytes, launch, scratch, &mut known);
        let grid = load_dims(&mut b, launch, LAUNCH_THREADS, "grid");
        let groups = load_dims(&mut b, launch, LAUNCH_GROUPS, "groups");
        let (sizes, record) = match options.checks {
            Some(_) => check_frame(&mut b, launch, kernel.function.params.len()),
            None => (Vec::new(), elinvar_ir::Const::Null.into()),
        };
        let (scratch, begin, end) = (scratch.into(), begin.into(), end.into());
        let last = entry;
        Ok(Frame {
            scratch,
            begin,
            end,
            known,
            slots,
            threadgroup,
            grid,
            groups,
            sizes,
            record,
            arrived,
            last,
        })
    }
}

/// Every constant operand of a function.
fn constants(function: &Function) -> impl Iterator<Item = &elinvar_ir::Const> {
    let operands = function.blocks.iter().flat_map(|block| {
        block.insts.iter().flat_map(|i| i.op.operands()).chain(block.term.operands()).collect::<Vec<_>>()
    });
    operands.filter_map(|o| match o {
        Operand::Const(c) => Some(c),
        Operand::Value(_) => None,
    })
}

/// Load the arguments' addresses.
fn arguments(
    b: &mut Builder<'_>,
    kernel: &Kernel,
    options: &Options,
    context_bytes: u64,
    launch: ValueId,
    scratch: ValueId,
    known: &mut HashMap<ValueId, Operand>,
) {
    let args = b.load(Type::PTR, launch, Some("args"));
    for (index, param) in kernel.function.params.iter().enumerate() {
        let place = b.gep(Type::PTR, args, i64_const(index as u64));
        let address = if options.threadgroup_args[index] {
            let offset = b.load(Type::I64, place, None);
            let dynamic = b.gep(Type::I8, scratch, i64_const(context_bytes));
            b.gep(Type::I8, dynamic, offset)
        } else {
            b.load(Type::PTR, place, None)
        };
        known.insert(param.value, address.into());
    }
}

/// Load the arguments' sizes and the address of the fault record.
fn check_frame(b: &mut Builder<'_>, launch: ValueId, arguments: usize) -> (Vec<Operand>, Operand) {
    let place = b.gep(Type::I8, launch, i64_const(LAUNCH_SIZES));
    let sizes = b.load(Type::PTR, place, Some("sizes"));
    let sizes = (0..arguments as u64).map(|index| {
        let place = b.gep(Type::I64, sizes, i64_const(index));
        b.load(Type::I64, place, None).into()
    });
    let sizes = sizes.collect();
    let place = b.gep(Type::I8, launch, i64_const(LAUNCH_RECORD));
    (sizes, b.load(Type::PTR, place, Some("record")).into())
}

fn load_dims(b: &mut Builder<'_>, launch: ValueId, offset: u64, name: &str) -> [Operand; 3] {
    [0, 1, 2].map(|dim| {
        let place = b.gep(Type::I8, launch, i64_const(offset + 4 * dim));
        b.load(Type::I32, place, Some(name)).into()
    })
}

struct GroupLoop<'a> {
    kernel: &'a Kernel,
    regions: &'a [Region],
    live: &'a Live,
    options: &'a Options,
    context: &'a Context,
    frame: Frame,
    faults: Vec<FaultSite>,
}

/// What is known of the group that the loop is at.
struct Group {
    position: [Operand; 3],
    size: [Operand; 3],
    /// Where the loop goes for the next group.
    latch: BlockId,
}

impl GroupLoop<'_> {
    fn write(&mut self, f: &mut Function) {
        let (head, body, latch, exit) =
            (f.new_block(Some("group")), f.new_block(None), f.new_block(None), f.new_block(Some("exit")));
        let mut b = Builder::new(f, self.frame.last);
        b.br(head);
        b.at = head;
        let next = b.f.new_value(Type::I64, None);
        let incoming = vec![(self.frame.begin.clone(), self.frame.last), (next.into(), latch)];
        let phi = Op::Phi { flags: String::new(), ty: Type::I64, incoming };
        let index = b.value(Type::I64, Some("group.index"), phi);
        let more = b.icmp(IntPredicate::Ult, &Type::I64, index, self.frame.end.clone());
        b.cond_br(more, body, exit);
        b.at = exit;
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(0)))));
        b.at = latch;
        let flags = "nuw".to_owned();
        let add =
            Op::Binary { op: BinaryOp::Add, flags, ty: Type::I64, a: index.into(), b: i64_const(1).into() };
        b.push(elinvar_ir::Inst { result: Some(next), op: add, metadata: Vec::new() });
        b.br(head);
        b.at = body;
        let group = self.group(&mut b, index, latch);
        let starts: Vec<BlockId> = self.regions.iter().map(|_| b.f.new_block(None)).collect();
        b.br(starts[0]);
        for number in 0..self.regions.len() {
            if !self.regions[number].blocks.is_empty() {
                self.region(b.f, number, &starts, &group);
            }
        }
    }

    /// Position and actual size of the group with this index.
    fn group(&self, b: &mut Builder<'_>, index: ValueId, latch: BlockId) -> Group {
        let wide = [0, 1].map(|d| b.cast(CastOp::ZExt, Type::I32, self.frame.groups[d].clone(), Type::I64));
        let x = b.binary(BinaryOp::URem, "", &Type::I64, index, wide[0]);
        let rest = b.binary(BinaryOp::UDiv, "", &Type::I64, index, wide[0]);
        let y = b.binary(BinaryOp::URem, "", &Type::I64, rest, wide[1]);
        let z = b.binary(BinaryOp::UDiv, "", &Type::I64, rest, wide[1]);
        let position = [x, y, z].map(|p| Operand::from(b.cast(CastOp::Trunc, Type::I64, p, Type::I32)));
        let size = [0, 1, 2].map(|d| {
            let full = i32_const(self.options.group[d]);
            let first = b.binary(BinaryOp::Mul, "nuw", &Type::I32, position[d].clone(), full.clone());
            let left = b.binary(BinaryOp::Sub, "nuw", &Type::I32, self.frame.grid[d].clone(), first);
            let short = b.icmp(IntPredicate::Ult, &Type::I32, left, full.clone());
            Operand::from(b.select(&Type::I32, short, left, full))
        });
        Group { position, size, latch }
    }

    fn region(&mut self, f: &mut Function, number: usize, starts: &[BlockId], group: &Group) {
        let region = &self.regions[number];
        let mut b = Builder::new(f, starts[number]);
        if number > 0 && self.kernel.barriers[number - 1].device {
            b.effect(Op::Fence(elinvar_ir::Atomic { ordering: Ordering::AcqRel, scope: None }));
        }
        if !region.barriers.is_empty() {
            b.store(Type::I32, i32_const(0), self.frame.arrived.clone());
        }
        let threads = thread_loop(&mut b, self.options.group, &group.size);
        let returned = self.on_return(&mut b, &threads);
        let arrive = region
            .barriers
            .iter()
            .map(|barrier| (*barrier, self.on_arrival(&mut b, *barrier, number, &threads)));
        let arrive: HashMap<usize, BlockId> = arrive.collect();
        b.at = threads.body;
        if number == 0 {
            self.mark(&mut b, &threads, 0);
        } else {
            self.skip_returned(&mut b, &threads);
            self.restore(&mut b, number - 1, &threads);
        }
        let known = self.known(&mut b, group, &threads);
        let last = b.at;
        let (threadgroup, slots) = (&self.frame.threadgroup, &self.frame.slots);
        let scope = Scope { kernel: self.kernel, region, threadgroup, known, slots, arrive, returned };
        let first = copy::copy(&scope, Builder::new(b.f, last));
        b.at = last;
        b.br(first);
        b.at = threads.done;
        self.go_on(&mut b, region, starts, group.latch);
    }

    /// After all threads: to the region of the barrier they arrived at, or to the next group.
    fn go_on(&self, b: &mut Builder<'_>, region: &Region, starts: &[BlockId], latch: BlockId) {
        if region.barriers.is_empty() {
            b.br(latch);
            return;
        }
        let arrived = b.load(Type::I32, self.frame.arrived.clone(), None);
        let cases = region.barriers.iter().map(|k| (i32_const(*k as u32 + 1), starts[k + 1])).collect();
        b.end(Term::Switch { value: Typed::new(Type::I32, arrived), default: latch, cases });
    }

    /// The place of a value's element for the thread.
    fn element(
        &self,
        b: &mut Builder<'_>,
        value: ValueId,
        ty: &Type,
        threads: &ThreadLoop,
    ) -> Option<ValueId> {
        let offset = self.context.offset(value)?;
        let array = b.gep(Type::I8, self.frame.scratch.clone(), i64_const(offset));
        Some(b.gep(ty.clone(), array, threads.index.clone()))
    }

    /// What stands for parameters, positions and private arrays in the body of a thread loop.
    fn known(&self, b: &mut Builder<'_>, group: &Group, threads: &ThreadLoop) -> HashMap<ValueId, Operand> {
        let mut known = self.frame.known.clone();
        for (value, (position, dim)) in &self.kernel.positions {
            let operand = match position {
                Position::Thread => threads.position[*dim].clone(),
                Position::Group => group.position[*dim].clone(),
                Position::GroupSize => group.size[*dim].clone(),
                Position::FullGroupSize => i32_const(self.options.group[*dim]).into(),
                Position::Grid => self.frame.grid[*dim].clone(),
                Position::Groups => self.frame.groups[*dim].clone(),
                Position::ArgumentBytes => self.frame.sizes[*dim].clone(),
                Position::FaultRecord => self.frame.record.clone(),
            };
            known.insert(*value, operand);
        }
        for private in &self.kernel.privates {
            if let Some(place) = self.element(b, private.value, &private.ty, threads) {
                known.insert(private.value, place.into());
            }
        }
        known
    }

    /// Load what is live behind `barrier` into its slots.
    fn restore(&self, b: &mut Builder<'_>, barrier: usize, threads: &ThreadLoop) {
        for value in &self.live.across[barrier] {
            let ty = self.kernel.function.ty(*value).clone();
            let Some(place) = self.element(b, *value, &ty, threads) else { continue };
            let loaded = b.load(ty.clone(), place, None);
            b.store(ty, loaded, self.frame.slots[value].clone());
        }
    }

    /// The block of a thread that arrives at `barrier` in region `number`: it keeps what it carries and
    /// notes the barrier.
    fn on_arrival(
        &mut self,
        b: &mut Builder<'_>,
        barrier: usize,
        number: usize,
        threads: &ThreadLoop,
    ) -> BlockId {
        let block = b.f.new_block(None);
        b.at = block;
        let region = &self.regions[number];
        let defined = copy::defined(self.kernel, region);
        for value in self.live.across[barrier].intersection(&defined) {
            let ty = self.kernel.function.ty(*value).clone();
            let Some(place) = self.element(b, *value, &ty, threads) else { continue };
            let held = b.load(ty.clone(), self.frame.slots[value].clone(), None);
            b.store(ty, held, place);
        }
        let mark = i32_const(barrier as u32 + 1);
        if region.barriers.len() > 1 {
            self.check_same_barrier(b, barrier);
        }
        b.store(Type::I32, mark, self.frame.arrived.clone());
        b.br(threads.next);
        block
    }

    /// Return a fault if a thread has arrived at another barrier than this one.
    fn check_same_barrier(&mut self, b: &mut Builder<'_>, barrier: usize) {
        let (fault, fine) = (b.f.new_block(None), b.f.new_block(None));
        let other = b.load(Type::I32, self.frame.arrived.clone(), None);
        let none = b.icmp(IntPredicate::Eq, &Type::I32, other, i32_const(0));
        let same = b.icmp(IntPredicate::Eq, &Type::I32, other, i32_const(barrier as u32 + 1));
        let good = b.binary(BinaryOp::Or, "", &Type::I1, none, same);
        b.cond_br(good, fine, fault);
        let message = "threads of one threadgroup arrived at different barriers".to_owned();
        self.faults.push(FaultSite { message, location: self.kernel.barriers[barrier].location.clone() });
        b.at = fault;
        b.end(Term::Ret(Some(Typed::new(Type::I32, i32_const(self.faults.len() as u32)))));
        b.at = fine;
    }

    /// The block of a thread that returns.
    fn on_return(&self, b: &mut Builder<'_>, threads: &ThreadLoop) -> BlockId {
        if self.context.returned.is_none() {
            return threads.next;
        }
        let block = b.f.new_block(None);
        b.at = block;
        self.mark(b, threads, 1);
        b.br(threads.next);
        block
    }

    /// At the start of a body: go to the next thread if this one has returned.
    fn skip_returned(&self, b: &mut Builder<'_>, threads: &ThreadLoop) {
        let Some(mark) = self.mark_place(b, threads) else { return };
        let live = b.f.new_block(None);
        let mark = b.load(Type::I8, mark, None);
        let running = b.icmp(IntPredicate::Eq, &Type::I8, mark, elinvar_ir::Const::int(8, 0));
        b.cond_br(running, live, threads.next);
        b.at = live;
    }

    /// Note whether the thread has returned, where that is of interest.
    fn mark(&self, b: &mut Builder<'_>, threads: &ThreadLoop, returned: i128) {
        if let Some(mark) = self.mark_place(b, threads) {
            b.store(Type::I8, elinvar_ir::Const::int(8, returned), mark);
        }
    }

    fn mark_place(&self, b: &mut Builder<'_>, threads: &ThreadLoop) -> Option<ValueId> {
        let offset = self.context.returned?;
        let marks = b.gep(Type::I8, self.frame.scratch.clone(), i64_const(offset));
        Some(b.gep(Type::I8, marks, threads.index.clone()))
    }
}
