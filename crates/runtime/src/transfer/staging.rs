//! Staging memory of copies between devices, and the host's copy.

use std::panic::Location;

use elinvar_driver::{Command, Error, HostBlock, MemorySlice, Result};

use super::Route;
use crate::launch::transfer::stage;
use crate::memory::span::Span;
use crate::{Buffer, Device};

/// Staging memory of a copy: shared by both devices, or one buffer for each.
pub(crate) struct Staged {
    pub(crate) route: Route,
    /// Buffer of the source's device.
    pub(crate) from: Buffer<u8>,
    /// Buffer of the target's device.
    pub(crate) to: Buffer<u8>,
    pub(crate) bytes: u64,
}

/// Allocates the staging memory for a copy of `bytes` bytes.
pub(crate) fn staged(from: &Device, to: &Device, bytes: u64) -> Result<Staged> {
    // Whole granules, so that the other device can import it.
    let granule = to.caps().limits.wrap_granule.unwrap_or(1);
    let source = stage::<u8>(from, bytes.next_multiple_of(granule) as usize)?;
    match in_place(&source, to, granule) {
        Some(target) => Ok(Staged { route: Route::HostInPlace, from: source, to: target, bytes }),
        None => {
            let target = stage::<u8>(to, bytes as usize)?;
            Ok(Staged { route: Route::Host, from: source, to: target, bytes })
        }
    }
}

/// Imports host memory of one device into another, if that is possible.
#[allow(unsafe_code)] // uses memory of one device on another
fn in_place(source: &Buffer<u8>, to: &Device, granule: u64) -> Option<Buffer<u8>> {
    let address = source.span.storage.block.memory.host_ptr()?;
    let aligned = (address.as_ptr() as u64).is_multiple_of(granule);
    to.caps().limits.wrap_granule.filter(|_| aligned)?;
    let (bytes, owner) = (source.byte_len(), Box::new(source.clone()));
    // SAFETY: shared memory stays where the host sees it as long as the buffer lives, which is the block's owner. Only
    // the two commands of one copy use it, the second after an event that the first signals.
    let memory = unsafe { to.driver().wrap(HostBlock { address, bytes, owner }) }.ok()?;
    let block = to.pool().adopt(memory, Location::caller());
    Some(Buffer::new(Span::whole(to.clone(), block)))
}

impl Staged {
    /// Whether the host copies between the two commands.
    pub(crate) fn needs_host(&self) -> bool {
        self.route == Route::Host
    }

    /// The command of the source's device and that of the target's.
    pub(crate) fn commands(&self, source: &Span, target: &Span) -> [Command; 2] {
        let slice = |buffer: &Buffer<u8>| MemorySlice { len: self.bytes, ..buffer.span.memory_slice() };
        [
            Command::Copy { source: source.memory_slice(), target: slice(&self.from) },
            Command::Copy { source: slice(&self.to), target: target.memory_slice() },
        ]
    }
}

/// Copies from the staging buffer of one device to that of the other. The first command must have ended, and the second must not
/// have begun.
#[allow(unsafe_code)] // moves bytes that devices use
pub(crate) fn carry(from: &Buffer<u8>, to: &Buffer<u8>, bytes: u64) -> Result<()> {
    let (source, target) = (&from.span.storage.block.memory, &to.span.storage.block.memory);
    let address = source.host_ptr().ok_or_else(|| {
        let name = from.device().name();
        Error::unsupported(format!("a copy from device `{name}`: the host cannot access its shared memory"))
    })?;
    // SAFETY: the memory is at least that long and lives as long as the buffer; only the copy's own commands use it,
    // the first of which has ended.
    let source = unsafe { std::slice::from_raw_parts(address.as_ptr(), bytes as usize) };
    // SAFETY: the memory is at least that long; the only command that uses it waits for this.
    unsafe { target.write(0, source) }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use crate::{Buffer, Device, Graph, Route};

    fn cpu() -> Device {
        Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0))
    }

    /// There and back again between two devices of the CPU driver, which use each other's memory in place.
    #[test]
    #[allow(unsafe_code)] // runs a graph
    fn the_cpu_copies_from_device_to_device_in_place() {
        const N: usize = 5001;
        let (ours, theirs) = (cpu(), cpu());
        let mut source = ours.buffer_with_data(&(0..N as u32).collect::<Vec<_>>()).unwrap();
        let (mut there, mut back) = (theirs.buffer::<u32>(N).unwrap(), ours.buffer::<u32>(N).unwrap());
        let mut graph = Graph::new();
        let mut between: Buffer<u32> = graph.transient(&theirs, N).unwrap();
        graph.copy(&source, &mut between).unwrap();
        graph.fill(between.slice_mut(0..7).unwrap(), 9).unwrap();
        graph.copy(&between, &mut there).unwrap();
        graph.copy(there.slice(1..N).unwrap(), back.slice_mut(0..N - 1).unwrap()).unwrap();
        // The first copy covers all, so the zeroes are dead; the last goes back.
        let mut plan = graph.plan().unwrap();
        let stats = plan.stats();
        assert_eq!(stats.removed, ["zero"]);
        let routes: Vec<_> =
            stats.transfers.iter().map(|transfer| (transfer.bytes, transfer.route)).collect();
        let bytes = 4 * N as u64;
        assert_eq!(routes, [(bytes, Route::HostInPlace), (bytes - 4, Route::HostInPlace)]);
        let stream = ours.stream().unwrap();
        for round in 0..3 {
            let data: Vec<u32> = (0..N as u32).map(|i| i * 3 + round).collect();
            source.write(&data).unwrap();
            // SAFETY: the graph has no launches.
            unsafe { plan.run(&stream) }.unwrap();
            let expected: Vec<u32> = (0..N).map(|i| if i < 7 { 9 } else { data[i] }).collect();
            assert_eq!(back.slice(0..N - 1).unwrap().to_vec().unwrap(), expected[1..]);
            assert_eq!(there.to_vec().unwrap(), expected);
        }
    }
}
