//! Interleaved accesses: runs of accesses with a constant stride, as contiguous accesses and shuffles. In the uniform version
//! only; masked code accesses each lane separately.

use elinvar_ir::{Const, Inst, Op, Operand, Type, Typed};

use super::access::Access;
use super::{Emit, Forms};
use crate::analysis::interleaved_access::InterleaveGroup;

impl Emit<'_, '_> {
    /// Whether an access belongs to a run; emits the run if this is its position.
    pub fn in_interleave_group(&mut self, index: usize) -> bool {
        if self.mask.is_some() {
            return false;
        }
        let source = self.source;
        let Some(place) = source.interleave_groups.place(self.block, index) else { return false };
        if place == index
            && let Some(group) = source.interleave_groups.group(self.block, place)
        {
            let insts = &source.kernel.function.block(self.block).insts;
            match &insts[index].op {
                Op::Store { .. } => self.store_group(group, insts, index),
                _ => self.load_group(group, insts, index),
            }
        }
        true
    }

    fn load_group(&mut self, group: &InterleaveGroup, insts: &[Inst], index: usize) {
        let Op::Load { ty, ptr, .. } = &insts[index].op else { return };
        let access = self.access(ty, None);
        let per_lane = (group.step / access.size) as u32;
        let last = group.members.iter().map(|m| m.1 / access.size).max().unwrap_or(0) as u32;
        let row = Type::vector((self.lanes() - 1) * per_lane + last + 1, ty.clone());
        let rows: Vec<Operand> = (0..self.factor())
            .map(|part| {
                let at = self.group_start(group, index, ptr, part);
                let ptr = Typed::new(Type::PTR, at);
                let align = Some(self.group_align(group, insts, &access));
                let op = Op::Load { ty: row.clone(), ptr, align, volatile: false, atomic: None };
                self.b.value(row.clone(), None, op).into()
            })
            .collect();
        for (member, offset) in &group.members {
            let Some(result) = insts[*member].result else { continue };
            let first = (offset / access.size) as u32;
            let order: Vec<u32> = (0..self.lanes()).map(|lane| lane * per_lane + first).collect();
            let vectors = rows.iter().map(|all| self.shuffle(&row, all.clone(), None, &order)).collect();
            self.define(result, Forms { scalars: Vec::new(), vectors });
        }
    }

    fn store_group(&mut self, group: &InterleaveGroup, insts: &[Inst], index: usize) {
        let Op::Store { value: Typed { ty, .. }, ptr, .. } = &insts[index].op else { return };
        let access = self.access(ty, None);
        let align = Some(self.group_align(group, insts, &access));
        let mut members = group.members.clone();
        members.sort_unstable_by_key(|m| m.1);
        for part in 0..self.factor() {
            let mut vectors = Vec::new();
            for (member, _) in &members {
                if let Op::Store { value, .. } = &insts[*member].op {
                    vectors.push(self.vector(&value.op, ty, part));
                }
            }
            let (row, all) = self.interleaved(ty, vectors);
            let at = self.group_start(group, index, ptr, part);
            let (value, ptr) = (Typed::new(row, all), Typed::new(Type::PTR, at));
            self.b.effect(Op::Store { value, ptr, align, volatile: false, atomic: None });
        }
    }

    /// Start address of the run, from the address of the member at `index`.
    fn group_start(&mut self, group: &InterleaveGroup, index: usize, ptr: &Typed, part: usize) -> Operand {
        let at = self.scalar(&ptr.op, part);
        match group.members.iter().find(|m| m.0 == index) {
            Some((_, offset)) if *offset != 0 => {
                self.b.gep(Type::I8, at, Const::int(64, -i128::from(*offset))).into()
            }
            _ => at,
        }
    }

    /// Alignment of the run's first byte.
    fn group_align(&self, group: &InterleaveGroup, insts: &[Inst], access: &Access) -> u64 {
        let first = group.members.iter().find(|m| m.1 == 0).map(|m| &insts[m.0].op);
        match first {
            Some(Op::Load { align, .. } | Op::Store { align, .. }) => align.unwrap_or(access.align),
            _ => 1,
        }
    }

    /// Interleaves vectors: element 0 of each, then element 1 of each, and so on. Returns the result and its type.
    fn interleaved(&mut self, ty: &Type, vectors: Vec<Operand>) -> (Type, Operand) {
        let (lanes, count) = (self.lanes(), vectors.len() as u32);
        let mut level = vectors;
        let mut width = lanes;
        // Until two are left for the last shuffle.
        while level.len() > 2 {
            let from = Type::vector(width, ty.clone());
            let order: Vec<u32> = (0..2 * width).collect();
            level = level
                .chunks(2)
                .map(|pair| self.shuffle(&from, pair[0].clone(), pair.get(1).cloned(), &order))
                .collect();
            width *= 2;
        }
        let from = Type::vector(width, ty.clone());
        let order: Vec<u32> = (0..lanes * count).map(|i| i % count * lanes + i / count).collect();
        let all = self.shuffle(&from, level[0].clone(), level.get(1).cloned(), &order);
        (Type::vector(lanes * count, ty.clone()), all)
    }
}
