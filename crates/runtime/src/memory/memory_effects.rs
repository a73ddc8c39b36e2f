//! Memory effects of commands: the ranges that a command reads and writes, and for which operand.
//!
//! This is the one place of the runtime that knows which commands name memory. An argument that the kernel writes and never reads
//! is known from the compiled code ([`elinvar_driver::CodeFacts::only_written`]); any other argument that the kernel may write
//! counts as read too.

use elinvar_driver::primitive::{Operand, OperandUse};
use elinvar_driver::{
    Access, Binding, Command, CommandRange, Dispatch, ExecuteCommands, Grid, MemorySlice, NestedLaunch,
    Primitive,
};

use crate::memory::usage::Who;

/// Effect on a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    /// Some or all bytes are written; none is read.
    MayWrite,
    MayReadAndWrite,
    /// All bytes are written; none is read.
    Overwrites,
}

/// Effect of a command on a byte range.
pub(crate) struct MemoryEffect<'a> {
    pub(crate) slice: &'a MemorySlice,
    pub(crate) effect: Effect,
    pub(crate) who: Who,
}

/// All memory effects of a command, in the order of its arguments.
pub(crate) fn memory_effects(command: &Command) -> Vec<MemoryEffect<'_>> {
    let operation = |slice, effect, name| MemoryEffect { slice, effect, who: Who::Operation(name) };
    match command {
        Command::Dispatch(dispatch) => by_launch(dispatch),
        Command::ExecuteCommands(execution) => by_execution(execution),
        Command::LaunchNested(nested) => {
            let mut effects = by_launch(&nested.root);
            effects.extend(by_execution(&nested.children));
            effects
        }
        Command::Copy { source, target } => vec![
            operation(source, Effect::Reads, "copy: the source"),
            operation(target, Effect::Overwrites, "copy: the target"),
        ],
        Command::Fill { target, .. } => vec![operation(target, Effect::Overwrites, "fill: the buffer")],
        Command::Primitive { primitive, operands } => by_primitive(primitive, operands),
        _ => Vec::new(),
    }
}

fn by_primitive<'a>(primitive: &Primitive, operands: &'a [MemorySlice]) -> Vec<MemoryEffect<'a>> {
    // Validated when it was recorded.
    let wanted = primitive.operands().unwrap_or_default();
    let memory_effect = |(operand, slice): (Operand, &'a MemorySlice)| {
        let effect = match operand.used {
            OperandUse::Read => Effect::Reads,
            OperandUse::Replaced => Effect::Overwrites,
            OperandUse::Written => Effect::MayWrite,
            OperandUse::Updated => Effect::MayReadAndWrite,
        };
        MemoryEffect { slice, effect, who: Who::Operand(primitive.kind(), operand.name) }
    };
    wanted.into_iter().zip(operands).map(memory_effect).collect()
}

fn by_launch(dispatch: &Dispatch) -> Vec<MemoryEffect<'_>> {
    let (pipeline, signature) = (&dispatch.pipeline, dispatch.pipeline.signature());
    let only_written = signature.code.map_or(0, |code| code.only_written);
    let mut effects = Vec::new();
    for (index, (binding, arg)) in dispatch.bindings.iter().zip(&signature.args).enumerate() {
        if let Binding::Memory(slice) = binding {
            let effect = match arg.access {
                Access::Read => Effect::Reads,
                Access::ReadWrite if index < 64 && only_written >> index & 1 == 1 => Effect::MayWrite,
                Access::ReadWrite => Effect::MayReadAndWrite,
            };
            effects.push(MemoryEffect { slice, effect, who: Who::Argument(pipeline.clone(), index) });
        }
    }
    for (number, used) in dispatch.uses.iter().enumerate() {
        let effect = match used.access {
            Access::Read => Effect::Reads,
            Access::ReadWrite => Effect::MayReadAndWrite,
        };
        effects.push(MemoryEffect { slice: &used.slice, effect, who: Who::Use(pipeline.clone(), number) });
    }
    let counts = |slice| MemoryEffect { slice, effect: Effect::Reads, who: Who::Counts(pipeline.clone()) };
    effects.extend(dispatch.grid.counts().map(counts));
    effects
}

/// Operands of an execution of commands in memory, as messages name them.
pub(crate) const COMMANDS: &str = "execute_commands: the indirect command buffer";
pub(crate) const RANGE: &str = "execute_commands: the range";
pub(crate) const INHERITED: &str = "execute_commands: an inherited buffer";
pub(crate) const USED: &str = "execute_commands: a used buffer";

fn by_execution(execution: &ExecuteCommands) -> Vec<MemoryEffect<'_>> {
    let operation = |slice, effect, name| MemoryEffect { slice, effect, who: Who::Operation(name) };
    let mut effects = vec![operation(&execution.commands, Effect::Reads, COMMANDS)];
    if let CommandRange::Indirect(words) = &execution.range {
        effects.push(operation(words, Effect::Reads, RANGE));
    }
    let effect = |access| match access {
        Access::Read => Effect::Reads,
        Access::ReadWrite => Effect::MayReadAndWrite,
    };
    for inherited in execution.buffers.iter().flatten() {
        if let Binding::Memory(slice) = &inherited.binding {
            effects.push(operation(slice, effect(inherited.access), INHERITED));
        }
    }
    for used in &execution.uses {
        effects.push(operation(&used.slice, effect(used.access), USED));
    }
    effects
}

/// Mutable references to the ranges that a command names, in the order of [`memory_effects`].
pub(crate) fn slices_mut(command: &mut Command) -> Vec<&mut MemorySlice> {
    match command {
        Command::Dispatch(dispatch) => of_launch(dispatch).collect(),
        Command::ExecuteCommands(execution) => of_execution(execution).collect(),
        Command::LaunchNested(nested) => {
            let NestedLaunch { root, children, .. } = &mut **nested;
            of_launch(root).chain(of_execution(children)).collect()
        }
        Command::Copy { source, target } => vec![source, target],
        Command::Fill { target, .. } => vec![target],
        Command::Primitive { operands, .. } => operands.iter_mut().collect(),
        _ => Vec::new(),
    }
}

fn of_launch(dispatch: &mut Dispatch) -> impl Iterator<Item = &mut MemorySlice> {
    let bindings = dispatch.bindings.iter_mut().filter_map(|binding| match binding {
        Binding::Memory(slice) => Some(slice),
        _ => None,
    });
    let counts = match &mut dispatch.grid {
        Grid::Indirect(counts) => Some(counts),
        Grid::Threads(_) => None,
    };
    bindings.chain(dispatch.uses.iter_mut().map(|used| &mut used.slice)).chain(counts)
}

fn of_execution(execution: &mut ExecuteCommands) -> impl Iterator<Item = &mut MemorySlice> {
    let ExecuteCommands { commands, range, buffers, uses, .. } = execution;
    let range = match range {
        CommandRange::Indirect(words) => Some(words),
        CommandRange::Known(_) => None,
    };
    let buffers = buffers.iter_mut().flatten().filter_map(|inherited| match &mut inherited.binding {
        Binding::Memory(slice) => Some(slice),
        _ => None,
    });
    let uses = uses.iter_mut().map(|used| &mut used.slice);
    std::iter::once(commands).chain(range).chain(buffers).chain(uses)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elinvar_driver::{
        Arg, ArgKind, CodeFacts, Dim3, Driver as _, ElementType, Init, Pipeline, Result, Signature, Storage,
    };

    use super::*;

    /// A kernel that is never run.
    struct Kernel(Signature);

    impl Pipeline for Kernel {
        fn signature(&self) -> &Signature {
            &self.0
        }

        fn max_threads_per_threadgroup(&self) -> u32 {
            1
        }

        fn prepare(&self, _: Dim3) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_kernel_never_reads_may_only_be_written() {
        let device = elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0);
        let memory = device.allocate(16, Storage::Shared, Init::Zeroed).unwrap();
        let slice = || MemorySlice { memory: memory.clone(), offset: 0, len: 16 };
        let arg = |access| Arg {
            name: String::new(),
            kind: ArgKind::Pointer,
            index: 0,
            element: ElementType::Other("float".into()),
            element_size: 4,
            element_align: 4,
            access,
            constant: false,
        };
        let of = |accesses: &[Access], only_written: Option<u64>| -> Vec<Effect> {
            let signature = Signature {
                name: "k".into(),
                args: accesses.iter().map(|access| arg(*access)).collect(),
                builtins: Vec::new(),
                file: String::new(),
                line: 1,
                max_threads_per_threadgroup: None,
                code: only_written.map(|only_written| CodeFacts { only_written, ..CodeFacts::default() }),
                logs: Vec::new(),
            };
            let dispatch = Dispatch {
                pipeline: Arc::new(Kernel(signature)),
                bindings: accesses.iter().map(|_| Binding::Memory(slice())).collect(),
                uses: Vec::new(),
                grid: Grid::Threads(Dim3::new(1, 1, 1)),
                group: Dim3::new(1, 1, 1),
                label: None,
            };
            by_launch(&dispatch).into_iter().map(|effect| effect.effect).collect()
        };
        let (read, both) = (Access::Read, Access::ReadWrite);
        let (reads, may_write, may_do_both) = (Effect::Reads, Effect::MayWrite, Effect::MayReadAndWrite);
        assert_eq!(of(&[read, both, both, both], Some(0b1010)), [reads, may_write, may_do_both, may_write]);
        assert_eq!(of(&[read, both], None), [reads, may_do_both]);
        // There is no bit for those behind the 64th.
        let many = of(&[both; 66], Some(u64::MAX));
        assert_eq!((many[63], many[64], many[65]), (may_write, may_do_both, may_do_both));
    }
}
