//! Spin waits: loops that only wait until another thread changes device memory, such as a barrier of the grid by a counter, or a
//! decoupled look-back.
//!
//! A loop waits if each of its exits depends on a *waiting load*, and nothing in it writes memory. A waiting load is atomic or volatile, from
//! an address that can be the same in the next iteration: that of a search, such as of a hash table, is not. A counter that limits
//! the number of iterations is an exit of its own.

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, Const, Function, Inst, Location, Module, Op, Operand, RmwOp, ValueId};

use crate::ENTRY;
use crate::analysis::cfg::Cfg;
use crate::intrinsic::Intrinsic;
use crate::support::calls::is_hint;
use crate::support::constants::mentions;
use crate::support::ir::{callee_name, threadgroup_globals};

/// The locations of the waiting loads of the entry's spin waits on device memory, without duplicates. `threadgroup_args` tells which of its
/// parameters point to threadgroup memory. None for irreducible control flow.
pub fn spin_waits(module: &Module, threadgroup_args: &[bool]) -> Vec<Location> {
    let Some(function) = module.function(ENTRY).filter(|f| !f.is_declaration()) else { return Vec::new() };
    let Ok(cfg) = Cfg::new(function, BlockId(0), |_| false) else { return Vec::new() };
    let waits = Waits::new(module, function, &cfg, threadgroup_args);
    let mut found = Vec::new();
    for l in 0..cfg.loops.len() {
        for location in waits.of(l).into_iter().filter_map(|inst| module.location(&inst.metadata)) {
            if !found.contains(&location) {
                found.push(location);
            }
        }
    }
    found
}

struct Waits<'a> {
    function: &'a Function,
    cfg: &'a Cfg,
    defined: HashMap<ValueId, (BlockId, &'a Inst)>,
    threadgroup: Vec<String>,
    threadgroup_args: &'a [bool],
}

impl<'a> Waits<'a> {
    fn new(module: &Module, function: &'a Function, cfg: &'a Cfg, threadgroup_args: &'a [bool]) -> Self {
        let mut defined = HashMap::new();
        for block in function.block_ids() {
            for inst in &function.block(block).insts {
                defined.extend(inst.result.map(|result| (result, (block, inst))));
            }
        }
        Self { function, cfg, defined, threadgroup: threadgroup_globals(module), threadgroup_args }
    }

    /// The waiting loads on which the exits of a loop depend; none if it does not only wait.
    fn of(&self, l: usize) -> Vec<&'a Inst> {
        let blocks = || self.function.block_ids().filter(|block| self.cfg.contains(l, *block));
        if blocks().any(|block| self.function.block(block).insts.iter().any(has_effect)) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for block in blocks() {
            let term = &self.function.block(block).term;
            if term.successors().iter().all(|to| self.cfg.contains(l, *to)) {
                continue;
            }
            let loads = self.waiting_loads(l, &term.operands());
            if loads.is_empty() {
                return Vec::new();
            }
            found.extend(loads);
        }
        found
    }

    fn waiting_loads(&self, l: usize, operands: &[&Operand]) -> Vec<&'a Inst> {
        let is_inside = |block: BlockId| self.cfg.contains(l, block);
        let insts = self.slice(operands, is_inside).into_iter();
        insts
            .filter(|inst| {
                address(inst).is_some_and(|ptr| self.may_stay(l, ptr) && !self.is_threadgroup(ptr))
            })
            .collect()
    }

    /// The instructions of some blocks on which values depend, and the branches within them.
    fn slice(&self, operands: &[&Operand], is_inside: impl Fn(BlockId) -> bool) -> Vec<&'a Inst> {
        let (mut seen, mut found) = (HashSet::new(), Vec::new());
        let mut todo: Vec<ValueId> = operands.iter().filter_map(|operand| operand.value()).collect();
        while let Some(value) = todo.pop() {
            let Some((block, inst)) = self.defined.get(&value) else { continue };
            if is_inside(*block) && seen.insert(value) {
                found.push(*inst);
                todo.extend(inst.op.operands().into_iter().filter_map(Operand::value));
                // A phi depends on the branch that its paths have in common.
                let branch = self.cfg.idom(*block).filter(|_| matches!(inst.op, Op::Phi { .. }));
                let branch = branch.filter(|branch| is_inside(*branch));
                let decides = branch.map(|branch| self.function.block(branch).term.operands());
                todo.extend(decides.into_iter().flatten().filter_map(Operand::value));
            }
        }
        found
    }

    /// Whether an address can be the same in the next iteration.
    fn may_stay(&self, l: usize, ptr: &Operand) -> bool {
        let header = self.cfg.loops[l].header;
        let phis = self.slice(&[ptr], |block| self.cfg.contains(l, block));
        let phis = phis
            .into_iter()
            .filter_map(|inst| inst.result.filter(|r| self.defined[r].0 == header).map(|r| (r, inst)));
        let mut varying = phis.filter_map(|(result, inst)| match &inst.op {
            Op::Phi { incoming, .. } => Some((result, incoming)),
            _ => None,
        });
        varying.all(|(phi, incoming)| {
            let back = incoming.iter().filter(|(_, from)| self.cfg.contains(l, *from));
            back.into_iter().any(|(value, _)| self.may_be(l, value, phi, &mut HashSet::new()))
        })
    }

    /// Whether a value, computed in a loop, can be that of a phi of its header.
    fn may_be(&self, l: usize, value: &Operand, phi: ValueId, seen: &mut HashSet<ValueId>) -> bool {
        let Some(value) = value.value() else { return false };
        if value == phi {
            return true;
        }
        let Some((block, inst)) = self.defined.get(&value) else { return false };
        if !self.cfg.contains(l, *block) || !seen.insert(value) {
            return false;
        }
        let is_header = *block == self.cfg.loops[l].header;
        match &inst.op {
            Op::Select { a, b, .. } => [&a.op, &b.op].into_iter().any(|arm| self.may_be(l, arm, phi, seen)),
            Op::Phi { incoming, .. } if !is_header => {
                incoming.iter().any(|(arm, _)| self.may_be(l, arm, phi, seen))
            }
            _ => false,
        }
    }

    /// Whether an address is derived from threadgroup memory.
    fn is_threadgroup(&self, ptr: &Operand) -> bool {
        let insts = self.slice(&[ptr], |_| true);
        let operands = insts.iter().flat_map(|inst| inst.op.operands()).chain([ptr]);
        operands.into_iter().any(|operand| match operand {
            Operand::Const(constant) => self.is_variable(constant),
            Operand::Value(value) => {
                let index = self.function.params.iter().position(|param| param.value == *value);
                index.is_some_and(|index| self.threadgroup_args.get(index) == Some(&true))
            }
        })
    }

    fn is_variable(&self, constant: &Const) -> bool {
        mentions(constant, &|name| self.threadgroup.iter().any(|variable| variable == name))
    }
}

/// The address of a load that can see what another thread writes.
fn address(inst: &Inst) -> Option<&Operand> {
    match &inst.op {
        Op::Load { ptr, volatile, atomic, .. } if *volatile || atomic.is_some() => Some(&ptr.op),
        Op::AtomicRmw { ptr, .. } => Some(&ptr.op),
        _ => None,
    }
}

/// Whether an instruction may write memory, or calls a function of the source. An atomic operation that changes nothing is a load.
fn has_effect(inst: &Inst) -> bool {
    match &inst.op {
        Op::Store { .. } | Op::CmpXchg { .. } => true,
        Op::AtomicRmw { op, value, .. } => {
            let is_zero = matches!(&value.op, Operand::Const(c) if c.as_unsigned(64) == Some(0));
            !(is_zero && matches!(op, RmwOp::Add | RmwOp::Sub | RmwOp::Or | RmwOp::Xor))
        }
        Op::Call(call) => match callee_name(call) {
            Some(name) if is_hint(name) => false,
            Some(name) if name.starts_with("llvm.") => name.starts_with("llvm.mem"),
            Some(name) => !Intrinsic::parse(name).is_some_and(|intrinsic| intrinsic != Intrinsic::Log),
            None => true,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of waits of an entry with this code behind `start`, and values `%p`, `%q` and `%n`.
    fn waits(code: &str) -> usize {
        let text = format!(
            "@flag = internal global i32 undef, section \"elinvar.threadgroup\"
            define void @__elinvar_entry(ptr %p, ptr %q, i32 %n) {{\nstart:\n  br label %l\n{code}\nend:\n  ret void\n}}\n"
        );
        let module = Module::parse(&text).unwrap();
        let function = module.function(ENTRY).unwrap();
        let cfg = Cfg::new(function, BlockId(0), |_| false).unwrap();
        let waits = Waits::new(&module, function, &cfg, &[false, true, false]);
        (0..cfg.loops.len()).filter(|l| !waits.of(*l).is_empty()).count()
    }

    #[test]
    fn a_counter_and_a_flag() {
        let wait = |load: &str| {
            format!("l:\n  %v = {load}\n  %c = icmp ult i32 %v, %n\n  br i1 %c, label %l, label %end")
        };
        assert_eq!(waits(&wait("load atomic i32, ptr %p monotonic, align 4")), 1);
        assert_eq!(waits(&wait("load volatile i32, ptr %p, align 4")), 1);
        assert_eq!(waits(&wait("atomicrmw add ptr %p, i32 0 monotonic")), 1);
        assert_eq!(waits(&wait("atomicrmw add ptr %p, i32 1 monotonic")), 0, "takes work from a queue");
        assert_eq!(waits(&wait("load i32, ptr %p, align 4")), 0);
        assert_eq!(waits(&wait("load atomic i32, ptr %q monotonic, align 4")), 0, "threadgroup memory");
        assert_eq!(waits(&wait("load atomic i32, ptr @flag monotonic, align 4")), 0, "threadgroup memory");
        let stores = wait("load atomic i32, ptr %p monotonic, align 4\n  store i32 1, ptr %q, align 4");
        assert_eq!(waits(&stores), 0);
    }

    #[test]
    fn a_look_back_waits_and_a_search_does_not() {
        let back = |next: &str| {
            format!(
                "l:
                  %j = phi i32 [ %n, %start ], [ %next, %l ]
                  %w = zext i32 %j to i64
                  %at = getelementptr i32, ptr %p, i64 %w
                  %v = load atomic i32, ptr %at monotonic, align 4
                  %none = icmp eq i32 %v, 0
                  %down = add i32 %j, -1
                  %next = {next}
                  %c = icmp eq i32 %v, 2
                  br i1 %c, label %end, label %l"
            )
        };
        assert_eq!(waits(&back("select i1 %none, i32 %j, i32 %down")), 1);
        assert_eq!(waits(&back("add i32 %down, 0")), 0);
    }

    #[test]
    fn a_look_back_with_an_end() {
        let code = "l:
              %j = phi i32 [ %n, %start ], [ %next, %k ]
              %w = zext i32 %j to i64
              %at = getelementptr i32, ptr %p, i64 %w
              %v = load atomic i32, ptr %at monotonic, align 4
              %none = icmp eq i32 %v, 0
              br i1 %none, label %k, label %m
            m:
              %down = add i32 %j, -1
              %c = icmp eq i32 %v, 2
              br i1 %c, label %end, label %k
            k:
              %next = phi i32 [ %j, %l ], [ %down, %m ]
              %more = icmp sgt i32 %next, -1
              br i1 %more, label %l, label %end";
        assert_eq!(waits(code), 1);
    }

    #[test]
    fn a_limit_is_an_exit() {
        let limited = "l:
              %k = phi i32 [ 0, %start ], [ %next, %m ]
              %v = load atomic i32, ptr %p monotonic, align 4
              %c = icmp eq i32 %v, 0
              br i1 %c, label %m, label %end
            m:
              %next = add i32 %k, 1
              %more = icmp ult i32 %next, %n
              br i1 %more, label %l, label %end";
        assert_eq!(waits(limited), 0);
    }
}
