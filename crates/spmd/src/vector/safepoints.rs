//! Safepoints: polls of the stop byte in functions that are not inlined, so that their loops can be stopped.
//!
//! Such a function receives the address of the stop byte as an additional argument. It polls it at the start of each loop and
//! returns zero when it is set; its callers poll it after the call and do not use the result. The kernel's own loops are polled
//! where they are emitted ([`crate::vector::prologue`]).

use std::collections::HashSet;

use elinvar_ir::{
    Atomic, BlockId, CallArg, Const, Function, IntPredicate, Op, Operand, Ordering, Term, Type, Typed,
};

use crate::STOPPED;
use crate::support::builder::Builder;
use crate::support::ir::callee_name;

/// Emits a poll at the end of `b`: the function returns, or continues in `b`'s new block.
pub(crate) fn poll(b: &mut Builder<'_>, stop: &Operand, stopped: Const) {
    let ptr = Typed::new(Type::PTR, stop.clone());
    let atomic = Some(Atomic { ordering: Ordering::Monotonic, scope: None });
    let byte =
        b.value(Type::I8, None, Op::Load { ty: Type::I8, ptr, align: Some(1), volatile: false, atomic });
    let is_stopped = b.icmp(IntPredicate::Ne, &Type::I8, byte, Const::Zero);
    let (leave, go_on) = (b.f.new_block(None), b.f.new_block(None));
    b.cond_br(is_stopped, leave, go_on);
    b.at = leave;
    let result = (b.f.ret != Type::Void).then(|| Typed::new(b.f.ret.clone(), stopped));
    b.end(Term::Ret(result));
    b.at = go_on;
}

/// Return value of the kernel's function when it is stopped.
pub(crate) fn stopped() -> Const {
    Const::int(32, STOPPED.into())
}

/// Adds polls to `kernel`, which has the byte's address in `stop`, and to those of `callees` that have loops.
pub(crate) fn insert(kernel: &mut Function, stop: &Operand, callees: &mut [Function]) {
    let long = long_running(callees);
    for callee in callees.iter_mut().filter(|callee| long.contains(&callee.name)) {
        let stop = callee.add_param(Type::PTR, "", Some("stop")).into();
        let headers = headers(callee);
        add_to(callee, &stop, &Const::Zero, &headers, &long);
    }
    add_to(kernel, stop, &stopped(), &HashSet::new(), &long);
}

/// The functions with a loop, and their callers.
fn long_running(callees: &[Function]) -> HashSet<String> {
    let has_loop = |callee: &&Function| !headers(callee).is_empty();
    let mut long: HashSet<String> =
        callees.iter().filter(has_loop).map(|callee| callee.name.clone()).collect();
    loop {
        let calls = |callee: &&Function| {
            let mut insts = callee.blocks.iter().flat_map(|block| &block.insts);
            !long.contains(&callee.name) && insts.any(|inst| calls_one(&inst.op, &long))
        };
        let Some(callee) = callees.iter().find(calls) else { return long };
        long.insert(callee.name.clone());
    }
}

fn calls_one(op: &Op, names: &HashSet<String>) -> bool {
    matches!(op, Op::Call(call) if callee_name(call).is_some_and(|name| names.contains(name)))
}

/// Targets of retreating edges in a depth-first traversal: at least one block of each loop.
fn headers(function: &Function) -> HashSet<BlockId> {
    let mut found = HashSet::new();
    let mut state = vec![0u8; function.blocks.len()];
    // A block, and the number of its visited successors.
    let mut path: Vec<(BlockId, usize)> = function.block_ids().take(1).map(|entry| (entry, 0)).collect();
    while let Some((block, next)) = path.last_mut() {
        const ON_PATH: u8 = 1;
        state[block.0 as usize] = ON_PATH;
        match function.block(*block).term.successors().get(*next) {
            Some(to) => {
                *next += 1;
                match state[to.0 as usize] {
                    0 => path.push((*to, 0)),
                    ON_PATH => drop(found.insert(*to)),
                    _ => {}
                }
            }
            None => {
                state[block.0 as usize] = 2;
                path.pop();
            }
        }
    }
    found
}

/// Adds polls at the start of `headers`, and after each call of one of `long`, to which the address is passed.
fn add_to(
    function: &mut Function,
    stop: &Operand,
    stopped: &Const,
    headers: &HashSet<BlockId>,
    long: &HashSet<String>,
) {
    for block in function.block_ids() {
        let insts = &mut function.block_mut(block).insts;
        let mut places = Vec::new();
        for (index, inst) in insts.iter_mut().enumerate() {
            if calls_one(&inst.op, long)
                && let Op::Call(call) = &mut inst.op
            {
                call.args.push(CallArg { ty: Type::PTR, attrs: String::new(), op: stop.clone() });
                // Attributes that assume that the function does not read the byte.
                call.attrs.clear();
                call.tail.clear();
                places.push(index + 1);
            }
        }
        if headers.contains(&block) {
            let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. })).count();
            places.push(phis);
        }
        places.sort_unstable();
        for place in places.into_iter().rev() {
            look_at(function, block, place, stop, stopped);
        }
    }
}

/// Adds a poll in `block` before its instruction `at`.
fn look_at(function: &mut Function, block: BlockId, at: usize, stop: &Operand, stopped: &Const) {
    let rest = function.block_mut(block).insts.split_off(at);
    let term = std::mem::replace(&mut function.block_mut(block).term, Term::Unreachable);
    let mut b = Builder::new(function, block);
    poll(&mut b, stop, stopped.clone());
    let go_on = b.at;
    let target = function.block_mut(go_on);
    (target.insts, target.term) = (rest, term);
    for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
        if let Op::Phi { incoming, .. } = &mut inst.op {
            incoming.iter_mut().filter(|(_, from)| *from == block).for_each(|(_, from)| *from = go_on);
        }
    }
}
