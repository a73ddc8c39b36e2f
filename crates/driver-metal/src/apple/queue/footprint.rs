//! Memory accesses of commands, as input to [`Ahead`](crate::ahead::Ahead).

use std::any::Any;

use elinvar_driver::primitive::OperandUse;
use elinvar_driver::{Access, Binding, Command, Dispatch, MemorySlice};

use crate::ahead::{Bytes, Effect, Footprint};
use crate::apple::encode;
use crate::apple::pipeline::MetalPipeline;

/// Records the accesses of the command buffer that starts with these commands. It ends at the next wait, or earlier.
pub(super) fn note(footprint: &mut Footprint, commands: &[Command]) {
    for command in encode::together(commands) {
        match command {
            Command::Dispatch(dispatch) => launch(footprint, dispatch),
            Command::Copy { source, target } => {
                footprint.add([of(source, Effect::READS), of(target, Effect::OVERWRITES)]);
            }
            Command::Fill { target, .. } => footprint.add([of(target, Effect::OVERWRITES)]),
            Command::Primitive { primitive, operands } => match primitive.operands() {
                Ok(wanted) => {
                    let uses = wanted.iter().zip(operands);
                    footprint.add(uses.map(|(operand, slice)| of(slice, by_primitive(operand.used))));
                }
                Err(_) => footprint.add_unknown(),
            },
            Command::Signal { .. } | Command::Timestamp { .. } => {}
            _ => footprint.add_unknown(),
        }
    }
    footprint.has_signals = encode::within(commands, |command| matches!(command, Command::Signal { .. }));
    footprint.has_times = encode::times_within(commands);
}

fn of(slice: &MemorySlice, effect: Effect) -> (Bytes, Effect) {
    (Bytes::of(slice), effect)
}

fn by_primitive(used: OperandUse) -> Effect {
    match used {
        OperandUse::Read => Effect::READS,
        OperandUse::Replaced => Effect::OVERWRITES,
        OperandUse::Written => Effect::MAY_WRITE,
        OperandUse::Updated => Effect::UPDATES,
    }
}

fn launch(footprint: &mut Footprint, dispatch: &Dispatch) {
    let pipeline: &dyn Any = &*dispatch.pipeline;
    let Some(pipeline) = pipeline.downcast_ref::<MetalPipeline>() else { return footprint.add_unknown() };
    let signature = dispatch.pipeline.signature();
    let only_written = signature.code.map_or(0, |code| code.only_written);
    let has = |bits: u64, index: usize| index < 64 && bits >> index & 1 == 1;
    let bound = signature.args.iter().zip(&dispatch.bindings).enumerate();
    let bound = bound.filter_map(|(index, (arg, binding))| {
        let Binding::Memory(slice) = binding else { return None };
        let effect = match arg.access {
            Access::Read => Effect::READS,
            Access::ReadWrite if has(only_written, index) => return Some(of(slice, Effect::MAY_WRITE)),
            Access::ReadWrite => Effect::UPDATES,
        };
        let steers = index >= 64 || has(pipeline.steering(), index);
        Some(of(slice, if steers { effect.steering() } else { effect }))
    });
    // Memory reached through addresses may itself contain addresses.
    let reached = dispatch.uses.iter().map(|used| {
        let effect = match used.access {
            Access::Read => Effect::READS,
            Access::ReadWrite => Effect::UPDATES,
        };
        of(&used.slice, effect.steering())
    });
    let counts = dispatch.grid.counts().map(|counts| of(counts, Effect::READS.steering()));
    footprint.add(bound.chain(reached).chain(counts));
}
