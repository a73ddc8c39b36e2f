//! Interleaved accesses: runs of accesses whose lanes are constant differences apart, as contiguous accesses and shuffles. In
//! the uniform version only; masked code accesses each lane separately.

use elinvar_ir::{Const, Inst, Op, Operand, Type, Typed};

use super::access::Access;
use super::{Emit, Forms};
use crate::analysis::contiguous_rows::{ContiguousRows, Row};
use crate::analysis::interleaved_access::{InterleaveGroup, Lanes};
use crate::analysis::lane_rows::LaneRows;
use crate::support::builder::i32_const;
use crate::vector::gather_scatter::memory_type;

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
            match (&insts[index].op, &group.lanes) {
                (Op::Store { .. }, Lanes::Stride(_)) => self.store_group(group, insts, index),
                (Op::Store { .. }, Lanes::Rows(lanes)) => self.store_rows(group, lanes, insts, index),
                (_, Lanes::Stride(step)) => self.load_group(group, *step, insts, index),
                (_, Lanes::Rows(lanes)) => self.load_rows(group, lanes, insts, index),
            }
        }
        true
    }

    fn load_group(&mut self, group: &InterleaveGroup, step: i64, insts: &[Inst], index: usize) {
        let Op::Load { ty, ptr, .. } = &insts[index].op else { return };
        let access = self.access(ty, None);
        let per_lane = (step / access.size) as u32;
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

    /// A load for each row, and a shuffle of all of them for each member.
    fn load_rows(&mut self, group: &InterleaveGroup, lanes: &LaneRows, insts: &[Inst], index: usize) {
        let Op::Load { ty, ptr, .. } = &insts[index].op else { return };
        let access = self.access(ty, None);
        let Some(rows) = ContiguousRows::of_loads(lanes, &group.offsets(), access.size) else { return };
        let element = memory_type(ty);
        let align = Some(self.group_align(group, insts, &access).min(access.size as u64));
        let mut parts = Vec::new();
        for part in 0..self.factor() {
            let starts = self.row_starts(&rows, group, &access, (index, ptr), part);
            let mut level = Vec::new();
            for (Row { length, .. }, at) in rows.rows.iter().zip(starts) {
                let row = Type::vector(*length as u32, element.clone());
                let ptr = Typed::new(Type::PTR, at);
                let op = Op::Load { ty: row.clone(), ptr, align, volatile: false, atomic: None };
                let loaded = self.b.value(row.clone(), None, op).into();
                level.push(match *length < rows.width {
                    // Of a single vector, index `length` is an element of the second, which is poison.
                    true => {
                        let order: Vec<u32> = (0..rows.width).map(|i| i.min(*length) as u32).collect();
                        self.shuffle(&row, loaded, None, &order)
                    }
                    false => loaded,
                });
            }
            parts.push(self.concatenated(element, rows.width as u32, level));
        }
        for (member, offset) in &group.members {
            let Some(result) = insts[*member].result else { continue };
            let of_lane = |lane| rows.index(lanes, lane, *offset, access.size) as u32;
            let order: Vec<u32> = (0..lanes.len()).map(of_lane).collect();
            let mut vectors = Vec::new();
            for (row, all) in &parts {
                let lanes = self.shuffle(row, all.clone(), None, &order);
                vectors.push(self.of_memory(lanes, ty));
            }
            self.define(result, Forms { scalars: Vec::new(), vectors });
        }
    }

    /// A store for each row, of a shuffle of all members.
    fn store_rows(&mut self, group: &InterleaveGroup, lanes: &LaneRows, insts: &[Inst], index: usize) {
        let Op::Store { value: Typed { ty, .. }, ptr, .. } = &insts[index].op else { return };
        let access = self.access(ty, None);
        let Some(rows) = ContiguousRows::of_stores(lanes, &group.offsets(), access.size) else { return };
        let element = memory_type(ty);
        let align = Some(self.group_align(group, insts, &access).min(access.size as u64));
        // Where each element of the rows comes from.
        let mut from = vec![0; rows.rows.len() * rows.width];
        for (number, (_, offset)) in group.members.iter().enumerate() {
            for lane in 0..lanes.len() {
                from[rows.index(lanes, lane, *offset, access.size)] = (number * lanes.len() + lane) as u32;
            }
        }
        for part in 0..self.factor() {
            let mut members = Vec::new();
            for (member, _) in &group.members {
                if let Op::Store { value, .. } = &insts[*member].op {
                    let vector = self.vector(&value.op, ty, part);
                    members.push(self.for_memory(vector, ty));
                }
            }
            let (all, vector) = self.concatenated(element, self.lanes(), members);
            let starts = self.row_starts(&rows, group, &access, (index, ptr), part);
            for (number, (Row { length, .. }, at)) in rows.rows.iter().zip(starts).enumerate() {
                let order = &from[number * rows.width..][..*length];
                let value = self.shuffle(&all, vector.clone(), None, order);
                let value = Typed::new(Type::vector(*length as u32, element.clone()), value);
                let ptr = Typed::new(Type::PTR, at);
                self.b.effect(Op::Store { value, ptr, align, volatile: false, atomic: None });
            }
        }
    }

    /// Addresses of the rows, from those of the member at an index.
    fn row_starts(
        &mut self,
        rows: &ContiguousRows,
        group: &InterleaveGroup,
        access: &Access,
        (index, ptr): (usize, &Typed),
        part: usize,
    ) -> Vec<Operand> {
        let before = group.members.iter().find(|member| member.0 == index).map_or(0, |member| member.1);
        let has_pattern = self.known(&ptr.op, &ptr.ty).pattern().is_some();
        let vector = (!has_pattern).then(|| self.vector(&ptr.op, &ptr.ty, part));
        let mut starts = Vec::new();
        for Row { lane, first, .. } in &rows.rows {
            let at = match &vector {
                Some(vector) => self.extract(vector.clone(), &ptr.ty, i32_const(*lane).into()),
                None => self.scalar(&ptr.op, part),
            };
            let offset = Const::int(64, i128::from(first * access.size - before));
            starts.push(self.b.gep(Type::I8, at, offset).into());
        }
        starts
    }

    /// Vectors of `width` elements one after the other, and poison behind them up to a power of two. Returns the type and the result.
    fn concatenated(&mut self, element: &Type, width: u32, vectors: Vec<Operand>) -> (Type, Operand) {
        let (ty, mut vectors) = self.joined(element, width, vectors, 1);
        (ty, vectors.pop().unwrap_or(Const::Poison.into()))
    }

    /// Joins pairs of vectors of `width` elements until at most `most` are left. Returns their type, and them.
    fn joined(
        &mut self,
        element: &Type,
        mut width: u32,
        mut vectors: Vec<Operand>,
        most: usize,
    ) -> (Type, Vec<Operand>) {
        while vectors.len() > most {
            let from = Type::vector(width, element.clone());
            let order: Vec<u32> = (0..2 * width).collect();
            vectors = vectors
                .chunks(2)
                .map(|pair| self.shuffle(&from, pair[0].clone(), pair.get(1).cloned(), &order))
                .collect();
            width *= 2;
        }
        (Type::vector(width, element.clone()), vectors)
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
        // Two are left for the last shuffle.
        let (from, level) = self.joined(ty, lanes, vectors, 2);
        let order: Vec<u32> = (0..lanes * count).map(|i| i % count * lanes + i / count).collect();
        let all = self.shuffle(&from, level[0].clone(), level.get(1).cloned(), &order);
        (Type::vector(lanes * count, ty.clone()), all)
    }
}
