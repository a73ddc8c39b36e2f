//! Calls of the module's functions, intrinsics of the headers and of LLVM, and the C library.

use elinvar_ir::{Call, CallArg, Callee, Type, ValueId};
use elinvar_spmd::intrinsic::{Intrinsic, PREFIX, Position};

use crate::fault::{Problem, Result};
use crate::machine::Machine;
use crate::math;
use crate::memory::{Allocation, Place};
use crate::space;
use crate::thread::{Frame, Function, State, Thread, Waiting};
use crate::value::{Value, length};
use crate::warp;

/// Maximum call depth.
const DEPTH: usize = 1000;

impl<'m> Machine<'m> {
    /// Executes a call. The thread continues after it when the call has completed, which may be later.
    pub(crate) fn call(
        &mut self,
        thread: &mut Thread<'m>,
        call: &'m Call,
        result: Option<ValueId>,
    ) -> Result<()> {
        let frame = thread.frame()?;
        let name = self.callee(frame, call)?;
        if name.starts_with("llvm.") && is_hint(name) {
            thread.frame_mut()?.inst += 1;
            return Ok(());
        }
        let args = call.args.iter().filter(|a| a.ty != Type::Metadata);
        let args = args.map(|a| self.operand(frame, &a.ty, &a.op)).collect::<Result<Vec<_>>>()?;
        if self.lowered_log_call(name, &args)? {
            thread.frame_mut()?.inst += 1;
            return Ok(());
        }
        if let Some(index) = self.defined(name) {
            let frame = self.enter(index, &call.args, args, result)?;
            if thread.frames.len() >= DEPTH {
                return Err(Problem::Depth(DEPTH));
            }
            thread.frames.push(frame);
            return Ok(());
        }
        let intrinsic = Intrinsic::parse(name);
        let together = match intrinsic {
            Some(Intrinsic::ThreadgroupBarrier | Intrinsic::GridBarrier | Intrinsic::Yield) => {
                thread.state = State::AtBarrier;
                return Ok(());
            }
            Some(Intrinsic::SimdgroupBarrier) => Some(Function::SimdgroupBarrier),
            Some(Intrinsic::Group(call)) => Some(Function::Group(call)),
            // It has no product of tensors.
            Some(
                Intrinsic::Position(_)
                | Intrinsic::Scale
                | Intrinsic::Log
                | Intrinsic::HasTensorProduct
                | Intrinsic::TensorProduct,
            ) => None,
            None if name == warp::BARRIER => {
                thread.state = State::AtBarrier;
                return Ok(());
            }
            None => warp::is_shared(name).then_some(Function::Warp(name)),
        };
        if let Some(function) = together {
            thread.state = State::AtGroupCall(Waiting { function, args });
            return Ok(());
        }
        let value = if let Some(Intrinsic::Position(position)) = intrinsic {
            Some(self.position(thread.position, position, &args)?)
        } else if intrinsic == Some(Intrinsic::Log) {
            self.log_call(&args)?;
            None
        } else if intrinsic == Some(Intrinsic::HasTensorProduct) {
            Some(Value::Bits(0))
        } else if intrinsic == Some(Intrinsic::Scale) {
            math::named("ldexp", &Type::Float, &args)?
        } else if [space::ASK, space::ARGUMENT, space::EXPECT].contains(&name) {
            self.space_call(name, &args)?
        } else if name.starts_with(PREFIX) {
            return Err(Problem::Unsupported(format!("the intrinsic `{name}`")));
        } else if name.starts_with(warp::PREFIX) {
            self.warp_intrinsic(thread, name, &args)?
        } else if let Some(intrinsic) = name.strip_prefix("llvm.") {
            self.intrinsic(intrinsic, call, &args)?
        } else {
            self.library(name, call, &args)?
        };
        let frame = thread.frame_mut()?;
        if let Some(value) = value {
            frame.set(result, value);
        }
        frame.inst += 1;
        Ok(())
    }

    /// The name of what is called.
    fn callee(&self, frame: &Frame, call: &'m Call) -> Result<&'m str> {
        let pointer = match &call.callee {
            Callee::Function(name) => return Ok(name),
            Callee::Indirect(pointer) => self.operand(frame, &Type::PTR, pointer)?,
        };
        let address = pointer.known("the address of a function")? as u64;
        match self.memory.named(address).map(|a| &a.place) {
            Some(Place::Function(index)) => Ok(&self.function(*index).name),
            _ => Err(Problem::Wild { address, len: 0 }),
        }
    }

    /// Creates the stack frame of a function, with copies of `byval` arguments in memory.
    pub(crate) fn enter(
        &mut self,
        index: usize,
        passed: &[CallArg],
        mut args: Vec<Value>,
        result: Option<ValueId>,
    ) -> Result<Frame> {
        let function = self.function(index);
        if args.len() != function.params.len() {
            let (name, given, takes) = (&function.name, args.len(), function.params.len());
            return Err(Problem::Malformed(format!(
                "`{name}` takes {takes} arguments but is passed {given}"
            )));
        }
        let mut copies = Vec::new();
        for (arg, passed) in args.iter_mut().zip(passed) {
            let Some(ty) = by_value(&passed.attrs)? else { continue };
            let from = arg.known("an address")? as u64;
            let (size, align) = ty.size_align(self.module);
            let place = Place::Private("argument passed by value".into());
            let copy = self.memory.allocate(Allocation::fresh(place, length(size)?, align.max(16)))?;
            self.memory.copy(copy, from, size)?;
            copies.push(copy);
            *arg = Value::Bits(u128::from(copy));
        }
        let mut frame = Frame::new(index, function, args, result);
        frame.variables = copies;
        Ok(frame)
    }

    fn position(&self, thread: [u32; 3], position: Position, args: &[Value]) -> Result<Value> {
        let name = position.name();
        let sizes = match position {
            Position::Thread => thread,
            Position::Group => self.sizes.group,
            Position::GroupSize => self.sizes.group_size,
            Position::FullGroupSize => self.sizes.full_group,
            Position::Grid => self.sizes.grid,
            Position::Groups => self.sizes.groups,
            Position::ArgumentBytes
            | Position::FaultRecord
            | Position::LogRing
            | Position::LogKernel
            | Position::GridCounter => {
                return Err(Problem::Unsupported(format!("the intrinsic `{name}`")));
            }
        };
        let dimension = args.first().map_or(Ok(0), |a| a.known("the dimension of a position"))?;
        let size = sizes.get(dimension as usize);
        let size = size.ok_or_else(|| Problem::Malformed(format!("dimension {dimension} of `{name}`")))?;
        Ok(Value::Bits(u128::from(*size)))
    }
}

/// Intrinsics without effect, whose arguments are not evaluated.
fn is_hint(name: &str) -> bool {
    const HINTS: [&str; 6] = [
        "llvm.assume",
        "llvm.dbg.",
        "llvm.donothing",
        "llvm.experimental.noalias.scope.decl",
        "llvm.prefetch",
        "llvm.sideeffect",
    ];
    HINTS.iter().any(|h| name.starts_with(h))
}

/// The type of a `byval` argument.
fn by_value(attrs: &str) -> Result<Option<Type>> {
    let Some((_, rest)) = attrs.split_once("byval(") else { return Ok(None) };
    let unknown = || Problem::Unsupported(format!("an argument with the attributes `{attrs}`"));
    let name = rest.strip_prefix('%').ok_or_else(unknown)?;
    let name = match name.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(name, _)| name),
        None => name.split_once(')').map(|(name, _)| name),
    };
    Ok(Some(Type::Named(name.ok_or_else(unknown)?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_arguments_by_value() {
        let named = |name: &str| Ok(Some(Type::Named(name.to_owned())));
        assert_eq!(by_value("noundef byval(%struct.P) align 8"), named("struct.P"));
        assert_eq!(by_value("byval(%\"struct.a::P\") align 8"), named("struct.a::P"));
        assert_eq!(by_value("noundef"), Ok(None));
        assert!(by_value("byval([4 x i32])").is_err());
    }
}
