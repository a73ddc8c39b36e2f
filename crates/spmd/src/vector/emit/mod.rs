//! Emission of a kernel's instructions for vectors of threads.
//!
//! A value with a pattern is computed once, as lane 0's scalar; other values are vectors. With an unroll-and-jam factor above 1,
//! several vectors (*parts*) are computed in one iteration: a value then has one form for each part, or one for all parts if it
//! is uniform over them. Values used outside their block live in stack slots, which clang promotes to registers, so that control
//! flow can be changed without repairing SSA form.
//!
//! In the uniform version (`mask` is `None`) all lanes are active. In the masked version the lanes of the mask are active.
//! Inactive lanes compute unspecified values, so flags that make results undefined are dropped, and operations that could trap or
//! have visible effects are not executed for them.

mod access;
mod atomic;
mod condition;
mod copies;
mod group_ops;
mod instruction;
mod interleaved;
mod likely_rows;
mod matrix_product;
mod prefix_rows;
mod replicate;
mod value;

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, Const, Function, Inst, Module, Op, Operand, Type, ValueId};

use crate::Options;
use crate::analysis::interleaved_access::InterleaveGroups;
use crate::analysis::lane_layout::Layout;
use crate::analysis::lane_rows::RowsOfValues;
use crate::analysis::uniformity::Uniformity;
use crate::analysis::vector_shape::{Known, Shape};
use crate::kernel::Kernel;
use crate::support::builder::Builder;
use crate::support::constants::Threadgroup;
use crate::vector::gather_scatter::Gathers;
use crate::vector::private_counters::Table;
use matrix_product::Matrices;

/// The available forms of a value.
#[derive(Clone, Default)]
pub(crate) struct Forms {
    /// Lane 0's value: one for each part, one for all parts, or none.
    pub scalars: Vec<Operand>,
    /// Vectors: one for each part, or none.
    pub vectors: Vec<Operand>,
}

/// Stack slots of values, shared by regions.
#[derive(Default)]
pub(crate) struct Slots {
    /// Slots of values used outside their block.
    pub values: HashMap<ValueId, Forms>,
    /// Slots of values used outside a loop with a divergent exit: each lane's last value.
    left: HashMap<ValueId, Vec<Operand>>,
    /// Slots of the incoming values of phis.
    phis: HashMap<ValueId, Forms>,
    /// Slots of simdgroup matrices.
    matrices: Vec<Operand>,
    /// Slots of zeros, by type.
    zeroed: Vec<(Type, Operand)>,
}

/// Inputs of the emission, shared by all code of a kernel.
pub(crate) struct Source<'a> {
    pub module: &'a Module,
    pub kernel: &'a Kernel,
    pub uniform: &'a Uniformity,
    pub layout: &'a Layout,
    /// Addresses of threadgroup variables; empty before the prologue is emitted.
    pub threadgroup: Threadgroup,
    /// Instructions for gathers and scatters.
    pub gathers: Gathers,
    /// Rows of lanes of values without a pattern.
    pub rows: RowsOfValues,
    /// Interleaved accesses.
    pub interleave_groups: InterleaveGroups,
    /// Values used outside their block.
    pub crossing: HashSet<ValueId>,
    /// Values used outside a loop with a divergent exit.
    pub leaving: HashSet<ValueId>,
    /// Values with uses.
    pub used: HashSet<ValueId>,
    /// Parameters that point to threadgroup memory.
    pub threadgroup_params: HashSet<ValueId>,
    /// Tables of atomic counters, by the parameter; empty before the prologue is emitted.
    pub counters: HashMap<ValueId, Table>,
}

impl<'a> Source<'a> {
    pub fn new(
        module: &'a Module,
        kernel: &'a Kernel,
        uniform: &'a Uniformity,
        layout: &'a Layout,
        options: &Options,
    ) -> Self {
        let function = &kernel.function;
        let (mut crossing, mut leaving) = (HashSet::new(), HashSet::new());
        let mut all_used = HashSet::new();
        let mut used = |operand: &Operand, block: BlockId| {
            if let Operand::Value(v) = operand {
                all_used.insert(*v);
                if uniform.home(*v).is_some_and(|home| home != block) {
                    crossing.insert(*v);
                }
                if uniform.has_left(*v, block) {
                    leaving.insert(*v);
                }
            }
        };
        let mut on_edges = Vec::new();
        for block in function.block_ids() {
            for inst in &function.block(block).insts {
                match &inst.op {
                    Op::Phi { incoming, .. } => {
                        incoming.iter().for_each(|(o, from)| used(o, *from));
                        on_edges.extend(incoming);
                    }
                    op => op.operands().into_iter().for_each(|o| used(o, block)),
                }
            }
            function.block(block).term.operands().into_iter().for_each(|o| used(o, block));
        }
        // Where lanes diverge, the uniform version leaves the edges to the masked version.
        for block in function.block_ids().filter(|b| uniform.divergent[b.0 as usize]) {
            crossing.extend(function.block(block).term.operands().into_iter().filter_map(Operand::value));
        }
        let parted = on_edges.into_iter().filter(|(_, from)| uniform.divergent[from.0 as usize]);
        crossing.extend(parted.filter_map(|(o, _)| o.value()));
        crossing.retain(|v| uniform.home(*v).is_some());
        let mut todo: Vec<ValueId> = crossing.iter().copied().collect();
        while let Some(value) = todo.pop() {
            let parts = uniform.address_operands(kernel, value);
            todo.extend(parts.into_iter().filter(|v| crossing.insert(*v)));
        }
        let params = function.params.iter().zip(&options.threadgroup_args).filter(|(_, is)| **is);
        let threadgroup_params = params.map(|(p, _)| p.value).collect();
        let rows = RowsOfValues::new(module, kernel, uniform, layout.lanes);
        Self {
            module,
            kernel,
            uniform,
            layout,
            threadgroup: Threadgroup::default(),
            gathers: Gathers { has_instruction: options.gathers, lanes: layout.lanes },
            interleave_groups: InterleaveGroups::new(module, kernel, uniform, &rows, layout.lanes),
            rows,
            crossing,
            leaving,
            used: all_used,
            threadgroup_params,
            counters: HashMap::new(),
        }
    }

    /// The instruction that defines a value.
    pub fn definition(&self, value: ValueId) -> Option<&'a Inst> {
        self.uniform.definition(self.kernel, value)
    }

    /// Whether an address is provably in threadgroup memory.
    pub fn is_threadgroup(&self, address: &Operand) -> bool {
        let mut at = address;
        loop {
            match at {
                Operand::Const(c) => {
                    let names = &self.kernel.threadgroup;
                    return crate::support::constants::mentions(c, &|name| names.iter().any(|n| n == name));
                }
                Operand::Value(v) if self.threadgroup_params.contains(v) => return true,
                Operand::Value(v) => match self.definition(*v).map(|i| &i.op) {
                    Some(Op::Gep { base, .. }) => at = &base.op,
                    _ => return false,
                },
            }
        }
    }

    /// The table of the counters that an address points to.
    pub fn table(&self, address: &Operand) -> Option<&Table> {
        let mut at = address.value()?;
        loop {
            if let Some(table) = self.counters.get(&at) {
                return Some(table);
            }
            let Op::Gep { base, .. } = &self.definition(at)?.op else { return None };
            at = base.op.value()?;
        }
    }

    /// Number of scalars and of vectors that represent a value.
    pub fn counts(&self, known: &Known) -> (usize, usize) {
        match &known.shape {
            Shape::Lanes(p) => (self.parts(p.same), if p.loose { self.parts(false) } else { 0 }),
            _ => (0, self.parts(false)),
        }
    }

    /// Number of parts with different values of lane 0.
    pub fn parts(&self, same: bool) -> usize {
        if same { 1 } else { self.layout.factor as usize }
    }
}

/// A position in the output, and the values available there.
pub(crate) struct Emit<'a, 'f> {
    pub source: &'a Source<'a>,
    pub b: Builder<'f>,
    /// The block for stack slots.
    pub entry: BlockId,
    pub slots: &'a mut Slots,
    /// Values defined outside the kernel's code: parameters, positions, private arrays.
    pub given: HashMap<ValueId, Forms>,
    /// Values computed in the current block.
    local: HashMap<ValueId, Forms>,
    /// Simdgroup matrices in memory in the current block.
    matrices: Matrices,
    /// Whether the current code follows the block's on some paths only, so that values loaded there are
    /// not available on others.
    pub aside: bool,
    /// The kernel's block that is being emitted.
    pub block: BlockId,
    /// The mask of active lanes, one vector for each part; `None` in the uniform version.
    pub mask: Option<Vec<Operand>>,
    /// Whether the active lanes of a mask are often the first ones, as in a region with an early exit.
    pub has_prefix_masks: bool,
    /// The table that atomic operations update instead of its buffer.
    table: Option<&'a Table>,
}

impl<'a, 'f> Emit<'a, 'f> {
    pub fn new(
        source: &'a Source<'a>,
        f: &'f mut Function,
        entry: BlockId,
        slots: &'a mut Slots,
        given: HashMap<ValueId, Forms>,
    ) -> Self {
        let b = Builder::new(f, entry);
        Self {
            source,
            b,
            entry,
            slots,
            given,
            local: HashMap::new(),
            matrices: Matrices::default(),
            aside: false,
            block: BlockId(0),
            mask: None,
            has_prefix_masks: false,
            table: None,
        }
    }

    /// Continues in `at`, with the code of `block` for the lanes of `mask`.
    pub fn begin(&mut self, block: BlockId, at: BlockId, mask: Option<Vec<Operand>>) {
        self.local.clear();
        self.matrices = Matrices::default();
        self.aside = false;
        self.block = block;
        self.b.at = at;
        self.mask = mask;
    }

    /// Continues in `at`, which follows the emitted part of the block.
    pub fn turn_aside(&mut self, at: BlockId) {
        self.aside = true;
        self.b.at = at;
    }

    pub fn lanes(&self) -> u32 {
        self.source.layout.lanes
    }

    pub fn factor(&self) -> usize {
        self.source.layout.factor as usize
    }

    /// The type of a value's vector.
    pub fn wide(&self, ty: &Type) -> Type {
        match ty {
            Type::Struct { packed, fields } => {
                Type::Struct { packed: *packed, fields: fields.iter().map(|f| self.wide(f)).collect() }
            }
            ty => Type::vector(self.lanes(), ty.clone()),
        }
    }

    /// A stack slot.
    pub fn slot(&mut self, ty: Type) -> Operand {
        let at = std::mem::replace(&mut self.b.at, self.entry);
        let slot = self.b.value(Type::PTR, None, Op::Alloca { ty, count: None, align: None, addrspace: 0 });
        self.b.at = at;
        slot.into()
    }

    /// A stack slot of zeros, which is only read.
    pub fn zeroed_slot(&mut self, ty: &Type) -> Operand {
        if let Some((_, slot)) = self.slots.zeroed.iter().find(|(of, _)| of == ty) {
            return slot.clone();
        }
        let slot = self.slot(ty.clone());
        let at = std::mem::replace(&mut self.b.at, self.entry);
        self.b.store(ty.clone(), Const::Zero, slot.clone());
        self.b.at = at;
        self.slots.zeroed.push((ty.clone(), slot.clone()));
        slot
    }

    /// A vector of one constant.
    pub fn splat_const(&self, ty: &Type, c: &Const) -> Operand {
        match c {
            Const::Undef | Const::Poison | Const::Zero => c.clone().into(),
            Const::Null => Const::Zero.into(),
            Const::Struct { packed, fields } => {
                let wide = |(ty, c): &(Type, Const)| match self.splat_const(ty, c) {
                    Operand::Const(c) => (self.wide(ty), c),
                    Operand::Value(_) => (self.wide(ty), Const::Poison),
                };
                Const::Struct { packed: *packed, fields: fields.iter().map(wide).collect() }.into()
            }
            // Short in the text, and LLVM 19 knows it for numbers.
            Const::Int(_) | Const::Float(_) => Const::Splat(Box::new((ty.clone(), c.clone()))).into(),
            _ => Const::Vector(vec![(ty.clone(), c.clone()); self.lanes() as usize]).into(),
        }
    }

    /// A mask of all lanes or of none.
    pub fn mask_of(&self, active: bool) -> Operand {
        if active { self.splat_const(&Type::I1, &Const::int(1, -1)) } else { Const::Zero.into() }
    }

    /// The active lanes of a part.
    pub fn part_mask(&self, part: usize) -> Operand {
        match &self.mask {
            Some(mask) => mask[part].clone(),
            None => self.mask_of(true),
        }
    }

    /// The type of a mask.
    pub fn mask_type(&self) -> Type {
        Type::vector(self.lanes(), Type::I1)
    }

    /// A mask as an integer, a bit for each lane.
    pub fn bits(&mut self, mask: Operand) -> Operand {
        self.b.cast(elinvar_ir::CastOp::BitCast, self.mask_type(), mask, Type::Int(self.lanes())).into()
    }

    /// The active lanes of a part as an i32, a bit for each lane.
    pub fn mask_bits(&mut self, part: usize) -> Operand {
        let mask = self.part_mask(part);
        let bits = self.bits(mask);
        self.resize(bits, self.lanes())
    }

    /// Whether any lane of the masks is set.
    pub fn any(&mut self, masks: &[Operand]) -> Operand {
        let merged = self.merge(elinvar_ir::BinaryOp::Or, masks);
        let bits = self.bits(merged);
        let ty = Type::Int(self.lanes());
        self.b.icmp(elinvar_ir::IntPredicate::Ne, &ty, bits, Const::int(self.lanes(), 0)).into()
    }

    /// Whether all lanes of the masks are set.
    pub fn all(&mut self, masks: &[Operand]) -> Operand {
        let merged = self.merge(elinvar_ir::BinaryOp::And, masks);
        let bits = self.bits(merged);
        let ty = Type::Int(self.lanes());
        self.b.icmp(elinvar_ir::IntPredicate::Eq, &ty, bits, Const::int(self.lanes(), -1)).into()
    }

    fn merge(&mut self, op: elinvar_ir::BinaryOp, masks: &[Operand]) -> Operand {
        let ty = self.mask_type();
        let mut merged = masks[0].clone();
        for mask in &masks[1..] {
            merged = self.b.binary(op, "", &ty, merged, mask.clone()).into();
        }
        merged
    }

    /// The lanes of `mask` for which `cond` holds; `cond` may be poison in other lanes.
    pub fn and(&mut self, mask: Operand, cond: Operand) -> Operand {
        let ty = self.mask_type();
        let op = Op::Select {
            flags: String::new(),
            cond: elinvar_ir::Typed::new(ty.clone(), mask),
            a: elinvar_ir::Typed::new(ty.clone(), cond),
            b: elinvar_ir::Typed::new(ty.clone(), Const::Zero),
        };
        self.b.value(ty, None, op).into()
    }

    /// Selects `a` where the mask is set and `b` elsewhere; vectors of a scalar type.
    pub fn blend(&mut self, mask: Operand, ty: &Type, a: Operand, b: Operand) -> Operand {
        let typed = |ty: &Type, o| elinvar_ir::Typed::new(ty.clone(), o);
        if let Type::Struct { fields, .. } = ty {
            return self.blend_fields(mask, ty, fields, a, b);
        }
        let wide = self.wide(ty);
        let op = Op::Select {
            flags: String::new(),
            cond: typed(&self.mask_type(), mask),
            a: typed(&wide, a),
            b: typed(&wide, b),
        };
        self.b.value(wide, None, op).into()
    }

    fn blend_fields(&mut self, mask: Operand, ty: &Type, fields: &[Type], a: Operand, b: Operand) -> Operand {
        let wide = self.wide(ty);
        let mut whole: Operand = Const::Poison.into();
        for (i, field) in fields.iter().enumerate() {
            let path = vec![i as u32];
            let part = |emit: &mut Self, from: &Operand| -> Operand {
                let agg = elinvar_ir::Typed::new(wide.clone(), from.clone());
                let op = Op::ExtractValue { agg, path: path.clone() };
                let ty = emit.wide(field);
                emit.b.value(ty, None, op).into()
            };
            let (x, y) = (part(self, &a), part(self, &b));
            let chosen = self.blend(mask.clone(), field, x, y);
            let value = elinvar_ir::Typed::new(self.wide(field), chosen);
            let agg = elinvar_ir::Typed::new(wide.clone(), whole);
            whole = self.b.value(wide.clone(), None, Op::InsertValue { agg, value, path }).into();
        }
        whole
    }
}
