//! Collectives on all devices, compared with a bare loop over NCCL.

use std::path::PathBuf;

use elinvar::{Buffer, Communicator, HostAccess, Operation, Reduction, Stream};

use super::bare::Nccl;
use super::{Figure, Setup, medians, timed};
use crate::failure::{Failure, Result};
use crate::report::time_text;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Operations on all elements, one after the other, and one wait.
    Many,
    /// One operation on all elements.
    One,
    /// Operations on 1024 elements.
    Small,
}

/// A member with its memory.
struct Member {
    communicator: Communicator,
    stream: Stream,
    /// All elements.
    whole: Buffer<f32>,
    /// Those of one member.
    part: Buffer<f32>,
}

impl Member {
    fn submit(&mut self, kind: Kind) -> elinvar::Result<elinvar::Completion> {
        let (whole, part, sum) = (&mut self.whole, &mut self.part, Reduction::Sum);
        let operation = match kind {
            Kind::AllReduce => Operation::all_reduce_in_place(sum, whole),
            Kind::AllGather => Operation::all_gather(&*part, whole),
            Kind::ReduceScatter => Operation::reduce_scatter(sum, &*whole, part),
            Kind::Broadcast => Operation::broadcast(0, whole),
        };
        self.stream.collective(&self.communicator, operation)
    }
}

pub(super) fn measure(setup: &Setup, kind: Kind, load: Load) -> Result<Figure> {
    setup.expect_several()?;
    let size = setup.count();
    // On GPUs as many operations as NVIDIA's nccl-tests submit before they wait.
    let (elements, count) = match (load, setup.is_gpu()) {
        (Load::Small, _) => (1024, 16),
        (Load::Many, true) => (64 << 20, 20),
        (Load::One, true) => (64 << 20, 1),
        (Load::Many | Load::One, false) => (4 << 20, 1),
    };
    let elements = elements / size * size;
    let mut members = Vec::new();
    for communicator in Communicator::all(&setup.devices)? {
        let device = communicator.device().clone();
        let buffer = |len: usize| device.buffer_for::<f32>(len, HostAccess::Never);
        let (whole, part) = (buffer(elements)?, buffer(elements / size)?);
        members.push(Member { stream: device.stream()?, communicator, whole, part });
    }
    check(&mut members, kind)?;
    let engine = members[0].communicator.engine();
    let mut ours = || {
        timed(|| {
            let mut pending = Vec::new();
            for _ in 0..count {
                for member in &mut members {
                    pending.push(member.submit(kind)?);
                }
            }
            pending.iter().try_for_each(|done| done.wait().map(drop))?;
            Ok(())
        })
    };
    let bytes = (elements * 4) as f64;
    let text = |ns: u64| {
        let each = ns / count as u64;
        format!("{} ({:.1} GB/s)", time_text(each), bytes / each.max(1) as f64)
    };
    if !setup.is_cuda() {
        let ours = medians(&mut [&mut ours])?[0] / count as u64;
        let value = ours as f64 / 1e3;
        return Ok(Figure { value, unit: "µs", detail: format!("{engine}: {}", text(ours * count as u64)) });
    }
    let details = setup.devices[0].details();
    let path = details.into_iter().find(|(name, _)| *name == "NCCL").map(|(_, path)| PathBuf::from(path));
    let path = path.filter(|path| path.exists());
    let path = path.ok_or_else(|| elinvar::Error::unsupported("NCCL is not installed"))?;
    let bare = Nccl::new(&path, size, elements)?;
    let times = medians(&mut [&mut ours, &mut || bare.run(kind, count)])?;
    let value = times[1] as f64 / times[0].max(1) as f64;
    let detail = format!("{engine}: {} against {} of bare NCCL", text(times[0]), text(times[1]));
    Ok(Figure { value, unit: "x", detail })
}

/// Fails unless every element is right, once.
fn check(members: &mut [Member], kind: Kind) -> Result<()> {
    let size = members.len();
    let number = |rank: usize, i: usize| ((rank * 5 + i * 7) % 13) as f32;
    for (rank, member) in members.iter_mut().enumerate() {
        let part = member.part.len();
        let whole: Vec<f32> = (0..part * size).map(|i| number(rank, i)).collect();
        member.whole.write(&whole)?;
        member.part.write(&whole[..part])?;
    }
    for member in members.iter_mut() {
        member.submit(kind)?;
    }
    let sum = |i: usize| (0..size).map(|rank| number(rank, i)).sum::<f32>();
    for (rank, member) in members.iter().enumerate() {
        let part = member.part.len();
        let expected = |i: usize| match kind {
            Kind::AllReduce => sum(i),
            Kind::AllGather => number(i / part, i % part),
            Kind::ReduceScatter => sum(rank * part + i),
            Kind::Broadcast => number(0, i),
        };
        let got = if kind == Kind::ReduceScatter { &member.part } else { &member.whole }.to_vec()?;
        if let Some(at) = (0..got.len()).find(|at| got[*at].to_bits() != expected(*at).to_bits()) {
            let (got, expected) = (got[at], expected(at));
            return Err(Failure::Machine(format!("rank {rank}, element {at}: {got}, expected {expected}")));
        }
    }
    Ok(())
}
