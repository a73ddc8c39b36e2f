//! Execution of commands in memory ([`ExecuteCommands`]): each record becomes a dispatch.
//!
//! Commands run in order, each after the one before it, so that every command has the effect of a barrier.

use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::{
    CommandHeader, CommandRange, CommandRecord, Error, ExecuteCommands, Fault, MemorySlice, Result,
};

use crate::encode;
use crate::pool::Worker;
use crate::stop::Stop;

/// Executes the commands of a range.
pub(crate) fn execute(execution: &ExecuteCommands, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    let range = match &execution.range {
        CommandRange::Known(range) => {
            execution.range_of([range.start, range.end.saturating_sub(range.start)])?
        }
        CommandRange::Indirect(words) => {
            execution.range_of(read::<[u32; 2]>(words, 0, CommandRange::BYTES)?)?
        }
    };
    let header = read::<CommandHeader>(&execution.commands, 0, CommandHeader::BYTES)?;
    execution.expect_encoded(&header)?;
    run(execution, range, stop, worker)
}

fn run(execution: &ExecuteCommands, range: Range<u32>, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    let used = execution.used_ranges()?;
    let Some(mut dispatch) = execution.dispatch() else { return Ok(()) };
    for index in range {
        stop.check()?;
        // A copy: the kernels that run may change it.
        let offset = ExecuteCommands::offset(index);
        let record = read::<CommandRecord>(&execution.commands, offset, CommandRecord::BYTES)?;
        if execution.decode(index, &record, &used, &mut dispatch)? {
            dispatch.prepare()?;
            encode::dispatch(&dispatch, stop, worker)
                .map_err(|error| in_command(encode::named(error, &dispatch), index))?;
        }
    }
    Ok(())
}

/// Adds the command's index to a fault.
fn in_command(error: Error, index: u32) -> Error {
    match error {
        Error::Fault(fault) => {
            Error::Fault(Fault { message: format!("command {index}: {}", fault.message), ..fault })
        }
        error => error,
    }
}

/// Reads a value of plain integers from memory.
#[allow(unsafe_code)] // reads through an address
fn read<T: Copy>(from: &MemorySlice, offset: u64, bytes: u64) -> Result<T> {
    elinvar_driver::expect_within(from.len, offset, bytes)?;
    let from = encode::address(&MemorySlice { offset: from.offset + offset, len: bytes, ..from.clone() })?;
    // SAFETY: the range is within the memory, which the submission keeps alive, and of the type's size; the types are plain integers.
    // Concurrent writes would be a race of the program.
    Ok(unsafe { from.cast::<T>().read_unaligned() })
}
