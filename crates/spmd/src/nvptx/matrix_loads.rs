//! Loads of matrix factors from shared memory by `ldmatrix`, in place of a load for each element and, for right factors, shuffles.
//!
//! With [permuted lanes](super::lane_permutation), the words that `ldmatrix` gives a lane are its factors of `mma` (PTX ISA, "Matrix
//! Fragments for mma.m16n8k8"). The lanes q to q + 7, for q of 0, 8, 16 and 24, give the addresses of a matrix's eight rows, of 16 bytes
//! each. The elements' own loads stay, and are dead unless they have other uses.
//!
//! Rows must be contiguous and aligned by 16 bytes, which [`LaneBits`] proves; else the factor is loaded as before. The loads and a
//! product that uses them are in one block, without other effects on memory between them: where the product's lanes are converged, the
//! load's are.

use std::collections::HashMap;

use elinvar_ir::{Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use super::lane_bits::{BITS, LaneBits};
use super::library::{Body, PREFIX};
use super::simdgroup;
use crate::analysis::linear_address::{self, Root};
use crate::intrinsic::GroupOp;
use crate::support::builder::call as call_of;

/// Bytes of a row of eight elements.
const ROW: i64 = 16;
/// The address space of shared memory.
const SHARED: &str = "ptr addrspace(3)";

/// A factor's place in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Left,
    Right,
}

/// A factor: its two elements, and its role.
pub(super) type Factor = ([ValueId; 2], Role);

/// Where the elements of a factor are, over the lanes of a warp.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows {
    /// Whether the word that a lane needs has elements of two rows of memory.
    transposed: bool,
    /// What each bit of a row's number adds to its address.
    row: [i64; 3],
    /// What each bit of a lane adds to the address of its first element.
    own: [i64; BITS],
}

/// A factor that can be loaded from `ready` on, before `end`.
struct Load {
    factor: Factor,
    rows: Rows,
    root: Root,
    address: Operand,
    offset: i64,
    ready: usize,
    end: usize,
}

/// Loads of a block, at an instruction's index.
pub(super) struct MatrixLoads {
    loads: Vec<(usize, Vec<Load>)>,
}

impl MatrixLoads {
    /// The loads of a block with these instructions, whose products have these factors.
    pub fn new(
        module: &Module,
        definitions: &HashMap<ValueId, Op>,
        bits: &LaneBits,
        insts: &[Inst],
        factors: impl Fn(&Inst) -> Option<[Typed; 4]>,
    ) -> Self {
        let places: HashMap<ValueId, usize> =
            insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.result?, at))).collect();
        let effects: Vec<usize> = (0..insts.len()).filter(|at| has_effect(&insts[*at])).collect();
        let mut found: Vec<Load> = Vec::new();
        for (at, inst) in insts.iter().enumerate() {
            let Some([a0, a1, b0, b1]) = factors(inst) else { continue };
            for (elements, role) in [([a0, a1], Role::Left), ([b0, b1], Role::Right)] {
                let [Some(first), Some(second)] = elements.each_ref().map(|element| element.op.value())
                else {
                    continue;
                };
                let factor = ([first, second], role);
                if found.iter().any(|load| load.factor == factor) {
                    continue;
                }
                let own = || {
                    let places = [*places.get(&first)?, *places.get(&second)?];
                    let (begin, ready) = (places[0].min(places[1]), places[0].max(places[1]) + 1);
                    let end = effects.iter().copied().find(|effect| *effect > begin).unwrap_or(at).min(at);
                    let pointers = places.map(|at| plain_load(&insts[at]));
                    let [first, second] = [pointers[0]?, pointers[1]?];
                    let (rows, (root, offset)) = rows(module, definitions, bits, role, [first, second])?;
                    let address = first.op.clone();
                    (ready <= end).then_some(Load { factor, rows, root, address, offset, ready, end })
                };
                found.extend(own());
            }
        }
        Self { loads: grouped(found) }
    }

    /// Emits the loads before the instruction with this index; their words.
    pub fn emit(
        &mut self,
        kernel: &mut Function,
        at: usize,
        out: &mut Vec<Inst>,
        mut need: impl FnMut(&str),
    ) -> Vec<(Factor, Typed)> {
        let mut words = Vec::new();
        for (_, loads) in self.loads.extract_if(.., |(place, _)| *place == at) {
            // The first of those with the same root stands for it.
            let base =
                |load: &Load| loads.iter().find(|other| other.root == load.root).unwrap_or(&loads[0]).offset;
            let address = |load: &Load| {
                let of = loads.iter().find(|other| other.root == load.root).unwrap_or(load);
                (Type::PTR, of.address.clone())
            };
            let rows = &loads[0].rows;
            let number = |value: i64| (Type::I32, Operand::int(32, value.into()));
            let mut args: Vec<_> = loads.iter().map(address).collect();
            args.extend(loads.iter().map(|load| number(load.offset - base(load))));
            args.extend(rows.row.iter().chain(&rows.own).map(|bytes| number(*bytes)));
            let (name, ty) = (name(loads.len(), rows.transposed), words_of(loads.len()));
            need(&name);
            let made = kernel.new_value(ty.clone(), None);
            let op = call_of(ty.clone(), &name, &args);
            out.push(Inst { result: Some(made), op, metadata: Vec::new() });
            for (element, load) in loads.iter().enumerate() {
                let word = kernel.new_value(Type::I32, None);
                let op = Op::ExtractValue { agg: Typed::new(ty.clone(), made), path: vec![element as u32] };
                out.push(Inst { result: Some(word), op, metadata: Vec::new() });
                words.push((load.factor, Typed::new(Type::I32, word)));
            }
        }
        words
    }
}

/// Combines up to four loads that may be at the same place.
fn grouped(mut loads: Vec<Load>) -> Vec<(usize, Vec<Load>)> {
    loads.sort_by_key(|load| load.ready);
    let mut groups: Vec<(usize, Vec<Load>)> = Vec::new();
    for load in loads {
        let fits = |(_, group): &&mut (usize, Vec<Load>)| {
            let end = group.iter().map(|load| load.end).min();
            group.len() < 4 && group[0].rows == load.rows && end.is_some_and(|end| load.ready <= end)
        };
        match groups.iter_mut().find(fits) {
            Some((at, group)) => {
                *at = load.ready;
                group.push(load);
            }
            None => groups.push((load.ready, vec![load])),
        }
    }
    // `ldmatrix` loads one, two or four.
    for at in 0..groups.len() {
        if let (place, [_, _, _]) = (groups[at].0, &groups[at].1[..]) {
            let third = groups[at].1.pop();
            groups.extend(third.map(|third| (place, vec![third])));
        }
    }
    groups
}

/// The address of a load that may be repeated.
fn plain_load(inst: &Inst) -> Option<&Typed> {
    match &inst.op {
        Op::Load { ty: Type::Half | Type::BFloat, ptr, volatile: false, atomic: None, .. } => Some(ptr),
        _ => None,
    }
}

/// Whether an instruction may write memory or wait for other threads.
fn has_effect(inst: &Inst) -> bool {
    match &inst.op {
        Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } | Op::Fence(_) => true,
        Op::Load { volatile, atomic, .. } => *volatile || atomic.is_some(),
        Op::Call(_) => {
            simdgroup::of(inst).is_none_or(|(call, _)| call.op != GroupOp::MatrixMultiplyAccumulate)
        }
        _ => false,
    }
}

/// The rows of a factor whose elements are at these addresses, and what the first address is.
fn rows(
    module: &Module,
    definitions: &HashMap<ValueId, Op>,
    bits: &LaneBits,
    role: Role,
    [first, second]: [&Typed; 2],
) -> Option<(Rows, (Root, i64))> {
    let sums = [bits.of(&first.op)?, bits.of(&second.op)?];
    let definition = |value| definitions.get(&value);
    let address = |pointer: &Typed| linear_address::decompose(module, definition, pointer.op.value()?);
    let (here, next) = (address(first)?, address(second)?);
    if here.0 != next.0 || sums[0].bits != sums[1].bits || !sums[0].shared {
        return None;
    }
    let distance = next.1.checked_sub(here.1)?;
    // A thread's index has the bits of a row's number at 1, 2 and 4, of a pair of columns at 0 and 3.
    let [c0, r0, r1, c1, r2] = sums[0].bits;
    let is_row = |bytes: &i64| bytes % ROW == 0 && i32::try_from(*bytes).is_ok();
    let is_aligned = 1 << sums[0].align.min(32) >= ROW;
    let (along_columns, along_rows) = ([distance, c0, c1] == [2, 4, 8], [r0, r1, r2] == [2, 4, 8]);
    let row = if along_columns { [r0, r1, r2] } else { [distance, c0, c1] };
    if !is_aligned || !along_columns && !along_rows || !row.iter().all(is_row) {
        return None;
    }
    let transposed = along_columns == (role == Role::Right);
    Some((Rows { transposed, row, own: [c0, c1, r0, r1, r2] }, here))
}

const FAMILY: &str = "matrix_load.";

fn name(count: usize, transposed: bool) -> String {
    format!("{PREFIX}{FAMILY}{count}{}", if transposed { ".trans" } else { "" })
}

fn words_of(count: usize) -> Type {
    Type::Struct { packed: false, fields: vec![Type::I32; count] }
}

/// Defines the function with this name. Parameters: an address for each matrix, of the lane's first element; an offset to add to it; what
/// the bits of a row's number add, and what the bits of the lane do. Returns a word for each matrix.
pub(super) fn define(name: &str, body: &mut Body) -> Option<()> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix(FAMILY)?;
    let (count, transposed) = rest.strip_suffix(".trans").map_or((rest, false), |count| (count, true));
    let count: usize = count.parse().ok().filter(|count| [1, 2, 4].contains(count))?;
    let params = |ty: &str, name: &str, count: usize| -> Vec<String> {
        (0..count).map(|at| format!("{ty} %{name}{at}")).collect()
    };
    let all = [("ptr", "p", count), ("i32", "k", count), ("i32", "row", 3), ("i32", "own", BITS)];
    let all: Vec<String> = all.into_iter().flat_map(|(ty, name, count)| params(ty, name, count)).collect();
    let ret = words_of(count).to_string();
    body.open(&ret, name, &all.join(", "), true);
    body.lane();
    for bit in 0..BITS {
        body.line(format!("%bit{bit}.word = and i32 %lane, {}", 1 << bit));
        body.line(format!("%bit{bit} = icmp ne i32 %bit{bit}.word, 0"));
    }
    // The distance from the lane's first element to the row whose address it gives.
    let mut distance = "0".to_owned();
    for (prefix, op, count) in [("row", "add", 3), ("own", "sub", BITS)] {
        for bit in 0..count {
            body.line(format!("%{prefix}{bit}.there = select i1 %bit{bit}, i32 %{prefix}{bit}, i32 0"));
            body.line(format!("%{prefix}{bit}.sum = {op} i32 {distance}, %{prefix}{bit}.there"));
            distance = format!("%{prefix}{bit}.sum");
        }
    }
    for at in 0..count {
        body.line(format!("%p{at}.shared = addrspacecast ptr %p{at} to {SHARED}"));
    }
    // The lane's matrix is its bits 3 and 4.
    let mut select = |ty: &str, name: &str, end: &str| {
        let of = |at: usize| format!("{ty} %{name}{at}{end}");
        for pair in (0..count).step_by(2).filter(|_| count > 1) {
            body.line(format!("%{name}.{pair} = select i1 %bit3, {}, {}", of(pair + 1), of(pair)));
        }
        match count {
            1 => format!("%{name}0{end}"),
            2 => format!("%{name}.0"),
            _ => {
                body.line(format!("%{name}.all = select i1 %bit4, {ty} %{name}.2, {ty} %{name}.0"));
                format!("%{name}.all")
            }
        }
    };
    let (base, offset) = (select(SHARED, "p", ".shared"), select("i32", "k", ""));
    body.line(format!("%bytes = add i32 {distance}, {offset}"));
    body.line(format!("%address = getelementptr i8, {SHARED} {base}, i32 %bytes"));
    let (suffix, several) = (if transposed { ".trans" } else { "" }, count > 1);
    let result = if several { ret.clone() } else { "i32".to_owned() };
    body.line(format!(
        "%words = call {result} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{suffix}.b16.p3({SHARED} %address)"
    ));
    if several {
        body.close(&ret, "%words");
    } else {
        body.line(format!("%one = insertvalue {ret} poison, i32 %words, 0"));
        body.close(&ret, "%one");
    }
    Some(())
}
