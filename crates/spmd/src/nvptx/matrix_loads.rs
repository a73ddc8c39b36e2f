//! Loads of matrix factors from shared memory, in place of loads of each element and shuffles.
//!
//! With [permuted lanes](super::lane_permutation), the words that `ldmatrix` gives a lane are its factors of `mma` (PTX ISA, "Matrix
//! Fragments for mma.m16n8k8"). The lanes q to q + 7, for q of 0, 8, 16 and 24, give the addresses of a matrix's eight rows, of 16 bytes
//! each. Without, factors are of `float`, and each lane loads the row or the two columns that it multiplies: their elements are in the
//! registers of other lanes, but also in memory, from which many are loaded at a time.
//!
//! Rows must be contiguous and aligned, which [`LaneBits`] proves; else the factor is loaded as before. The elements' own loads stay, and
//! are dead unless they have other uses. The loads and a product that uses them are in one block, without other effects on memory between
//! them: where the product's lanes are converged, those of `ldmatrix` are.

use std::collections::HashMap;

use elinvar_ir::{Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use super::lane_bits::{BITS, LaneBits};
use super::library::{Body, PREFIX};
use super::matrix_product::{self, Step};
use super::simdgroup;
use crate::analysis::linear_address::{self, Root};
use crate::intrinsic::GroupOp;
use crate::support::builder::call as call_of;

/// Widest load of a lane, and a row of `ldmatrix`, in bytes.
const ROW: i64 = 16;
/// Bytes of two floats.
const PAIR: i64 = 8;
/// The address space of shared memory.
const SHARED: &str = "ptr addrspace(3)";

/// A factor's place in a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Left,
    Right,
}

impl Role {
    /// The step of a product of floats that gathers the factor.
    fn step(self) -> Step {
        match self {
            Self::Left => Step::Left,
            Self::Right => Step::Right,
        }
    }
}

/// A factor: its two elements, and its role.
pub(super) type Factor = ([ValueId; 2], Role);

/// Where the elements of a factor are, over the lanes of a warp.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows {
    /// With permuted lanes: whether the word that a lane needs has elements of two rows of memory. Of floats: whether rows of memory are
    /// columns of the factor.
    transposed: bool,
    /// What each bit of the number of a row of memory adds to its address.
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
    permuted: bool,
}

impl MatrixLoads {
    /// The loads of a block with these instructions, whose products have these factors.
    pub fn new(
        module: &Module,
        definitions: &HashMap<ValueId, Op>,
        bits: &LaneBits,
        insts: &[Inst],
        permuted: bool,
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
                    let pointers = places.map(|at| plain_load(&insts[at], permuted));
                    let [first, second] = [pointers[0]?, pointers[1]?];
                    let (rows, (root, offset)) =
                        rows(module, definitions, bits, (role, permuted), [first, second])?;
                    let address = first.op.clone();
                    (ready <= end).then_some(Load { factor, rows, root, address, offset, ready, end })
                };
                found.extend(own());
            }
        }
        let one = |load: Load| (load.ready, vec![load]);
        let loads = if permuted { grouped(found) } else { found.into_iter().map(one).collect() };
        Self { loads, permuted }
    }

    /// Emits the loads before the instruction with this index; the factors as the products take them.
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
            let role = (!self.permuted).then_some(loads[0].factor.1);
            let ty = match role {
                Some(role) => role.step().result(&Type::Float),
                None => words_of(loads.len()),
            };
            let name = name(role, loads.len(), rows.transposed);
            need(&name);
            let made = kernel.new_value(ty.clone(), None);
            let op = call_of(ty.clone(), &name, &args);
            out.push(Inst { result: Some(made), op, metadata: Vec::new() });
            if role.is_some() {
                words.push((loads[0].factor, Typed::new(ty, made)));
                continue;
            }
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
fn plain_load(inst: &Inst, permuted: bool) -> Option<&Typed> {
    match &inst.op {
        Op::Load { ty, ptr, volatile: false, atomic: None, .. } => {
            let fits = if permuted { matches!(ty, Type::Half | Type::BFloat) } else { *ty == Type::Float };
            fits.then_some(ptr)
        }
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
    (role, permuted): (Role, bool),
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
    let size = if permuted { 2 } else { 4 };
    let steps = [size, 2 * size, 4 * size];
    let (along_columns, along_rows) = ([distance, c0, c1] == steps, [r0, r1, r2] == steps);
    let align = match (permuted, role, along_columns, along_rows) {
        (true, _, true, _)
        | (true, _, _, true)
        | (_, Role::Left, true, _)
        | (_, Role::Right, false, true) => ROW,
        // A lane's two columns are in one word of each row.
        (_, Role::Right, true, _) => PAIR,
        _ => return None,
    };
    let is_row = |bytes: &i64| bytes % align == 0 && i32::try_from(*bytes).is_ok();
    let row = if along_columns { [r0, r1, r2] } else { [distance, c0, c1] };
    if 1 << sums[0].align.min(32) < align || !row.iter().all(is_row) {
        return None;
    }
    let rows = match permuted {
        true => Rows { transposed: along_columns == (role == Role::Right), row, own: [c0, c1, r0, r1, r2] },
        false => Rows { transposed: !along_columns, row, own: sums[0].bits },
    };
    Some((rows, here))
}

const FAMILY: &str = "matrix_load.";

fn name(role: Option<Role>, count: usize, transposed: bool) -> String {
    let what = role.map_or_else(|| count.to_string(), |role| format!("{role:?}"));
    format!("{PREFIX}{FAMILY}{what}{}", if transposed { ".trans" } else { "" })
}

fn words_of(count: usize) -> Type {
    Type::Struct { packed: false, fields: vec![Type::I32; count] }
}

/// Defines the function with this name. Parameters: an address for each matrix, of the lane's first element; an offset to add to it; what
/// the bits of a row's number add, and what the bits of the lane do. Returns the factor of each matrix.
pub(super) fn define(name: &str, body: &mut Body) -> Option<()> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix(FAMILY)?;
    let (what, transposed) = rest.strip_suffix(".trans").map_or((rest, false), |what| (what, true));
    let role = [Role::Left, Role::Right].into_iter().find(|role| what == format!("{role:?}"));
    let count =
        if role.is_some() { 1 } else { what.parse().ok().filter(|count| [1, 2, 4].contains(count))? };
    let params = |ty: &str, name: &str, count: usize| -> Vec<String> {
        (0..count).map(|at| format!("{ty} %{name}{at}")).collect()
    };
    let all = [("ptr", "p", count), ("i32", "k", count), ("i32", "row", 3), ("i32", "own", BITS)];
    let all: Vec<String> = all.into_iter().flat_map(|(ty, name, count)| params(ty, name, count)).collect();
    let ret = role.map_or_else(|| words_of(count), |role| role.step().result(&Type::Float)).to_string();
    body.open(&ret, name, &all.join(", "), true);
    body.lane();
    for bit in 0..BITS {
        body.line(format!("%bit{bit}.word = and i32 %lane, {}", 1 << bit));
        body.line(format!("%bit{bit} = icmp ne i32 %bit{bit}.word, 0"));
    }
    match role {
        Some(role) => floats(body, &ret, role, transposed),
        None => words(body, &ret, count, transposed),
    }
    Some(())
}

/// The bits of a thread's index that are its row's number, and those that are its pair of columns.
const ROW_BITS: [usize; 3] = [1, 2, 4];
const COLUMN_BITS: [usize; 2] = [0, 3];

/// The row, or the two columns, that a lane multiplies.
fn floats(body: &mut Body, ret: &str, role: Role, transposed: bool) {
    let bits: &[usize] = if role == Role::Left { &COLUMN_BITS } else { &ROW_BITS };
    let mut begin = "0".to_owned();
    for bit in bits {
        body.line(format!("%own{bit}.there = select i1 %bit{bit}, i32 %own{bit}, i32 0"));
        body.line(format!("%begin{bit} = sub i32 {begin}, %own{bit}.there"));
        begin = format!("%begin{bit}");
    }
    body.line(format!("%p.shared = addrspacecast ptr %p0 to {SHARED}"));
    body.line(format!("%base = getelementptr i8, {SHARED} %p.shared, i32 {begin}"));
    let load = |body: &mut Body, name: &str, width: usize, address: &str| {
        let align = 4 * width;
        body.line(format!("{name} = load <{width} x float>, {SHARED} {address}, align {align}"));
    };
    let take = |body: &mut Body, to: usize, from: &str, width: usize, at: usize| {
        body.line(format!("%x{to} = extractelement <{width} x float> {from}, i32 {at}"));
    };
    if role == Role::Left || transposed {
        // Eight elements of a row of memory; of a right factor, of two rows.
        for row in 0..if role == Role::Left { 1 } else { 2 } {
            for half in 0..2 {
                let (bytes, name) = (format!("%bytes{row}.{half}"), format!("%word{row}.{half}"));
                let distance = if row == 0 { "0" } else { "%row0" };
                body.line(format!("{bytes} = add i32 {distance}, {}", half * ROW));
                body.line(format!("{name}.at = getelementptr i8, {SHARED} %base, i32 {bytes}"));
                load(body, &name, 4, &format!("{name}.at"));
                (0..4).for_each(|at| take(body, row * 8 + half as usize * 4 + at, &name, 4, at));
            }
        }
    } else {
        for k in 0..8 {
            let mut bytes = "0".to_owned();
            for bit in (0..3).filter(|bit| k >> bit & 1 == 1) {
                body.line(format!("%bytes{k}.{bit} = add i32 {bytes}, %row{bit}"));
                bytes = format!("%bytes{k}.{bit}");
            }
            body.line(format!("%word{k}.at = getelementptr i8, {SHARED} %base, i32 {bytes}"));
            load(body, &format!("%word{k}"), 2, &format!("%word{k}.at"));
            (0..2).for_each(|at| take(body, at * 8 + k, &format!("%word{k}"), 2, at));
        }
    }
    matrix_product::give(body, ret, if role == Role::Left { 8 } else { 16 });
}

/// Words of up to four matrices, by `ldmatrix`.
fn words(body: &mut Body, ret: &str, count: usize, transposed: bool) {
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
    let result = if several { ret } else { "i32" };
    body.line(format!(
        "%words = call {result} @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{suffix}.b16.p3({SHARED} %address)"
    ));
    if several {
        body.close(ret, "%words");
    } else {
        body.line(format!("%one = insertvalue {ret} poison, i32 %words, 0"));
        body.close(ret, "%one");
    }
}
