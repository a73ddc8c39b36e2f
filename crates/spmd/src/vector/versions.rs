//! Emits each region in two versions: a uniform version for all lanes, and a masked version.
//!
//! In the uniform version all lanes are active and branches are branches. At a divergent branch, it tests whether all lanes take
//! one side, and otherwise continues at the same point of the masked version: both versions share the stack slots of values. The
//! masked version runs in the order of the [`linearization`](crate::vector::linearize) with masks; where all lanes have
//! reconverged, it continues in the uniform version.
//!
//! Each class of blocks ([`mask_classes`](crate::analysis::mask_classes)) has a slot for its *pending* lanes, set on edges and
//! cleared when its first block is run, and one for its *active* lanes. All pending masks are empty unless lanes have diverged,
//! so the uniform version does not change them.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use elinvar_ir::{BinaryOp, BlockId, Const, Inst, IntPredicate, Op, Operand, Term, Type, Typed};

use crate::analysis::cfg::Cfg;
use crate::analysis::mask_classes::MaskClasses;
use crate::analysis::regions::Region;
use crate::support::builder::Builder;
use crate::vector::emit::{Emit, Forms};
use crate::vector::linearize::{Input, Linearization, Node, NodeId, Onward, Target};

/// Minimum number of instructions of a class for a branch around it.
const WORTH_SKIPPING: usize = 12;
/// Maximum product of a region's divergent branches and the values that are live across its blocks for which there is a uniform version.
/// Wherever control moves between the versions, each live value needs a phi.
const MAX_CROSSINGS: usize = 1 << 15;
/// Maximum number of linearizations that are tried before every block gets a mask.
const ATTEMPTS: usize = 8;

/// Actions where lanes leave a region.
pub(crate) trait Exits {
    /// Target of an iteration's end.
    fn next(&self) -> BlockId;
    /// Blocks with a safepoint at their start.
    fn safepoints(&self) -> HashSet<BlockId>;
    /// Emits a safepoint.
    fn poll(&self, b: &mut Builder<'_>);
    /// Blocks with an early exit: following iterations have no work if all lanes take this successor.
    fn early_exits(&self) -> &HashMap<BlockId, BlockId>;
    /// Marks the iteration as the last one.
    fn exit_early(&self, b: &mut Builder<'_>);
    /// Emits the arrival of lanes at a barrier.
    fn arrive(&mut self, emit: &mut Emit<'_, '_>, barrier: usize);
    /// Emits the return of the lanes of these masks.
    fn returned(&mut self, emit: &mut Emit<'_, '_>, masks: &[Operand]);
    /// Whether returned lanes are recorded.
    fn notes_returns(&self) -> bool;
}

/// Entries of the versions of a region.
pub(crate) struct Entries {
    pub uniform: BlockId,
    /// The masked version, and the slots for its lanes.
    pub masked: Option<(BlockId, Vec<Operand>)>,
}

/// The masked version.
struct Masked {
    cfg: Rc<Cfg>,
    masks: MaskClasses,
    linearization: Linearization,
    /// Start of each node.
    nodes: Vec<BlockId>,
    /// Start of each block of the kernel after its class's mask is computed.
    bodies: HashMap<BlockId, BlockId>,
    /// Entry from a divergent branch at the end of a block.
    ends: HashMap<BlockId, BlockId>,
    /// Slots of pending lanes, by node.
    pending: HashMap<NodeId, Vec<Operand>>,
    /// Slots of active lanes, by the first block of the class.
    active: HashMap<BlockId, Vec<Operand>>,
    /// By the first block of the class, the last index in the CFG's order where its mask may be used.
    until: HashMap<BlockId, usize>,
}

struct Versions<'r, 'a, 'f, E> {
    emit: Emit<'a, 'f>,
    region: &'r Region,
    exits: &'r mut E,
    uniform: HashMap<BlockId, BlockId>,
    /// Blocks with a safepoint at their start.
    safepoints: HashSet<BlockId>,
    masked: Option<Masked>,
    /// Whether there is a uniform version.
    has_uniform: bool,
}

/// Emits the versions of a region. The pending masks are cleared in `start`, which dominates both versions.
pub(crate) fn write<E: Exits>(
    emit: Emit<'_, '_>,
    region: &Region,
    cfg: Option<Rc<Cfg>>,
    start: BlockId,
    exits: &mut E,
) -> Entries {
    let safepoints = exits.safepoints();
    let has_uniform = cfg.is_none() || crossings(&emit, region) <= MAX_CROSSINGS;
    let mut versions =
        Versions { emit, region, exits, uniform: HashMap::new(), safepoints, masked: None, has_uniform };
    for block in region.blocks.iter().filter(|block| has_uniform || **block == region.start) {
        let new = versions.emit.b.f.new_block(None);
        versions.uniform.insert(*block, new);
    }
    versions.masked = cfg.map(|cfg| versions.prepare(cfg, start));
    let order = match &versions.masked {
        Some(masked) => masked.cfg.order.clone(),
        None => region.blocks.clone(),
    };
    for block in order.iter().filter(|_| has_uniform) {
        versions.write_uniform(*block);
    }
    let uniform = versions.uniform[&region.start];
    let Some(masked) = versions.masked.take() else { return Entries { uniform, masked: None } };
    for node in 0..masked.linearization.nodes.len() {
        versions.write_masked(&masked, node);
    }
    let first = masked.bodies[&region.start];
    if !has_uniform {
        versions.emit.b.at = uniform;
        let ones = vec![versions.emit.mask_of(true); versions.emit.factor()];
        versions.set_active(&masked, region.start, &ones);
        versions.emit.b.br(first);
    }
    Entries { uniform, masked: Some((first, masked.active[&region.start].clone())) }
}

impl<'a, 'f, E: Exits> Versions<'_, 'a, 'f, E> {
    fn prepare(&mut self, cfg: Rc<Cfg>, start: BlockId) -> Masked {
        let divergent = &self.emit.source.uniform.divergent;
        let (masks, linearization) = self.linearization(&cfg);
        let emit = &mut self.emit;
        let nodes: Vec<BlockId> = linearization.nodes.iter().map(|_| emit.b.f.new_block(None)).collect();
        let (mut bodies, mut ends) = (HashMap::new(), HashMap::new());
        let (mut pending, mut active) = (HashMap::new(), HashMap::new());
        let ty = emit.mask_type();
        let parts = emit.factor();
        let slots =
            |emit: &mut Emit<'_, '_>| -> Vec<Operand> { (0..parts).map(|_| emit.slot(ty.clone())).collect() };
        for (number, node) in linearization.nodes.iter().enumerate() {
            let own = match node {
                Node::Block(block) => {
                    bodies.insert(*block, emit.b.f.new_block(None));
                    if divergent[block.0 as usize] && self.has_uniform {
                        ends.insert(*block, emit.b.f.new_block(None));
                    }
                    if masks.is_own(*block) {
                        active.insert(*block, slots(emit));
                    }
                    masks.is_own(*block)
                }
                Node::LoopEnd(_) | Node::Return | Node::Barrier(_) => true,
                Node::End => false,
            };
            if own {
                let slots = slots(emit);
                emit.b.at = start;
                for slot in &slots {
                    emit.b.store(ty.clone(), Const::Zero, slot.clone());
                }
                pending.insert(number, slots);
            }
        }
        let until = masks.until(&cfg);
        Masked { cfg, masks, linearization, nodes, bodies, ends, pending, active, until }
    }

    /// Consistent mask classes and linearization.
    fn linearization(&self, cfg: &Cfg) -> (MaskClasses, Linearization) {
        let kernel = self.emit.source.kernel;
        let divergent = &self.emit.source.uniform.divergent;
        let mut alone = HashSet::new();
        for attempt in 0.. {
            let masks = MaskClasses::with(cfg, divergent, &alone);
            let skippable = self.skippable(cfg, &masks);
            let input = Input {
                function: &kernel.function,
                cfg,
                masks: &masks,
                divergent,
                barrier_after: &|b| kernel.barrier_after(b),
                returns: self.exits.notes_returns() && self.region.returns,
                skippable: &|b| alone.contains(&b) || skippable.contains(&b),
            };
            let linearization = Linearization::new(&input);
            let lacking = linearization.lacking_masks(&input);
            if lacking.is_empty() {
                return (masks, linearization);
            }
            match attempt < ATTEMPTS {
                true => alone.extend(lacking),
                false => alone.extend(cfg.order.iter().skip(1)),
            }
        }
        unreachable!("where every block has a mask none is lacking")
    }

    /// The first blocks of classes that must not run without an active lane, or that are large enough for a branch.
    fn skippable(&self, cfg: &Cfg, masks: &MaskClasses) -> HashSet<BlockId> {
        let mut size: HashMap<BlockId, usize> = HashMap::new();
        let function = &self.emit.source.kernel.function;
        for block in &cfg.order {
            let insts = &function.block(*block).insts;
            let cost = size.entry(masks.of(*block)).or_default();
            *cost += insts.len();
            if cfg.header_of(*block).is_some() || insts.iter().any(|i| self.needs_a_lane(i, *block)) {
                *cost += WORTH_SKIPPING;
            }
        }
        size.into_iter()
            .filter(|(b, cost)| *cost >= WORTH_SKIPPING && *b != self.region.start)
            .map(|(b, _)| b)
            .collect()
    }

    /// Whether an instruction has an effect even without an active lane, because it is executed as a scalar.
    fn needs_a_lane(&self, inst: &Inst, block: BlockId) -> bool {
        let uniform = self.emit.source.uniform;
        match &inst.op {
            Op::Load { ptr, .. } | Op::Store { ptr, .. } => uniform.at(&ptr.op, &ptr.ty, block).is_uniform(),
            Op::AtomicRmw { ptr, .. } => uniform.at(&ptr.op, &ptr.ty, block).is_uniform(),
            Op::Fence(_) => true,
            _ => false,
        }
    }

    fn phis_of(&self, block: BlockId) -> bool {
        let insts = &self.emit.source.kernel.function.block(block).insts;
        matches!(insts.first(), Some(Inst { op: Op::Phi { .. }, .. }))
    }

    /// Stores the incoming values of the phis of `to` for the edge from `from`; with `keep`, for active lanes only.
    fn edge(&mut self, from: BlockId, to: BlockId, keep: bool) {
        let source = self.emit.source;
        let mut moves: Vec<(Forms, Type, Forms)> = Vec::new();
        for inst in &source.kernel.function.block(to).insts {
            let (Op::Phi { incoming, ty, .. }, Some(result)) = (&inst.op, inst.result) else { break };
            let Some((operand, _)) = incoming.iter().find(|(_, pred)| *pred == from) else { continue };
            let known = source.uniform.of(result).clone();
            let forms = self.emit.formed(&known, operand, ty);
            moves.push((self.emit.phi_slots(result), ty.clone(), forms));
        }
        for (slots, ty, forms) in moves {
            self.emit.store(&slots, &ty, &forms, keep);
        }
    }

    fn body(&mut self, block: BlockId) {
        if self.safepoints.contains(&block) {
            self.exits.poll(&mut self.emit.b);
        }
        self.emit.phis(block);
        let source = self.emit.source;
        for (index, inst) in source.kernel.function.block(block).insts.iter().enumerate() {
            self.emit.instruction(index, inst);
        }
        self.emit.call_products();
    }

    // The uniform version.

    fn write_uniform(&mut self, block: BlockId) {
        self.emit.begin(block, self.uniform[&block], None);
        self.body(block);
        let kernel = self.emit.source.kernel;
        let next = self.exits.next();
        if let Some(barrier) = kernel.barrier_after(block) {
            self.exits.arrive(&mut self.emit, barrier);
            return self.emit.b.br(next);
        }
        match &kernel.function.block(block).term {
            Term::Ret(_) => {
                if self.exits.notes_returns() {
                    let masks: Vec<Operand> =
                        (0..self.emit.factor()).map(|p| self.emit.part_mask(p)).collect();
                    self.exits.returned(&mut self.emit, &masks);
                }
                self.emit.b.br(next);
            }
            Term::Unreachable => self.emit.b.br(next),
            Term::Br(to) => {
                self.edge(block, *to, false);
                self.emit.b.br(self.uniform[to]);
            }
            term if self.emit.source.uniform.divergent[block.0 as usize] => self.part(block, term),
            term => {
                let targets = self.uniform_edges(block);
                self.branch(term, &targets);
            }
        }
    }

    /// As [`edges`](Self::edges), for uniform branches.
    fn uniform_edges(&mut self, block: BlockId) -> HashMap<BlockId, BlockId> {
        let at = self.emit.b.at;
        let mut targets = self.edges(block, &|versions, to| versions.uniform[&to]);
        if let Some(target) = self.exits.early_exits().get(&block).and_then(|to| targets.get_mut(to)) {
            let exit_early = self.emit.b.f.new_block(None);
            self.emit.b.at = exit_early;
            self.exits.exit_early(&mut self.emit.b);
            self.emit.b.br(*target);
            *target = exit_early;
            self.emit.b.at = at;
        }
        targets
    }

    /// For each successor, a block that stores the incoming values of its phis; or the target itself.
    fn edges(
        &mut self,
        block: BlockId,
        target: &dyn Fn(&Self, BlockId) -> BlockId,
    ) -> HashMap<BlockId, BlockId> {
        let at = self.emit.b.at;
        let mut successors = self.emit.source.kernel.function.block(block).term.successors();
        successors.sort_unstable();
        successors.dedup();
        let mut edges = HashMap::new();
        for to in successors {
            let target = target(self, to);
            edges.insert(to, self.edge_block(block, to, target));
        }
        self.emit.b.at = at;
        edges
    }

    /// A block for the edge, which continues at `target`. Restores the builder's position.
    fn edge_block(&mut self, from: BlockId, to: BlockId, target: BlockId) -> BlockId {
        if !self.phis_of(to) {
            return target;
        }
        let edge = self.emit.b.f.new_block(None);
        self.emit.turn_aside(edge);
        self.edge(from, to, false);
        self.emit.b.br(target);
        edge
    }

    /// A uniform branch.
    fn branch(&mut self, term: &Term, targets: &HashMap<BlockId, BlockId>) {
        let mut term = term.clone();
        term.map_operands(|o| *o = self.emit.scalar(o, 0));
        term.map_successors(|to| targets[&to]);
        self.emit.b.end(term);
    }

    /// A divergent branch.
    fn part(&mut self, block: BlockId, term: &Term) {
        let apart = self.emit.b.f.new_block(None);
        match term {
            Term::CondBr { cond, then, other } => {
                let all = self.emit.all_fulfil(cond);
                let at = self.emit.b.at;
                let some = self.emit.b.f.new_block(None);
                let targets = self.uniform_edges(block);
                self.emit.b.at = at;
                self.emit.b.cond_br(all, targets[then], some);
                self.emit.turn_aside(some);
                let any = self.emit.any_may_fulfil(cond);
                self.emit.b.cond_br(any, apart, targets[other]);
            }
            _ => self.emit.b.br(apart),
        }
        self.emit.b.at = apart;
        let Some(masked) = &self.masked else { return };
        let ones = self.emit.mask_of(true);
        let ty = self.emit.mask_type();
        let here = masked.cfg.position(block);
        let above = std::iter::successors(Some(block), |b| masked.cfg.idom(*b));
        let above = above.filter(|b| masked.until.get(b).is_some_and(|last| *last >= here));
        for slots in above.filter_map(|b| masked.active.get(&b)) {
            for slot in slots {
                self.emit.b.store(ty.clone(), ones.clone(), slot.clone());
            }
        }
        let end = masked.ends[&block];
        self.emit.b.br(end);
    }

    // The masked version.

    fn write_masked(&mut self, m: &Masked, node: NodeId) {
        self.emit.b.at = m.nodes[node];
        match m.linearization.nodes[node] {
            Node::Block(block) => self.masked_block(m, node, block),
            Node::LoopEnd(l) => {
                let header = m.cfg.loops[l].header;
                let lanes = self.take(m, node);
                let (again, onward) = (self.emit.b.f.new_block(None), self.onward(m, node));
                let any = self.emit.any(&lanes);
                self.emit.b.cond_br(any, again, onward);
                self.emit.b.at = again;
                self.set_active(m, header, &lanes);
                self.emit.b.br(m.bodies[&header]);
            }
            Node::Return => {
                let lanes = self.take(m, node);
                self.exits.returned(&mut self.emit, &lanes);
                let onward = self.onward(m, node);
                self.emit.b.br(onward);
            }
            Node::Barrier(barrier) => {
                let lanes = self.take(m, node);
                let (arrived, onward) = (self.emit.b.f.new_block(None), self.onward(m, node));
                let any = self.emit.any(&lanes);
                self.emit.b.cond_br(any, arrived, onward);
                let from = self.emit.source.kernel.barriers[barrier].from;
                self.emit.begin(from, arrived, Some(lanes));
                self.exits.arrive(&mut self.emit, barrier);
                self.emit.b.br(onward);
            }
            Node::End => {
                let next = self.exits.next();
                self.emit.b.br(next);
            }
        }
    }

    /// Target of a node without edges.
    fn onward(&self, m: &Masked, node: NodeId) -> BlockId {
        match m.linearization.onward[node] {
            Onward::To(_, next) => m.nodes[next],
            Onward::Uniform(_) | Onward::Divergent(..) => m.nodes[m.linearization.nodes.len() - 1],
        }
    }

    /// Takes and clears the lanes pending for a node.
    fn take(&mut self, m: &Masked, node: NodeId) -> Vec<Operand> {
        let ty = self.emit.mask_type();
        let slots = &m.pending[&node];
        let lanes = slots.iter().map(|s| self.emit.b.load(ty.clone(), s.clone(), None).into()).collect();
        slots.iter().for_each(|s| self.emit.b.store(ty.clone(), Const::Zero, s.clone()));
        lanes
    }

    fn set_active(&mut self, m: &Masked, class: BlockId, lanes: &[Operand]) {
        let ty = self.emit.mask_type();
        for (slot, lanes) in m.active[&class].iter().zip(lanes) {
            self.emit.b.store(ty.clone(), lanes.clone(), slot.clone());
        }
    }

    fn active(&mut self, m: &Masked, block: BlockId) -> Vec<Operand> {
        let ty = self.emit.mask_type();
        let slots = &m.active[&m.masks.of(block)];
        slots.iter().map(|s| self.emit.b.load(ty.clone(), s.clone(), None).into()).collect()
    }

    fn masked_block(&mut self, m: &Masked, node: NodeId, block: BlockId) {
        let body = m.bodies[&block];
        if m.masks.is_own(block) {
            let lanes = self.take(m, node);
            self.set_active(m, block, &lanes);
            match m.linearization.skip[node] {
                Some(skip) => {
                    let any = self.emit.any(&lanes);
                    self.emit.b.cond_br(any, body, m.nodes[skip]);
                }
                None => self.emit.b.br(body),
            }
        } else if self.rejoins(m, block) {
            let lanes = self.active(m, block);
            let all = self.emit.all(&lanes);
            self.emit.b.cond_br(all, self.uniform[&block], body);
        } else {
            self.emit.b.br(body);
        }
        self.emit.b.at = body;
        let lanes = self.active(m, block);
        self.emit.begin(block, body, Some(lanes));
        self.body(block);
        if let Some(end) = m.ends.get(&block) {
            self.emit.b.br(*end);
            self.emit.b.at = *end;
            let lanes = self.active(m, block);
            self.emit.begin(block, *end, Some(lanes));
        }
        self.leave(m, node, block);
    }

    /// Whether diverged lanes reconverge in a block.
    fn rejoins(&self, m: &Masked, block: BlockId) -> bool {
        let class = m.masks.of(block);
        self.has_uniform
            && m.cfg
                .entries(block)
                .any(|p| m.masks.of(p) != class || m.masks.leaves_divergent_loop(&m.cfg, p, block))
    }

    /// The end of a block in the masked version.
    fn leave(&mut self, m: &Masked, node: NodeId, block: BlockId) {
        let lanes = self.emit.mask.clone().unwrap_or_default();
        let term = &self.emit.source.kernel.function.block(block).term;
        match &m.linearization.onward[node] {
            Onward::To(target, next) => {
                if let Some(target) = target {
                    self.add_pending(m, *target, &lanes);
                }
                self.emit.b.br(m.nodes[*next]);
            }
            Onward::Uniform(edges) => {
                let at = self.emit.b.at;
                let mut targets = HashMap::new();
                for (to, target, next) in edges {
                    let edge = self.emit.b.f.new_block(None);
                    self.emit.turn_aside(edge);
                    self.masked_edge(m, block, *to, *target, &lanes);
                    // On the back edge the active lanes are unchanged.
                    let onward = match target {
                        Target::Again(header) => m.bodies[header],
                        Target::Node(_) => m.nodes[*next],
                    };
                    self.emit.b.br(onward);
                    targets.insert(*to, edge);
                }
                self.emit.b.at = at;
                self.branch(term, &targets);
            }
            Onward::Divergent(edges, next) => {
                for (to, target) in edges {
                    let taken = self.taken(term, *to, &lanes);
                    self.emit.mask = Some(taken.clone());
                    self.masked_edge(m, block, *to, *target, &taken);
                    self.emit.mask = Some(lanes.clone());
                }
                self.emit.b.br(m.nodes[*next]);
            }
        }
    }

    fn masked_edge(&mut self, m: &Masked, from: BlockId, to: BlockId, target: Target, lanes: &[Operand]) {
        let divergent = &self.emit.source.uniform.divergent;
        let gathers = m.masks.gathers(&m.cfg, to);
        let keep = gathers || m.masks.mixes(&m.cfg, divergent, to) && !is_first_edge(&m.cfg, from, to);
        self.edge(from, to, keep);
        self.add_pending(m, target, lanes);
    }

    fn add_pending(&mut self, m: &Masked, target: Target, lanes: &[Operand]) {
        let Target::Node(node) = target else { return };
        let Some(slots) = m.pending.get(&node) else { return };
        let ty = self.emit.mask_type();
        for (slot, lanes) in slots.iter().zip(lanes) {
            let before = self.emit.b.load(ty.clone(), slot.clone(), None);
            let both = self.emit.b.binary(BinaryOp::Or, "", &ty, before, lanes.clone());
            self.emit.b.store(ty.clone(), both, slot.clone());
        }
    }

    /// The lanes that take the edge to `to`.
    fn taken(&mut self, term: &Term, to: BlockId, lanes: &[Operand]) -> Vec<Operand> {
        let mut taken = Vec::new();
        for (part, lanes) in lanes.iter().enumerate() {
            let cond = match term {
                Term::CondBr { cond, then, other } => {
                    let cond = self.emit.vector(cond, &Type::I1, part);
                    match (*then == to, *other == to) {
                        (true, true) => self.emit.mask_of(true),
                        (true, false) => cond,
                        _ => self.not(cond),
                    }
                }
                Term::Switch { value, default, cases } => {
                    let hit: Vec<&Const> = cases.iter().filter(|(_, b)| *b == to).map(|(c, _)| c).collect();
                    let others: Vec<&Const> =
                        cases.iter().filter(|(_, b)| *b != to).map(|(c, _)| c).collect();
                    match *default == to {
                        true => {
                            let elsewhere = self.is_one_of(value, &others, part);
                            self.not(elsewhere)
                        }
                        false => self.is_one_of(value, &hit, part),
                    }
                }
                Term::Br(_) | Term::Ret(_) | Term::Unreachable => self.emit.mask_of(true),
            };
            taken.push(self.emit.and(lanes.clone(), cond));
        }
        taken
    }

    fn not(&mut self, mask: Operand) -> Operand {
        let (ty, ones) = (self.emit.mask_type(), self.emit.mask_of(true));
        self.emit.b.binary(BinaryOp::Xor, "", &ty, mask, ones).into()
    }

    fn is_one_of(&mut self, value: &Typed, cases: &[&Const], part: usize) -> Operand {
        let (ty, wide) = (self.emit.mask_type(), self.emit.wide(&value.ty));
        let mut found: Operand = Const::Zero.into();
        let vector = self.emit.vector(&value.op, &value.ty, part);
        for case in cases {
            let case = self.emit.splat_const(&value.ty, case);
            let op = Op::ICmp {
                flags: String::new(),
                pred: IntPredicate::Eq,
                ty: wide.clone(),
                a: vector.clone(),
                b: case,
            };
            let equal = self.emit.b.value(ty.clone(), None, op);
            found = self.emit.b.binary(BinaryOp::Or, "", &ty, found, equal).into();
        }
        found
    }
}

/// The number of a region's divergent branches times the number of values that are live across its blocks.
fn crossings(emit: &Emit<'_, '_>, region: &Region) -> usize {
    let source = emit.source;
    let insts = |block: &BlockId| &source.kernel.function.block(*block).insts;
    let crosses = |inst: &&Inst| inst.result.is_some_and(|result| source.crossing.contains(&result));
    let values = region.blocks.iter().flat_map(insts).filter(crosses).count();
    let branches = region.blocks.iter().filter(|block| source.uniform.divergent[block.0 as usize]).count();
    values * branches
}

/// Whether no edge into `to`, which is no loop's header, is run before the one from `from`. Then no lane's incoming values are stored
/// yet, so that none have to be kept. A blend would make the slots live from one run of `to` to the next, and each join of paths in
/// between would get a phi for each slot.
fn is_first_edge(cfg: &Cfg, from: BlockId, to: BlockId) -> bool {
    let first = cfg.predecessors[to.0 as usize].iter().min_by_key(|pred| cfg.position(**pred));
    cfg.header_of(to).is_none() && first == Some(&from)
}
