//! Execution of one instruction of one thread.

use elinvar_ir::{BlockId, Const, Inst, Module, Op, Operand, Term, Type, Typed};

use crate::fault::{Problem, Result};
use crate::machine::Machine;
use crate::memory::{Allocation, Place};
use crate::thread::{Frame, State, Thread};
use crate::value::{Value, length, truncated, width};
use crate::{address, atomic, cast, float, integer};

impl<'m> Machine<'m> {
    /// Run the thread's next instruction.
    pub(crate) fn step(&mut self, thread: &mut Thread<'m>) -> Result<()> {
        self.steps += 1;
        if self.steps > self.options.steps {
            return Err(Problem::Steps(self.options.steps));
        }
        let frame = thread.frame()?;
        let block = self.function(frame.function).block(frame.block);
        let inst = block.insts.get(frame.inst);
        if let Some(inst) = inst {
            self.observe(thread, inst)?;
        }
        let frame = thread.frame_mut()?;
        match inst {
            Some(Inst { op: Op::Call(call), result, .. }) => self.call(thread, call, *result),
            Some(inst) => {
                let value = self.instruction(frame, inst)?;
                if let Some(value) = value {
                    frame.set(inst.result, value);
                }
                frame.inst += 1;
                Ok(())
            }
            None => self.terminator(thread, &block.term),
        }
    }

    fn terminator(&mut self, thread: &mut Thread<'m>, term: &'m Term) -> Result<()> {
        let frame = thread.frame()?;
        let to = match term {
            Term::Br(to) => *to,
            Term::CondBr { cond, then, other } => {
                let cond = self.operand(frame, &Type::I1, cond)?.known("the condition of a branch")?;
                if cond & 1 == 1 { *then } else { *other }
            }
            Term::Switch { value, default, cases } => self.switch(frame, value, *default, cases)?,
            Term::Ret(value) => {
                let value = value.as_ref().map(|v| self.typed(frame, v)).transpose()?;
                return self.leave(thread, value);
            }
            Term::Unreachable => return Err(Problem::Unreachable),
        };
        self.jump(thread.frame_mut()?, to)
    }

    fn switch(
        &self,
        frame: &Frame,
        value: &Typed,
        default: BlockId,
        cases: &[(Const, BlockId)],
    ) -> Result<BlockId> {
        let width = width(&value.ty)?;
        let value = self.typed(frame, value)?.known("the value of a switch")?;
        let case = cases.iter().find(|(c, _)| c.as_unsigned(width) == Some(value));
        Ok(case.map_or(default, |(_, to)| *to))
    }

    /// Branches to a block: all phis are read before any is assigned.
    fn jump(&self, frame: &mut Frame, to: BlockId) -> Result<()> {
        let from = frame.block;
        let block = self.function(frame.function).block(to);
        let mut phis = Vec::new();
        for inst in &block.insts {
            let Op::Phi { ty, incoming, .. } = &inst.op else { break };
            let (operand, _) = incoming
                .iter()
                .find(|(_, block)| *block == from)
                .ok_or_else(|| Problem::Malformed("a phi has no value for a predecessor".into()))?;
            phis.push((inst.result, self.operand(frame, ty, operand)?));
        }
        self.order(frame.function)?.count(&mut frame.rounds, from, to);
        frame.block = to;
        frame.inst = phis.len();
        for (result, value) in phis {
            frame.set(result, value);
        }
        Ok(())
    }

    /// Return from the innermost call.
    fn leave(&mut self, thread: &mut Thread<'m>, value: Option<Value>) -> Result<()> {
        let Some(frame) = thread.frames.pop() else {
            return Err(Problem::Malformed("a return outside a call".into()));
        };
        for variable in frame.variables {
            self.memory.release(variable);
        }
        match (thread.frames.last_mut(), value) {
            (None, _) => thread.state = State::Done,
            (Some(caller), Some(value)) => {
                caller.set(frame.result, value);
                caller.inst += 1;
            }
            (Some(caller), None) => caller.inst += 1,
        }
        Ok(())
    }

    /// Executes any instruction except calls; returns its result, if any.
    fn instruction(&mut self, frame: &mut Frame, inst: &'m Inst) -> Result<Option<Value>> {
        let module = self.module;
        Ok(Some(match &inst.op {
            Op::Binary { op, ty, a, b, .. } => {
                let (a, b) = (self.operand(frame, ty, a)?, self.operand(frame, ty, b)?);
                match ty.scalar() {
                    Type::Int(width) => a.zip(&b, &mut |a, b| integer::binary(*op, *width, a, b))?,
                    scalar => a.zip(&b, &mut |a, b| float::binary(*op, scalar, a, b))?,
                }
            }
            Op::FNeg { ty, a, .. } => {
                self.operand(frame, ty, a)?.map(&mut |a| float::negated(ty.scalar(), a))?
            }
            Op::ICmp { pred, ty, a, b, .. } => {
                let width = width(ty.scalar())?;
                let compare = &mut |a, b| Ok(u128::from(integer::compare(*pred, width, a, b)));
                self.operand(frame, ty, a)?.zip(&self.operand(frame, ty, b)?, compare)?
            }
            Op::FCmp { pred, ty, a, b, .. } => {
                let scalar = ty.scalar();
                let compare = &mut |a, b| {
                    let (a, b) = (float::decode(scalar, a)?, float::decode(scalar, b)?);
                    Ok(u128::from(float::compare(*pred, a, b)))
                };
                self.operand(frame, ty, a)?.zip(&self.operand(frame, ty, b)?, compare)?
            }
            Op::Cast { op, from, to, .. } => cast::cast(*op, &from.ty, to, &self.typed(frame, from)?)?,
            Op::Select { cond, a, b, .. } => {
                select(&self.typed(frame, cond)?, self.typed(frame, a)?, self.typed(frame, b)?)?
            }
            Op::Phi { .. } => return Err(Problem::Malformed("a phi after other instructions".into())),
            Op::Freeze(value) => self.typed(frame, value)?.frozen(),
            Op::Gep { source, base, indices, .. } => {
                let base = self.typed(frame, base)?;
                let indices = indices.iter().map(|i| Ok((&i.ty, self.typed(frame, i)?)));
                address::element(&base, source, &indices.collect::<Result<Vec<_>>>()?, module)?
            }
            Op::ExtractValue { .. }
            | Op::InsertValue { .. }
            | Op::ExtractElement { .. }
            | Op::InsertElement { .. }
            | Op::ShuffleVector { .. } => self.aggregate(frame, &inst.op)?,
            Op::Call(_) => return Err(Problem::Malformed("a call runs as another instruction".into())),
            _ => return self.memory_access(frame, inst),
        }))
    }

    fn aggregate(&self, frame: &Frame, op: &Op) -> Result<Value> {
        Ok(match op {
            Op::ExtractValue { agg, path } => {
                let mut value = self.typed(frame, agg)?;
                for index in path {
                    value = value.list()?.get(*index as usize).cloned().ok_or_else(no_element)?;
                }
                value
            }
            Op::InsertValue { agg, value, path } => {
                let mut whole = self.typed(frame, agg)?;
                let mut at = &mut whole;
                for index in path {
                    let Value::List(items) = at else { return Err(no_element()) };
                    at = items.get_mut(*index as usize).ok_or_else(no_element)?;
                }
                *at = self.typed(frame, value)?;
                whole
            }
            Op::ExtractElement { vector, index } => {
                let lanes = self.typed(frame, vector)?.into_list()?;
                match self.typed(frame, index)?.bits()? {
                    Some(i) => lanes.get(i as usize).cloned().unwrap_or(Value::Poison),
                    None => Value::Poison,
                }
            }
            Op::InsertElement { vector, value, index } => {
                let vector = self.typed(frame, vector)?;
                let value = self.typed(frame, value)?;
                let index = self.typed(frame, index)?.bits()?.map(|i| i as usize);
                match (index, vector) {
                    (Some(i), Value::List(mut lanes)) if i < lanes.len() => {
                        lanes[i] = value;
                        Value::List(lanes)
                    }
                    (_, vector) => vector.poisoned(),
                }
            }
            Op::ShuffleVector { a, b, mask } => {
                let lanes = [self.typed(frame, a)?.into_list()?, self.typed(frame, b)?.into_list()?].concat();
                let pick = |index: &Value| match index.bits()? {
                    Some(i) => Ok(lanes.get(i as usize).cloned().unwrap_or(Value::Poison)),
                    None => Ok(Value::Poison),
                };
                let Operand::Const(_) = mask.op else { return Err(no_element()) };
                Value::List(self.typed(frame, mask)?.list()?.iter().map(pick).collect::<Result<_>>()?)
            }
            _ => return Err(no_element()),
        })
    }

    fn memory_access(&mut self, frame: &mut Frame, inst: &'m Inst) -> Result<Option<Value>> {
        let module = self.module;
        match &inst.op {
            Op::Alloca { ty, count, align, .. } => {
                let count = match count {
                    Some(count) => self.typed(frame, count)?.known("the length of an array")? as u64,
                    None => 1,
                };
                let (size, natural) = ty.size_align(module);
                let place = Place::Private(variable_name(self.function(frame.function), inst));
                let len = length(size.saturating_mul(count))?;
                let variable = Allocation::fresh(place, len, align.unwrap_or(natural));
                let address = self.memory.allocate(variable)?;
                frame.variables.push(address);
                Ok(Some(Value::Bits(u128::from(address))))
            }
            Op::Load { ty, ptr, align, .. } => {
                let address = self.pointer(frame, ptr)?;
                Ok(Some(self.load(ty, address, alignment(*align, ty, module))?))
            }
            Op::Store { value, ptr, align, .. } => {
                let address = self.pointer(frame, ptr)?;
                let stored = self.typed(frame, value)?;
                self.store(&value.ty, &stored, address, alignment(*align, &value.ty, module))?;
                Ok(None)
            }
            Op::AtomicRmw { op, ptr, value, align, .. } => {
                let address = self.pointer(frame, ptr)?;
                let align = alignment(*align, &value.ty, module);
                let old = self.load(&value.ty, address, align)?;
                let operand = self.typed(frame, value)?;
                let new = old.zip(&operand, &mut |old, b| atomic::updated(*op, &value.ty, old, b))?;
                self.store(&value.ty, &new, address, align)?;
                Ok(Some(old))
            }
            Op::CmpXchg { ptr, expected, new, align, .. } => {
                let address = self.pointer(frame, ptr)?;
                let align = alignment(*align, &new.ty, module);
                let old = self.load(&new.ty, address, align)?;
                let held = old.known("the value of an atomic")?;
                let equal = held == self.typed(frame, expected)?.known("the expected value of an atomic")?;
                if equal {
                    let new_value = self.typed(frame, new)?;
                    self.store(&new.ty, &new_value, address, align)?;
                }
                Ok(Some(Value::List(vec![old, Value::bool(equal)])))
            }
            Op::Fence(_) => Ok(None),
            other => Err(Problem::Unsupported(format!("the instruction {other:?}"))),
        }
    }

    pub(crate) fn pointer(&self, frame: &Frame, ptr: &Typed) -> Result<u64> {
        Ok(truncated(self.typed(frame, ptr)?.known("an address")?, 64) as u64)
    }
}

fn no_element() -> Problem {
    Problem::Malformed("an element index out of range for the aggregate".into())
}

fn alignment(given: Option<u64>, ty: &Type, module: &Module) -> u64 {
    given.unwrap_or_else(|| ty.size_align(module).1)
}

/// The name of an `alloca`'s variable; empty if clang did not keep it.
fn variable_name(function: &elinvar_ir::Function, inst: &Inst) -> String {
    let value = inst.result.and_then(|r| function.values.get(r.0 as usize));
    let name = value.and_then(|v| v.name.as_deref()).unwrap_or_default();
    name.trim_end_matches(".addr").to_owned()
}

fn select(cond: &Value, a: Value, b: Value) -> Result<Value> {
    Ok(match cond {
        Value::Bits(bits) => {
            if bits & 1 == 1 {
                a
            } else {
                b
            }
        }
        Value::Poison => a.poisoned(),
        Value::List(lanes) => {
            let (a, b) = (a.into_list()?, b.into_list()?);
            let each = lanes.iter().zip(a.into_iter().zip(b)).map(|(c, (a, b))| select(c, a, b));
            Value::List(each.collect::<Result<_>>()?)
        }
    })
}
