//! Masked accesses of threadgroup memory whose active lanes are the first ones, as in the last rounds of a tree reduction.
//!
//! Each round loads what the previous one has stored. A masked load overlaps the narrower store of the active lanes, or is at an offset
//! from a wider one, so store-to-load forwarding fails. If exactly the first 1, 2, 4, … lanes are active, the access is therefore one of
//! that width, which is within the previous round's store. Other masks use the masked access.

use elinvar_ir::{BlockId, Const, Op, Operand, Term, Type, Typed};

use super::Emit;
use super::access::Access;
use crate::support::builder::i32_const;

impl Emit<'_, '_> {
    /// Whether an access is dispatched by its mask.
    fn is_prefix_access(&self, access: &Access, ptr: &Typed) -> bool {
        let is_scalar = matches!(access.ty, Type::Int(8 | 16 | 32 | 64) | Type::Half | Type::Float);
        self.has_prefix_masks && self.mask.is_some() && is_scalar && self.source.is_threadgroup(&ptr.op)
    }

    /// Loads a contiguous row.
    pub(super) fn load_contiguous(
        &mut self,
        access: &Access,
        ptr: &Typed,
        at: Operand,
        part: usize,
    ) -> Operand {
        if !self.is_prefix_access(access, ptr) {
            return self.load_row(access, at, part);
        }
        let wide = self.wide(&access.ty);
        let mut incoming = Vec::new();
        let done = self.by_prefix(part, |emit, width| {
            let loaded = match width {
                Some(width) => emit.load_prefix(access, at.clone(), width),
                None => emit.load_row(access, at.clone(), part),
            };
            incoming.push((loaded, emit.b.at));
        });
        self.b.at = done;
        self.b.value(wide.clone(), None, Op::Phi { flags: String::new(), ty: wide, incoming }).into()
    }

    /// Stores a contiguous row.
    pub(super) fn store_contiguous(
        &mut self,
        access: &Access,
        ptr: &Typed,
        vector: Operand,
        at: Operand,
        part: usize,
    ) {
        if !self.is_prefix_access(access, ptr) {
            return self.store_row(access, vector, at, part);
        }
        let done = self.by_prefix(part, |emit, width| match width {
            Some(width) => emit.store_prefix(access, vector.clone(), at.clone(), width),
            None => emit.store_row(access, vector.clone(), at.clone(), part),
        });
        self.b.at = done;
    }

    /// Emits an access for each number of first lanes that may be active, a power of two, and for other masks. Returns the block behind
    /// them.
    fn by_prefix(&mut self, part: usize, mut access: impl FnMut(&mut Self, Option<u32>)) -> BlockId {
        let mask = self.part_mask(part);
        let (value, ty) = (self.bits(mask), Type::Int(self.lanes()));
        let (from, done) = (self.b.at, self.b.f.new_block(None));
        let widths = (0..self.lanes().ilog2()).map(|k| Some(1 << k));
        let mut blocks: Vec<(Option<u32>, BlockId)> =
            widths.chain([None]).map(|width| (width, self.b.f.new_block(None))).collect();
        for (width, block) in &blocks {
            self.b.at = *block;
            access(self, *width);
            self.b.br(done);
        }
        let default = blocks.pop().map_or(done, |(_, block)| block);
        let lanes = self.lanes();
        let cases = blocks
            .into_iter()
            .filter_map(|(width, block)| Some((Const::int(lanes, (1_i128 << width?) - 1), block)));
        let cases = cases.collect();
        self.b.at = from;
        self.b.end(Term::Switch { value: Typed::new(ty, value), default, cases });
        done
    }

    /// The first `width` lanes, and zeros.
    fn load_prefix(&mut self, access: &Access, at: Operand, width: u32) -> Operand {
        if width == 1 {
            let one = self.b.load_aligned(access.ty.clone(), at, access.align);
            return self.insert(Const::Zero.into(), &access.ty, one.into(), i32_const(0).into());
        }
        let narrow = Type::vector(width, access.ty.clone());
        let loaded = self.b.load_aligned(narrow.clone(), at, access.align);
        let order: Vec<u32> = (0..self.lanes()).map(|lane| lane.min(width)).collect();
        self.shuffle(&narrow, loaded.into(), Some(Const::Zero.into()), &order)
    }

    fn store_prefix(&mut self, access: &Access, vector: Operand, at: Operand, width: u32) {
        let (ty, value) = match width {
            1 => (access.ty.clone(), self.extract(vector, &access.ty, i32_const(0).into())),
            _ => {
                let order: Vec<u32> = (0..width).collect();
                let first = self.shuffle(&self.wide(&access.ty), vector, None, &order);
                (Type::vector(width, access.ty.clone()), first)
            }
        };
        self.b.store_aligned(ty, value, at, access.align);
    }
}
