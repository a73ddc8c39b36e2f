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

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use super::lane_bits::{BITS, LaneBits};
use super::library::{Body, PREFIX};
use super::matrix_product::{self, Step};
use super::simdgroup;
use crate::analysis::linear_address::{self, Modulus, Root};
use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

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

/// A factor that can be loaded before the instruction `ready`.
struct Load {
    factor: Factor,
    rows: Rows,
    root: Root,
    address: Operand,
    offset: i64,
    ready: usize,
}

/// Loads of a block.
pub(super) struct MatrixLoads {
    loads: Vec<Load>,
    permuted: bool,
    /// Loads of words that have been emitted, with the results of their calls and the words.
    words: Vec<Word>,
}

struct Word {
    load: Load,
    call: ValueId,
    word: ValueId,
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
                    (ready <= end).then_some(Load { factor, rows, root, address, offset, ready })
                };
                found.extend(own());
            }
        }
        Self { loads: found, permuted, words: Vec::new() }
    }

    /// Emits the loads before the instruction with this index; the factors as the products take them.
    pub fn emit(
        &mut self,
        kernel: &mut Function,
        at: usize,
        out: &mut Vec<Inst>,
        mut need: impl FnMut(&str),
    ) -> Vec<(Factor, Typed)> {
        let mut factors = Vec::new();
        for load in self.loads.extract_if(.., |load| load.ready == at) {
            let role = (!self.permuted).then_some(load.factor.1);
            let call = call_of_loads(kernel, role, &[&load], &mut need);
            let made = call.result;
            out.push(call);
            let Some(made) = made else { continue };
            if let Some(role) = role {
                factors.push((load.factor, Typed::new(role.step().result(&Type::Float), made)));
                continue;
            }
            let word = kernel.new_value(Type::I32, None);
            out.push(word_of(word, made, (0, 1)));
            factors.push((load.factor, Typed::new(Type::I32, word)));
            self.words.push(Word { load, call: made, word });
        }
        factors
    }

    /// Combines emitted loads of words, up to four, such that the words of an operand of `mma`, which are in consecutive registers, are
    /// loaded together.
    pub fn combine(self, kernel: &mut Function, block: BlockId, mut need: impl FnMut(&str)) {
        if self.words.is_empty() {
            return;
        }
        let insts = std::mem::take(&mut kernel.block_mut(block).insts);
        let groups = Groups::new(&self.words, &insts).all;
        // By the calls' results: what becomes of them.
        let mut behind: HashMap<ValueId, Vec<Inst>> = HashMap::new();
        let mut dropped: HashSet<ValueId> = HashSet::new();
        for Group { members, last } in groups.iter().filter(|group| group.members.len() > 1) {
            let words: Vec<&Word> = members.iter().map(|member| &self.words[*member]).collect();
            let loads: Vec<&Load> = words.iter().map(|word| &word.load).collect();
            let call = call_of_loads(kernel, None, &loads, &mut need);
            let Some(made) = call.result else { continue };
            let own = words.iter().enumerate();
            let own = own.map(|(at, word)| word_of(word.word, made, (at, words.len())));
            behind.insert(self.words[*last].call, std::iter::once(call).chain(own).collect());
            dropped.extend(words.iter().flat_map(|word| [word.call, word.word]));
        }
        let all = insts.into_iter().flat_map(|inst| {
            let result = inst.result;
            let more = result.and_then(|result| behind.remove(&result)).unwrap_or_default();
            let kept = result.is_none_or(|result| !dropped.contains(&result));
            kept.then_some(inst).into_iter().chain(more)
        });
        kernel.block_mut(block).insts = all.collect();
    }
}

/// Loads of words that become one, in the order of its words.
struct Group {
    members: Vec<usize>,
    /// The last of their calls, in whose place the load is.
    last: usize,
}

struct Groups<'w> {
    words: &'w [Word],
    /// Positions of the calls, and those before which the loads have to be.
    places: Vec<(usize, usize)>,
    taken: Vec<bool>,
    all: Vec<Group>,
}

impl<'w> Groups<'w> {
    fn new(words: &'w [Word], insts: &[Inst]) -> Self {
        let at: HashMap<ValueId, usize> =
            insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.result?, at))).collect();
        let by_word: HashMap<ValueId, usize> =
            words.iter().enumerate().map(|(index, word)| (word.word, index)).collect();
        let mut first_use = vec![insts.len(); words.len()];
        for (at, inst) in insts.iter().enumerate().rev() {
            for value in inst.op.operands().into_iter().filter_map(Operand::value) {
                if let Some(word) = by_word.get(&value) {
                    first_use[*word] = at;
                }
            }
        }
        let effects: Vec<usize> = (0..insts.len()).filter(|at| has_effect(&insts[*at])).collect();
        let places = words.iter().zip(first_use).map(|(word, first_use)| {
            let begin = at.get(&word.call).copied().unwrap_or(insts.len());
            let effect = effects.iter().copied().find(|effect| *effect > begin).unwrap_or(insts.len());
            (begin, first_use.min(effect))
        });
        let places = places.collect();
        let mut groups = Self { words, places, taken: vec![false; words.len()], all: Vec::new() };
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        for inst in insts {
            let Op::Call(call) = &inst.op else { continue };
            let Some((Step::Tiles { rows, depth }, _)) = callee_name(call).and_then(Step::parse) else {
                continue;
            };
            let operands = call.args.iter().take((rows + 1) * depth);
            let operands: Vec<Option<usize>> =
                operands.map(|arg| by_word.get(&arg.op.value()?).copied()).collect();
            let (left, right) = operands.split_at(rows * depth);
            for operand in [left, right] {
                let Some(members) = operand.iter().copied().collect::<Option<Vec<usize>>>() else { continue };
                match members[..] {
                    [_, _, _, _] => groups.add(&members),
                    [a, b] if !pairs.contains(&[a, b]) => pairs.push([a, b]),
                    _ => {}
                }
            }
        }
        for (index, [a, b]) in pairs.iter().enumerate() {
            let others = pairs[index + 1..].iter();
            let fits = others.map(|[c, d]| [*a, *b, *c, *d]).find(|four| groups.last(four).is_some());
            groups.add(fits.as_ref().map_or(&[*a, *b][..], |four| &four[..]));
        }
        // The others in their order.
        let rest: Vec<usize> = (0..words.len()).filter(|word| !groups.taken[*word]).collect();
        for (index, first) in rest.iter().enumerate() {
            let mut members = vec![*first];
            for next in &rest[index + 1..] {
                let more = [&members[..], &[*next]].concat();
                if members.len() < 4 && groups.last(&more).is_some() {
                    members = more;
                }
            }
            // `ldmatrix` loads one, two or four.
            members.truncate(if members.len() == 3 { 2 } else { members.len() });
            groups.add(&members);
        }
        groups
    }

    /// The last member of what can be a group.
    fn last(&self, members: &[usize]) -> Option<usize> {
        let last = *members.iter().max_by_key(|member| self.places[**member].0)?;
        let place = self.places[last].0;
        let rows = &self.words[members[0]].load.rows;
        let fits = |member: &usize| {
            !self.taken[*member] && self.words[*member].load.rows == *rows && place < self.places[*member].1
        };
        let distinct = (1..members.len()).all(|at| !members[..at].contains(&members[at]));
        (distinct && members.iter().all(fits)).then_some(last)
    }

    fn add(&mut self, members: &[usize]) {
        if let Some(last) = self.last(members) {
            members.iter().for_each(|member| self.taken[*member] = true);
            self.all.push(Group { members: members.to_vec(), last });
        }
    }
}

/// The call that loads these matrices: of a role, one of floats.
fn call_of_loads(
    kernel: &mut Function,
    role: Option<Role>,
    loads: &[&Load],
    need: &mut impl FnMut(&str),
) -> Inst {
    // The first of those with the same root stands for it.
    let first = |load: &Load| *loads.iter().find(|other| other.root == load.root).unwrap_or(&loads[0]);
    let rows = &loads[0].rows;
    let number = |value: i64| (Type::I32, Operand::int(32, value.into()));
    let mut args: Vec<_> = loads.iter().map(|load| (Type::PTR, first(load).address.clone())).collect();
    args.extend(loads.iter().map(|load| number(load.offset - first(load).offset)));
    args.extend(rows.row.iter().chain(&rows.own).map(|bytes| number(*bytes)));
    let ty = match role {
        Some(role) => role.step().result(&Type::Float),
        None => words_of(loads.len()),
    };
    let name = name(role, loads.len(), rows.transposed);
    need(&name);
    let made = kernel.new_value(ty.clone(), None);
    Inst { result: Some(made), op: call_of(ty, &name, &args), metadata: Vec::new() }
}

/// Takes a word of several from a call's result.
fn word_of(word: ValueId, call: ValueId, (at, count): (usize, usize)) -> Inst {
    let op = Op::ExtractValue { agg: Typed::new(words_of(count), call), path: vec![at as u32] };
    Inst { result: Some(word), op, metadata: Vec::new() }
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
        Op::Call(call) => {
            let is_own = callee_name(call).is_some_and(|name| Step::parse(name).is_some() || is_load(name));
            !is_own && simdgroup::product_of(inst).is_none() && !simdgroup::orders_nothing(inst)
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
    let address =
        |pointer: &Typed| linear_address::decompose(module, definition, pointer.op.value()?, Modulus::Bits64);
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

fn is_load(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|name| name.starts_with(FAMILY))
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
    // Offsets are relative to the first one, which is added last: the rest is the same for many loads.
    for at in 0..count {
        body.line(format!("%apart{at} = sub i32 %k{at}, %k0"));
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
    let (base, apart) = (select(SHARED, "p", ".shared"), select("i32", "apart", ""));
    body.line(format!("%bytes = add i32 {distance}, {apart}"));
    body.line(format!("%near = getelementptr i8, {SHARED} {base}, i32 %bytes"));
    body.line(format!("%address = getelementptr i8, {SHARED} %near, i32 %k0"));
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
