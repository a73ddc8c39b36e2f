//! Interleaved accesses: groups of accesses whose lanes are constant differences apart. A group (*run*) becomes contiguous accesses and shuffles.
//!
//! With a constant stride over lanes, such as the components of a `float4` per thread, it is one access. With other differences, such as
//! the elements of a simdgroup matrix, it is one for each of its [`ContiguousRows`], if these are few.
//!
//! The addresses of a run's members differ by constants less than the stride, and no other memory access is between them: loads
//! are executed at the first member, stores at the last. Loads may have gaps, stores may not.

use std::collections::HashMap;

use elinvar_ir::{BlockId, Inst, Op, Operand, Type};

use crate::analysis::contiguous_rows::ContiguousRows;
use crate::analysis::lane_rows::{LaneRows, RowsOfValues};
use crate::analysis::linear_address::{self, Modulus, Root};
use crate::analysis::uniformity::Uniformity;
use crate::analysis::vector_shape::{Offsets, Shape};
use crate::kernel::Kernel;
use crate::support::ir::is_number;
use crate::support::vector_intrinsics::Elementwise;

/// Maximum stride in elements.
const WIDEST: i64 = 8;
/// Maximum stride of runs that consist mostly of gaps.
const WIDEST_WITH_GAPS: i64 = 4;
/// Maximum offset of a member from the root, in bytes.
const FARTHEST: u64 = 1 << 40;
/// Maximum size of a run over all lanes, in bytes.
const LONGEST: i64 = 512;
/// Differences of 32-bit indices are exact below this.
const FARTHEST_IN_ROW: u64 = 1 << 31;
/// Maximum distance of the members of a run without a stride, in elements.
const WIDEST_WITHOUT_STRIDE: i64 = 4;

/// How the addresses of the lanes differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lanes {
    /// A stride in bytes.
    Stride(i64),
    Rows(LaneRows),
}

/// Accesses of one type whose lanes differ by constants.
#[derive(Debug, PartialEq)]
pub(crate) struct InterleaveGroup {
    pub lanes: Lanes,
    /// Index of each member in the block, and its offset in bytes from the first in memory; in block order.
    pub members: Vec<(usize, i64)>,
}

impl InterleaveGroup {
    /// Offsets of the members in bytes.
    pub fn offsets(&self) -> Vec<i64> {
        self.members.iter().map(|member| member.1).collect()
    }
}

/// The runs of a kernel by the block and index where they are executed: the first of loads, the last of stores.
#[derive(Debug, Default)]
pub(crate) struct InterleaveGroups {
    groups: HashMap<(BlockId, usize), InterleaveGroup>,
    /// Position of the members.
    at: HashMap<(BlockId, usize), usize>,
}

impl InterleaveGroups {
    pub fn new(
        module: &elinvar_ir::Module,
        kernel: &Kernel,
        uniform: &Uniformity,
        rows: &RowsOfValues,
        lanes: u32,
    ) -> Self {
        let mut found = Self::default();
        if lanes == 1 {
            return found;
        }
        for block in kernel.function.block_ids() {
            let mut finder =
                Finder { module, kernel, uniform, rows, lanes, block, loads: Vec::new(), stores: None };
            for (index, inst) in kernel.function.block(block).insts.iter().enumerate() {
                finder.inst(index, inst, &mut found);
            }
            finder.end_loads(&mut found);
            finder.end_stores(&mut found);
        }
        found
    }

    /// The index at which an access is executed as part of a run, if it is.
    pub fn place(&self, block: BlockId, index: usize) -> Option<usize> {
        self.at.get(&(block, index)).copied()
    }

    pub fn group(&self, block: BlockId, place: usize) -> Option<&InterleaveGroup> {
        self.groups.get(&(block, place))
    }

    fn add(&mut self, block: BlockId, place: usize, group: InterleaveGroup) {
        self.at.extend(group.members.iter().map(|(index, _)| ((block, *index), place)));
        self.groups.insert((block, place), group);
    }
}

/// Members found so far, with their offsets from the root in bytes.
struct Open {
    root: Root,
    ty: Type,
    lanes: Lanes,
    members: Vec<(usize, i64)>,
}

impl Open {
    /// Size of a lane's accesses in bytes, with this member.
    fn span_with(&self, offset: i64, size: i64) -> i64 {
        let offsets = || self.members.iter().map(|m| m.1).chain([offset]);
        offsets().max().unwrap_or(0) + size - offsets().min().unwrap_or(0)
    }

    fn takes(&self, access: &Strided, ty: &Type) -> bool {
        let Strided { ref root, offset, ref lanes, size } = *access;
        let widest = match lanes {
            Lanes::Stride(step) => *step,
            Lanes::Rows(_) => WIDEST_WITHOUT_STRIDE * size,
        };
        self.root == *root
            && self.ty == *ty
            && self.lanes == *lanes
            && (offset - self.members[0].1) % size == 0
            && self.span_with(offset, size) <= widest
    }

    fn group(self) -> (InterleaveGroup, usize) {
        let first = self.members.iter().map(|m| m.1).min().unwrap_or(0);
        let members: Vec<(usize, i64)> = self.members.into_iter().map(|(i, o)| (i, o - first)).collect();
        let mut distinct: Vec<i64> = members.iter().map(|m| m.1).collect();
        distinct.sort_unstable();
        distinct.dedup();
        (InterleaveGroup { lanes: self.lanes, members }, distinct.len())
    }
}

/// An access with allowed offsets of the lanes.
struct Strided {
    root: Root,
    /// Offset from the root, and size of an element, in bytes.
    offset: i64,
    size: i64,
    lanes: Lanes,
}

impl Strided {
    fn open(self, index: usize, ty: &Type) -> Open {
        Open { root: self.root, ty: ty.clone(), lanes: self.lanes, members: vec![(index, self.offset)] }
    }
}

struct Finder<'a> {
    module: &'a elinvar_ir::Module,
    kernel: &'a Kernel,
    uniform: &'a Uniformity,
    rows: &'a RowsOfValues,
    lanes: u32,
    block: BlockId,
    loads: Vec<Open>,
    stores: Option<Open>,
}

impl Finder<'_> {
    fn inst(&mut self, index: usize, inst: &Inst, found: &mut InterleaveGroups) {
        match &inst.op {
            Op::Load { ty, ptr, volatile: false, atomic: None, .. } => {
                self.end_stores(found);
                let general = inst.result.is_some_and(|r| self.uniform.of(r).pattern().is_none());
                if general && let Some(access) = self.strided(&ptr.op, ty) {
                    match self.loads.iter_mut().find(|open| open.takes(&access, ty)) {
                        Some(open) => open.members.push((index, access.offset)),
                        None => self.loads.push(access.open(index, ty)),
                    }
                }
            }
            Op::Store { value, ptr, volatile: false, atomic: None, .. } => {
                self.end_loads(found);
                let Some(access) = self.strided(&ptr.op, &value.ty) else {
                    return self.end_stores(found);
                };
                let again = |open: &Open| open.members.iter().any(|m| m.1 == access.offset);
                match &mut self.stores {
                    Some(open) if open.takes(&access, &value.ty) && !again(open) => {
                        open.members.push((index, access.offset));
                    }
                    _ => {
                        self.end_stores(found);
                        self.stores = Some(access.open(index, &value.ty));
                    }
                }
            }
            Op::Call(call) if Elementwise::of(call).is_some() => {}
            Op::Load { .. }
            | Op::Store { .. }
            | Op::Call(_)
            | Op::AtomicRmw { .. }
            | Op::CmpXchg { .. }
            | Op::Fence(_) => {
                self.end_loads(found);
                self.end_stores(found);
            }
            _ => {}
        }
    }

    /// The access, if the offsets of its lanes are allowed.
    fn strided(&self, address: &Operand, ty: &Type) -> Option<Strided> {
        if !is_number(ty) {
            return None;
        }
        let size = ty.size_align(self.module).0 as i64;
        let lanes = match self.uniform.at(address, &Type::PTR, self.block).shape {
            Shape::Lanes(pattern) => match pattern.offsets {
                Offsets::Linear(step) => {
                    let fits = step % size == 0 && (2 * size..=WIDEST * size).contains(&step);
                    Lanes::Stride((fits && step * i64::from(self.lanes) <= LONGEST).then_some(step)?)
                }
                table @ Offsets::Table(_) => Lanes::Rows(LaneRows::whole(&table, self.lanes)),
            },
            _ => Lanes::Rows(self.rows.at(self.uniform, address, &Type::PTR, self.block)?),
        };
        if matches!(&lanes, Lanes::Rows(rows) if rows.span() >= FARTHEST_IN_ROW) {
            return None;
        }
        let definition = |value| self.uniform.definition(self.kernel, value).map(|inst| &inst.op);
        let decompose =
            |modulus| linear_address::decompose(self.module, definition, address.value()?, modulus);
        // All members are executed, hence within one object.
        let (root, offset) = decompose(Modulus::Bits32)
            .filter(|(root, _)| self.kernel.bound_of(&root.base) <= FARTHEST_IN_ROW)
            .or_else(|| decompose(Modulus::Bits64))?;
        if offset.unsigned_abs() >= FARTHEST {
            return None;
        }
        Some(Strided { root, offset, size, lanes })
    }

    fn end_loads(&mut self, found: &mut InterleaveGroups) {
        for open in std::mem::take(&mut self.loads) {
            let size = open.ty.size_align(self.module).0 as i64;
            let (group, members) = open.group();
            let is_worthwhile = match &group.lanes {
                Lanes::Stride(step) => {
                    let count = step / size;
                    count <= WIDEST_WITH_GAPS || members as i64 * 2 >= count
                }
                Lanes::Rows(rows) => ContiguousRows::of_loads(rows, &group.offsets(), size).is_some(),
            };
            if is_worthwhile {
                found.add(self.block, group.members[0].0, group);
            }
        }
    }

    fn end_stores(&mut self, found: &mut InterleaveGroups) {
        let Some(open) = self.stores.take() else { return };
        let size = open.ty.size_align(self.module).0 as i64;
        let (group, members) = open.group();
        let is_whole = match &group.lanes {
            Lanes::Stride(step) => members as i64 == step / size,
            Lanes::Rows(rows) => ContiguousRows::of_stores(rows, &group.offsets(), size).is_some(),
        };
        if is_whole {
            let last = group.members[group.members.len() - 1].0;
            found.add(self.block, last, group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lane_layout::Layout;

    /// The runs of a body's entry block: where each is done, and its members.
    fn groups(body: &str) -> Vec<(usize, InterleaveGroup)> {
        let text = format!(
            "declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            define void @__elinvar_entry(ptr %a, ptr %b) {{
              %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %w = zext i32 %t to i64
              %p = getelementptr [3 x float], ptr %a, i64 %w
              %p1 = getelementptr i8, ptr %p, i64 4
              %p2 = getelementptr [3 x float], ptr %p, i64 0, i64 2
              {body}
              ret void
            }}"
        );
        let module = elinvar_ir::Module::parse(&text).unwrap();
        let kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let layout = Layout::new([64, 1, 1], 8, false);
        let uniform =
            crate::analysis::Analyses::default().get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let rows = RowsOfValues::new(&module, &kernel, &uniform, 8);
        let found = InterleaveGroups::new(&module, &kernel, &uniform, &rows, 8);
        let mut all: Vec<_> = found.groups.into_iter().map(|((_, place), group)| (place, group)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all
    }

    fn group(place: usize, members: &[(usize, i64)]) -> (usize, InterleaveGroup) {
        (place, InterleaveGroup { lanes: Lanes::Stride(12), members: members.to_vec() })
    }

    #[test]
    fn loads_with_gaps_at_the_first() {
        let found = groups("%z = load float, ptr %p2 \n %s = fadd float %z, 1.0 \n %x = load float, ptr %p");
        assert_eq!(found, [group(4, &[(4, 8), (6, 0)])]);
    }

    #[test]
    fn whole_stores_at_the_last() {
        let found = groups("store float 1.0, ptr %p1 \n store float 2.0, ptr %p \n store float 3.0, ptr %p2");
        assert_eq!(found, [group(6, &[(4, 4), (5, 0), (6, 8)])]);
        assert_eq!(groups("store float 1.0, ptr %p \n store float 3.0, ptr %p2"), []);
    }

    #[test]
    fn other_accesses_end_a_run() {
        let found = groups("%x = load float, ptr %p \n store float 1.0, ptr %b \n %y = load float, ptr %p1");
        assert_eq!(found, [group(4, &[(4, 0)]), group(6, &[(6, 0)])]);
        let stores = "store float 1.0, ptr %p \n store float 2.0, ptr %p1";
        assert_eq!(groups(&format!("{stores} \n %x = load float, ptr %b \n store float 3.0, ptr %p2")), []);
    }
}
