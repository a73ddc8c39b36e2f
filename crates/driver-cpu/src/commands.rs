//! Execution of commands in memory ([`ExecuteCommands`]) and of launches that kernels enqueue ([`NestedLaunch`]): each record becomes a
//! dispatch.
//!
//! Commands between two barriers run as one [`Batch`], and so do the launches of a level.

use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::{
    CommandHeader, CommandRange, CommandRecord, ExecuteCommands, MemorySlice, NestedLaunch, QueueHeader,
    Result,
};

use crate::batch::Batch;
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
    let place = |[index, _]: [u32; 2]| format!("command {index}");
    let mut batch = Batch::default();
    let mut add = |index: u32, batch: &mut Batch, worker: &mut Worker| {
        stop.check()?;
        let offset = ExecuteCommands::offset(index);
        // A copy: the kernels that run may change it.
        let read = || read::<CommandRecord>(&execution.commands, offset, CommandRecord::BYTES);
        let mut record = read()?;
        if record.flags & CommandRecord::BARRIER != 0 {
            batch.run(worker, place)?;
            record = read()?;
        }
        if execution.decode(index, &record, &used, &mut dispatch)? {
            dispatch.prepare()?;
            batch.push(&dispatch, [index, 0], (stop, worker), place)?;
        }
        Ok(())
    };
    for index in range {
        if let Err(error) = add(index, &mut batch, worker) {
            return Err(encode::named(batch.run_before(error, worker, place), &execution.label));
        }
    }
    batch.run(worker, place).map_err(|error| encode::named(error, &execution.label))
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
    encode::launch_one(&nested.root, stop, worker)?;
    let Some(mut dispatch) = children.dispatch() else { return Ok(()) };
    let (mut level, mut half) = (0, 0);
    let mut batch = Batch::default();
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
        let place = |[index, parent]: [u32; 2]| nested.place(level, index, parent);
        let mut add = |index: u32, batch: &mut Batch, worker: &mut Worker| {
            stop.check()?;
            let record = record(index)?;
            if nested.decode((level, index), &record, &used, &mut dispatch)? {
                dispatch.prepare()?;
                batch.push(&dispatch, [index, record.parent], (stop, worker), place)?;
            }
            Ok(())
        };
        for index in 0..count {
            if let Err(error) = add(index, &mut batch, worker) {
                return Err(encode::named(batch.run_before(error, worker, place), &nested.root.label));
            }
        }
        batch.run(worker, place).map_err(|error| encode::named(error, &nested.root.label))?;
        half = next;
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
