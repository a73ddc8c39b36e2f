//! Conversion of commands in messages to commands of the inner device.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::{
    Access, Binding, Command, Dispatch, Error, Grid, MemorySlice, Result, TimestampSlot, Use,
};

use super::table::Table;
use crate::wire::{Extent, Launch, Order, Slice, Value};

/// Converts a command; appends the slot of a timestamp to `stamps`.
pub(super) fn command(
    table: &Table,
    order: &Order<'_>,
    stamps: &mut Vec<Arc<TimestampSlot>>,
) -> Result<Command> {
    Ok(match order {
        Order::Dispatch(launch) => Command::Dispatch(dispatch(table, launch)?),
        Order::Copy { source, target } => {
            Command::Copy { source: slice(table, *source)?, target: slice(table, *target)? }
        }
        Order::Fill { target, pattern } => {
            Command::Fill { target: slice(table, *target)?, pattern: pattern.to_vec() }
        }
        Order::Timestamp => {
            let into = Arc::new(TimestampSlot::new());
            stamps.push(into.clone());
            Command::Timestamp { into }
        }
    })
}

fn dispatch(table: &Table, launch: &Launch<'_>) -> Result<Dispatch> {
    let function = found(&table.functions, launch.function)?;
    if function.is_general {
        function.pipeline.prepare_for(launch.group, function.largest)?;
    }
    let bindings = launch.bindings.iter().map(|value| {
        Ok(match value {
            Value::Memory(bytes) => Binding::Memory(slice(table, *bytes)?),
            Value::Bytes(bytes) => Binding::bytes(bytes),
            Value::Threadgroup(bytes) => Binding::Threadgroup(*bytes),
            Value::Unbound => Binding::Unbound,
        })
    });
    let uses = launch.uses.iter().map(|(bytes, written)| {
        let access = if *written { Access::ReadWrite } else { Access::Read };
        Ok(Use { slice: slice(table, *bytes)?, access })
    });
    Ok(Dispatch {
        pipeline: function.pipeline.clone(),
        bindings: bindings.collect::<Result<_>>()?,
        uses: uses.collect::<Result<_>>()?,
        grid: match &launch.grid {
            Extent::Threads(threads) => Grid::Threads(*threads),
            Extent::Indirect(counts) => Grid::Indirect(slice(table, *counts)?),
        },
        group: launch.group,
        label: launch.label.clone().map(Arc::new),
    })
}

fn slice(table: &Table, slice: Slice) -> Result<MemorySlice> {
    let Slice { memory, offset, len } = slice;
    Ok(MemorySlice { memory: found(&table.memories, memory)?.clone(), offset, len })
}

/// The object with a number, or an error.
fn found<T>(all: &HashMap<u64, Result<T>>, number: u64) -> Result<&T> {
    match all.get(&number) {
        Some(Ok(thing)) => Ok(thing),
        Some(Err(error)) => Err(error.clone()),
        None => Err(Error::invalid(format!("unknown object {number}"))),
    }
}
