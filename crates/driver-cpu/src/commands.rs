//! Execution of commands in memory ([`ExecuteCommands`]) and of launches that kernels enqueue ([`NestedLaunch`]): each record becomes a
//! dispatch.
//!
//! Commands run in order, each after the one before it, so that every command has the effect of a barrier. So do the launches of a level.

use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::{
    CommandHeader, CommandRange, CommandRecord, Dispatch, Error, ExecuteCommands, Fault, MemorySlice,
    NestedLaunch, QueueHeader, Result,
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
            launch(&dispatch, stop, worker).map_err(|error| within(error, || format!("command {index}")))?;
        }
    }
    Ok(())
}

/// Launches a kernel, and the launches that it enqueues, level by level.
pub(crate) fn execute_nested(nested: &NestedLaunch, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    let children = &nested.children;
    let queue = &children.commands;
    let (pipelines, capacity) = (children.pipelines.len() as u32, children.capacity);
    let header = || read::<QueueHeader>(queue, 0, QueueHeader::BYTES);
    let set_state =
        |half, tickets| write(queue, QueueHeader::STATE.start, &NestedLaunch::state(half, tickets));
    let used = children.used_ranges()?;
    set_state(0, [0, 0])?;
    launch(&nested.root, stop, worker)?;
    let Some(mut dispatch) = children.dispatch() else { return Ok(()) };
    let (mut level, mut half) = (0, 0);
    loop {
        let state = header()?;
        nested.expect_room(&state, half)?;
        let count = state.tickets[half as usize];
        let record = |index: u32| {
            let index = u64::from(half) * u64::from(capacity) + u64::from(index);
            read::<CommandRecord>(queue, QueueHeader::record(pipelines, index), CommandRecord::BYTES)
        };
        if count == 0 {
            return Ok(());
        }
        if level == nested.depth {
            return Err(nested.too_deep(&record(0)?));
        }
        level += 1;
        let next = 1 - half;
        set_state(next, [0, 0])?;
        for index in 0..count {
            stop.check()?;
            // A copy: the kernels that run may change it.
            let record = record(index)?;
            if nested.decode((level, index), &record, &used, &mut dispatch)? {
                dispatch.prepare()?;
                launch(&dispatch, stop, worker)
                    .map_err(|error| within(error, || nested.place(level, index, &record)))?;
                nested.expect_room(&header()?, next)?;
            }
        }
        half = next;
    }
}

fn launch(dispatch: &Dispatch, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    encode::dispatch(dispatch, stop, worker).map_err(|error| encode::named(error, dispatch))
}

/// Adds a place to a fault.
fn within(error: Error, place: impl FnOnce() -> String) -> Error {
    match error {
        Error::Fault(fault) => {
            Error::Fault(Fault { message: format!("{}: {}", place(), fault.message), ..fault })
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

#[allow(unsafe_code)] // writes through an address
fn write(to: &MemorySlice, offset: u64, bytes: &[u8]) -> Result<()> {
    let len = bytes.len() as u64;
    elinvar_driver::expect_within(to.len, offset, len)?;
    let to = encode::address(&MemorySlice { offset: to.offset + offset, len, ..to.clone() })?;
    // SAFETY: the range is within the memory, which the submission keeps alive. Concurrent accesses would be a race of the program.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Ok(())
}
