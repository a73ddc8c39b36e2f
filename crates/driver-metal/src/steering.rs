//! Determines which arguments a kernel *steers* by: those whose contents affect which bytes it accesses or which path it takes.
//!
//! A forward data-flow analysis of the kernel's optimized IR. It computes for each value the arguments whose contents it may depend on. The
//! kernel steers by the arguments of accessed addresses and of branch conditions. A branch that only selects between values, as in functions of
//! the standard library, is treated as a select: the values at its joins depend on its condition.

use elinvar_ir::{
    Block, BlockId, Call, Callee, CastOp, Const, Function, Module, Op, Operand, PostDominators, Term, Type,
};
use elinvar_spmd::ENTRY;
use elinvar_spmd::intrinsic::Intrinsic;

/// All arguments.
pub(crate) const ALL: u64 = u64::MAX;

/// The arguments that the entry function of a module steers by, as a bit mask. [`ALL`] if the analysis does not support the code.
pub(crate) fn steering(module: &Module) -> u64 {
    let entry = module.function(ENTRY).filter(|entry| entry.params.len() < 64);
    entry.and_then(|entry| Flow::new(entry).run(entry)).unwrap_or(ALL)
}

/// Maximum number of blocks between a branch and its join that are examined.
const MOST_BLOCKS: usize = 64;

/// If the branch at the end of a block only selects between values: the blocks between it and its join.
fn joins(entry: &Function, ends: &PostDominators, branch: BlockId) -> Option<Vec<BlockId>> {
    let end = ends.ipdom(branch)?;
    let mut between = Vec::new();
    let mut next = entry.block(branch).term.successors();
    while let Some(at) = next.pop() {
        if at == end || between.contains(&at) {
            continue;
        }
        if at == branch || between.len() == MOST_BLOCKS || !is_pure(entry.block(at)) {
            return None;
        }
        between.push(at);
        next.extend(entry.block(at).term.successors());
    }
    // An acyclic subgraph can be emptied by repeatedly removing blocks without predecessors.
    let mut left = between.clone();
    while !left.is_empty() {
        let leads_to =
            |to: &BlockId| left.iter().any(|from| entry.block(*from).term.successors().contains(to));
        let is_entered: Vec<BlockId> = left.iter().filter(|at| leads_to(at)).copied().collect();
        if is_entered.len() == left.len() {
            return None;
        }
        left = is_entered;
    }
    between.push(end);
    Some(between)
}

/// Whether a block only computes values, without side effects.
fn is_pure(block: &Block) -> bool {
    block.insts.iter().all(|inst| match &inst.op {
        Op::Load { .. }
        | Op::Store { .. }
        | Op::AtomicRmw { .. }
        | Op::CmpXchg { .. }
        | Op::Alloca { .. }
        | Op::Fence(_) => false,
        Op::Call(call) => {
            matches!(&call.callee, Callee::Function(name) if name.starts_with("llvm."))
                && call.args.iter().all(|arg| !matches!(arg.ty.scalar(), Type::Ptr(_)))
        }
        _ => true,
    })
}

/// Analysis result for a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Value {
    /// Arguments whose contents it depends on.
    content: u64,
    /// If it is an address, the arguments that it may point to.
    arguments: u64,
    /// Whether it may point to memory of the kernel itself: threadgroup memory, variables, constants.
    own: bool,
    /// Whether it may point to any memory.
    anywhere: bool,
}

impl Value {
    fn and(self, other: Self) -> Self {
        Self {
            content: self.content | other.content,
            arguments: self.arguments | other.arguments,
            own: self.own | other.own,
            anywhere: self.anywhere | other.anywhere,
        }
    }
}

struct Flow {
    values: Vec<Value>,
    /// For each argument, the dependences of the values stored to its memory.
    written: Vec<u64>,
    /// The same for the kernel's own memory.
    own_written: u64,
    steering: u64,
    has_changed: bool,
}

impl Flow {
    fn new(entry: &Function) -> Self {
        let mut values = vec![Value::default(); entry.values.len()];
        for (index, param) in entry.params.iter().enumerate() {
            let bit = 1 << index;
            values[param.value.0 as usize] = match param.ty {
                Type::Ptr(_) => Value { arguments: bit, ..Value::default() },
                _ => Value { content: bit, ..Value::default() },
            };
        }
        Self { values, written: vec![0; entry.params.len()], own_written: 0, steering: 0, has_changed: false }
    }

    /// `None` if the code is not supported.
    fn run(mut self, entry: &Function) -> Option<u64> {
        let ends = PostDominators::compute(entry);
        let joins: Vec<_> = entry.block_ids().map(|block| joins(entry, &ends, block)).collect();
        loop {
            self.has_changed = false;
            for (block, joins) in entry.blocks.iter().zip(&joins) {
                for inst in &block.insts {
                    let value = self.op(&inst.op)?;
                    if let Some(result) = inst.result {
                        self.set(result.0 as usize, value);
                    }
                }
                let condition = match &block.term {
                    Term::CondBr { cond, .. } => self.of(cond),
                    Term::Switch { value, .. } => self.of(&value.op),
                    Term::Br(_) | Term::Ret(_) | Term::Unreachable => continue,
                };
                match joins {
                    Some(joins) => self.join(entry, joins, condition),
                    None => self.steer(condition),
                }
            }
            if !self.has_changed {
                return Some(self.steering);
            }
        }
    }

    fn set(&mut self, at: usize, value: Value) {
        let known = self.values[at].and(value);
        self.has_changed |= known != self.values[at];
        self.values[at] = known;
    }

    /// The phis of these blocks depend on a condition.
    fn join(&mut self, entry: &Function, blocks: &[BlockId], condition: Value) {
        let by = Value { content: condition.content, ..Value::default() };
        for inst in blocks.iter().flat_map(|block| &entry.block(*block).insts) {
            if let (Op::Phi { .. }, Some(result)) = (&inst.op, inst.result) {
                self.set(result.0 as usize, by);
            }
        }
    }

    fn steer(&mut self, by: Value) {
        let steering = self.steering | by.content;
        self.has_changed |= steering != self.steering;
        self.steering = steering;
    }

    fn of(&self, operand: &Operand) -> Value {
        match operand {
            Operand::Value(value) => self.values[value.0 as usize],
            Operand::Const(constant) => of_constant(constant),
        }
    }

    fn all<'a>(&self, operands: impl IntoIterator<Item = &'a Operand>) -> Value {
        operands.into_iter().fold(Value::default(), |all, operand| all.and(self.of(operand)))
    }

    /// Records the effects of an instruction. Returns the state of its result.
    fn op(&mut self, op: &Op) -> Option<Value> {
        Some(match op {
            Op::Load { ty, ptr, .. } => Value { anywhere: may_hold_address(ty), ..self.load(&ptr.op) },
            Op::Gep { base, indices, .. } => {
                let content = self.all(indices.iter().map(|index| &index.op)).content;
                self.of(&base.op).and(Value { content, ..Value::default() })
            }
            Op::Store { value, ptr, .. } => {
                self.store(&ptr.op, self.of(&value.op).content);
                Value::default()
            }
            Op::AtomicRmw { ptr, value, .. } => {
                self.store(&ptr.op, self.of(&value.op).content);
                self.load(&ptr.op)
            }
            Op::CmpXchg { ptr, expected, new, .. } => {
                self.store(&ptr.op, self.of(&expected.op).and(self.of(&new.op)).content);
                self.load(&ptr.op)
            }
            Op::Alloca { count, .. } => {
                if let Some(count) = count {
                    self.steer(self.of(&count.op));
                }
                Value { own: true, ..Value::default() }
            }
            Op::Cast { op: CastOp::IntToPtr, from, .. } => Value { anywhere: true, ..self.of(&from.op) },
            Op::Call(call) => self.call(call)?,
            Op::Fence(_) => Value::default(),
            _ => self.all(op.operands()),
        })
    }

    fn load(&mut self, pointer: &Operand) -> Value {
        let pointer = self.of(pointer);
        self.steer(pointer);
        let mut content = pointer.content | pointer.arguments;
        for (index, written) in self.written.iter().enumerate() {
            if pointer.arguments >> index & 1 == 1 {
                content |= written;
            }
        }
        if pointer.own {
            content |= self.own_written;
        }
        if pointer.anywhere {
            content = ALL;
        }
        Value { content, ..Value::default() }
    }

    fn store(&mut self, pointer: &Operand, content: u64) {
        let pointer = self.of(pointer);
        self.steer(pointer);
        for (index, written) in self.written.iter_mut().enumerate() {
            if pointer.anywhere || pointer.arguments >> index & 1 == 1 {
                self.has_changed |= *written | content != *written;
                *written |= content;
            }
        }
        if pointer.anywhere || pointer.own {
            self.has_changed |= self.own_written | content != self.own_written;
            self.own_written |= content;
        }
    }

    fn call(&mut self, call: &Call) -> Option<Value> {
        let (Callee::Function(name) | Callee::Indirect(Operand::Const(Const::Global(name)))) = &call.callee
        else {
            return None;
        };
        let arg = |index: usize| call.args.get(index).map(|arg| &arg.op);
        let starts = |heads: &[&str]| heads.iter().any(|head| name.starts_with(head));
        if starts(&[
            "llvm.lifetime.",
            "llvm.assume",
            "llvm.dbg.",
            "llvm.experimental.noalias",
            "llvm.invariant.",
        ]) {
            return Some(Value::default());
        }
        if starts(&["llvm.memcpy.", "llvm.memmove."]) {
            let content = self.load(arg(1)?).content;
            self.store(arg(0)?, content);
            self.steer(self.of(arg(2)?));
            return Some(Value::default());
        }
        if starts(&["llvm.memset."]) {
            self.store(arg(0)?, self.of(arg(1)?).content);
            self.steer(self.of(arg(2)?));
            return Some(Value::default());
        }
        let is_known = name.starts_with("llvm.") || Intrinsic::parse(name).is_some();
        let has_pointers = call.args.iter().any(|arg| matches!(arg.ty.scalar(), Type::Ptr(_)));
        (is_known && !has_pointers).then(|| self.all(call.args.iter().map(|arg| &arg.op)))
    }
}

/// Whether a value of this type may contain an address; nothing is known about addresses loaded from memory.
fn may_hold_address(ty: &Type) -> bool {
    !matches!(ty.scalar(), Type::Int(_) | Type::Half | Type::BFloat | Type::Float | Type::Double)
}

fn of_constant(constant: &Const) -> Value {
    let own = Value { own: true, ..Value::default() };
    let all = |parts: &[(Type, Const)]| {
        parts.iter().fold(Value::default(), |all, (_, part)| all.and(of_constant(part)))
    };
    match constant {
        Const::Global(_) => own,
        Const::Gep { base, .. } => of_constant(&base.1),
        Const::Cast { op: CastOp::IntToPtr, from, .. } => Value { anywhere: true, ..of_constant(&from.1) },
        Const::Cast { from, .. } => of_constant(&from.1),
        Const::Array(parts) | Const::Vector(parts) | Const::Struct { fields: parts, .. } => all(parts),
        Const::Splat(part) => of_constant(&part.1),
        _ => Value::default(),
    }
}

#[cfg(test)]
mod tests {
    use elinvar_code::user_cache;
    use elinvar_driver::Source;
    use elinvar_msl::{CachedProgram, Toolchain};

    use super::*;

    /// The result for a kernel with these parameters and this body; `i` is its position.
    fn of(params: &str, body: &str) -> u64 {
        let text = format!(
            "#include <metal_stdlib>\nusing namespace metal;\n
             kernel void k({params}, uint i [[thread_position_in_grid]]) {{ {body} }}"
        );
        let checked =
            CachedProgram::new(&Toolchain::find_with(user_cache()).unwrap(), &Source::msl(text)).unwrap();
        steering(&Module::parse(&checked.specialize("k", &[]).unwrap().ir).unwrap())
    }

    const TWO: &str = "device const uint* a, device uint* b";
    const THREE: &str = "device const uint* a, device uint* b, constant uint& n";

    #[test]
    fn values_do_not_steer() {
        assert_eq!(of(TWO, "b[i] = a[i] * 3u + 1u;"), 0);
        assert_eq!(of(TWO, "b[i] = max(a[i], a[i + 1u]) + clz(a[2u * i]);"), 0);
        assert_eq!(of(TWO, "uint s = 0; for (uint j = 0; j < 100; j++) s += a[j * i]; b[i] = s;"), 0);
        let floats = "device const float4* a, device float4* b";
        assert_eq!(of(floats, "b[i] = fma(a[i], a[i], sin(a[i].x));"), 0);
        assert_eq!(of(floats, "b[i] = tanh(a[i]) + exp(a[i]);"), 0);
    }

    #[test]
    fn positions_and_conditions_steer() {
        assert_eq!(of(TWO, "b[a[i]] = 1u;"), 1);
        assert_eq!(of("device const uint* a, device const uint* x, device uint* b", "b[i] = x[a[i]];"), 1);
        assert_eq!(of(TWO, "if (a[i] > 5u) b[i] = 1u;"), 1);
        assert_eq!(
            of(TWO, "uint x = a[i]; while (x > 9u) x = x * x % 7001u; b[i] = x;"),
            1,
            "it may not end"
        );
        let by_value = "device const float* a, device uint* b";
        assert_eq!(of(by_value, "b[uint(tanh(a[i]) * 3.0f) & 3u] = 1u;"), 1);
        assert_eq!(of(THREE, "if (i < n) b[i] = a[i];"), 4);
        assert_eq!(of(THREE, "uint s = 0; for (uint j = 0; j < n; j++) s += a[j]; b[i] = s;"), 4);
        assert_eq!(of(TWO, "b[0] = a[i]; uint at = b[1]; b[at & 7u] = 2u;"), 3, "by way of its own memory");
    }

    #[test]
    fn what_goes_through_memory_of_its_own_is_followed() {
        let body = "threadgroup uint part[32]; part[i & 31u] = a[i]; threadgroup_barrier(mem_flags::mem_threadgroup); ";
        assert_eq!(of(TWO, &format!("{body} b[i] = part[31u - (i & 31u)];")), 0);
        assert_eq!(of(TWO, &format!("{body} b[part[i & 31u]] = 1u;")), 1);
        assert_eq!(of(TWO, "b[i] = simd_sum(a[i]);"), 0);
        assert_eq!(of(TWO, "b[simd_sum(a[i])] = 1u;"), 1);
    }

    #[test]
    fn addresses_in_memory_steer() {
        let refs = "struct Refs { device uint* to; }; constant Refs& refs";
        let text = format!("{refs}, device uint* b").replace("struct Refs { device uint* to; }; ", "");
        let source = format!(
            "#include <metal_stdlib>\nusing namespace metal;\nstruct Refs {{ device uint* to; }};
             kernel void k({text}, uint i [[thread_position_in_grid]]) {{ b[i] = refs.to[i]; }}"
        );
        let checked =
            CachedProgram::new(&Toolchain::find_with(user_cache()).unwrap(), &Source::msl(source)).unwrap();
        let found = steering(&Module::parse(&checked.specialize("k", &[]).unwrap().ir).unwrap());
        assert_eq!(found & 1, 1);
        let counts = "device atomic_uint* n, device uint* b";
        let body = "uint at = atomic_fetch_add_explicit(n, 1u, memory_order_relaxed); b[at] = i;";
        assert_eq!(of(counts, body), 1);
    }
}
