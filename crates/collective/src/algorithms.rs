//! The algorithms, over [`Exchange`].
//!
//! | collective | algorithm |
//! |---|---|
//! | broadcast, reduce | a chain of all ranks, pipelined; of few bytes, a binomial tree |
//! | all-reduce | of few bytes, the trees of a reduce and a broadcast; otherwise a reduce-scatter and an all-gather around the ring: each rank sends `2 (n − 1) / n` of the data (Patarasuk and Yuan, 2009) |
//! | all-gather, reduce-scatter | around the ring |
//! | all-to-all | `n − 1` exchanges, with rank `r + s` and from rank `r − s` |
//! | gather, scatter | the root with all others at once |
//! | barrier | dissemination (Hensgen, Finkel and Manber, 1988) |

use std::ops::Range;

use elinvar_driver::{Collective, CollectiveCall, Reduction, Result, Scalar};

use crate::exchange::{Exchange, Get, Put};
use crate::model::Algorithm;

impl Exchange<'_> {
    /// Runs a call that has been checked. The target of a broadcast's root and of an all-reduce holds the source.
    pub(crate) fn collective(
        &mut self,
        call: &CollectiveCall,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        let part = call.part_bytes() as usize;
        let reduction = call.element.zip(call.collective.reduction());
        if Algorithm::of(call.collective, self.size(), part) == Algorithm::Tree {
            return self.by_tree(call.collective, source, target, reduction);
        }
        match call.collective {
            Collective::Broadcast { root } => self.broadcast(root, target),
            Collective::Reduce { root, .. } => self.reduce(root, source, target, reduction),
            Collective::AllReduce { .. } => self.all_reduce(target, call.element_size as usize, reduction),
            Collective::AllGather => self.all_gather(source, target, part),
            Collective::ReduceScatter { .. } => self.reduce_scatter(source, target, reduction),
            Collective::AllToAll => self.all_to_all(source, target, part),
            Collective::Gather { root } => self.gather(root, source, target, part),
            Collective::Scatter { root } => self.scatter(root, source, target, part),
            Collective::Send { to } => self.run(&mut [Put::new(to, source)], &mut []),
            Collective::Receive { from } => self.run(&mut [], &mut [Get::new(from, target)]),
            Collective::Barrier => self.barrier(),
        }
    }

    fn size(&self) -> u32 {
        self.shared.segment.size()
    }

    /// The rank that follows at a distance.
    fn after(&self, distance: u32) -> u32 {
        (self.rank + distance) % self.size()
    }

    /// The rank that comes before at a distance of at most the size.
    fn before(&self, distance: u32) -> u32 {
        (self.rank + self.size() - distance) % self.size()
    }

    /// Neighbors in the chain that begins with a rank.
    fn chain(&self, first: u32) -> (Option<u32>, Option<u32>) {
        let place = (self.rank + self.size() - first) % self.size();
        let previous = (place > 0).then(|| self.before(1));
        let next = (place + 1 < self.size()).then(|| self.after(1));
        (previous, next)
    }

    fn by_tree(
        &mut self,
        collective: Collective,
        source: &[u8],
        target: &mut [u8],
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        match collective {
            Collective::Broadcast { root } => self.broadcast_tree(root, target),
            Collective::Reduce { root, .. } if root == self.rank => {
                target.copy_from_slice(source);
                self.reduce_tree(root, target, reduction)
            }
            Collective::Reduce { root, .. } => self.reduce_tree(root, &mut source.to_vec(), reduction),
            _ => {
                self.reduce_tree(0, target, reduction)?;
                self.broadcast_tree(0, target)
            }
        }
    }

    /// Place of this rank in a tree with a root, and the distances of its levels from the leaves on.
    fn tree(&self, root: u32) -> (u32, impl DoubleEndedIterator<Item = u32> + use<>) {
        let size = self.size();
        let place = (self.rank + size - root) % size;
        (place, (0..size.next_power_of_two().ilog2()).map(|level| 1 << level))
    }

    /// A member receives from the one whose place lacks its lowest bit, and sends to those whose places have a lower one, the farthest first.
    fn broadcast_tree(&mut self, root: u32, bytes: &mut [u8]) -> Result<()> {
        let (size, (place, distances)) = (self.size(), self.tree(root));
        for distance in distances.rev() {
            if place % (2 * distance) == distance {
                let from = self.before(distance);
                self.run(&mut [], &mut [Get::new(from, bytes)])?;
            } else if place.is_multiple_of(2 * distance) && place + distance < size {
                let to = self.after(distance);
                self.run(&mut [Put::new(to, bytes)], &mut [])?;
            }
        }
        Ok(())
    }

    /// The same in reverse.
    fn reduce_tree(
        &mut self,
        root: u32,
        bytes: &mut [u8],
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let (size, (place, distances)) = (self.size(), self.tree(root));
        for distance in distances {
            if place % (2 * distance) == distance {
                let to = self.before(distance);
                return self.run(&mut [Put::new(to, bytes)], &mut []);
            }
            if place + distance < size {
                let from = self.after(distance);
                self.run(&mut [], &mut [Get::new(from, bytes).reducing(reduction)])?;
            }
        }
        Ok(())
    }

    pub(crate) fn broadcast(&mut self, root: u32, target: &mut [u8]) -> Result<()> {
        let (from, to) = self.chain(root);
        self.relay(from, to, target, None)
    }

    fn reduce(
        &mut self,
        root: u32,
        source: &[u8],
        target: &mut [u8],
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let (from, to) = self.chain((root + 1) % self.size());
        if self.rank == root {
            target.copy_from_slice(source);
            return self.relay(from, to, target, reduction);
        }
        self.relay(from, to, &mut source.to_vec(), reduction)
    }

    fn all_reduce(
        &mut self,
        target: &mut [u8],
        unit: usize,
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let size = self.size();
        let elements = (target.len() / unit.max(1)) as u64;
        let bound = |part: u64| (elements * part / u64::from(size)) as usize * unit;
        let part = |rank: u32| bound(u64::from(rank))..bound(u64::from(rank) + 1);
        for step in 0..size - 1 {
            let (give, take) = (part(self.before(step)), part(self.before(step + 1)));
            self.pass(target, give, take, reduction)?;
        }
        for step in 0..size - 1 {
            let (give, take) = (part(self.before((step + size - 1) % size)), part(self.before(step)));
            self.pass(target, give, take, None)?;
        }
        Ok(())
    }

    /// Sends one part of the bytes to the next rank, and receives another from the previous one.
    fn pass(
        &mut self,
        bytes: &mut [u8],
        give: Range<usize>,
        take: Range<usize>,
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let (give, take) = disjoint(bytes, give, take);
        let get = Get::new(self.before(1), take).reducing(reduction);
        self.run(&mut [Put::new(self.after(1), give)], &mut [get])
    }

    fn all_gather(&mut self, source: &[u8], target: &mut [u8], bytes: usize) -> Result<()> {
        let part = |rank: u32| rank as usize * bytes..(rank as usize + 1) * bytes;
        target[part(self.rank)].copy_from_slice(source);
        for step in 0..self.size() - 1 {
            let (give, take) = (part(self.before(step)), part(self.before(step + 1)));
            self.pass(target, give, take, None)?;
        }
        Ok(())
    }

    fn reduce_scatter(
        &mut self,
        source: &[u8],
        target: &mut [u8],
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let bytes = target.len();
        let part = |rank: u32| rank as usize * bytes..(rank as usize + 1) * bytes;
        let size = self.size();
        let mut held = source[part(self.before(1))].to_vec();
        for step in 0..size - 1 {
            // The last part is this rank's.
            let mut next = source[part(self.before((step + 2) % size))].to_vec();
            let get = Get::new(self.before(1), &mut next).reducing(reduction);
            self.run(&mut [Put::new(self.after(1), &held)], &mut [get])?;
            held = next;
        }
        target.copy_from_slice(&held);
        Ok(())
    }

    fn all_to_all(&mut self, source: &[u8], target: &mut [u8], bytes: usize) -> Result<()> {
        let part = |rank: u32| rank as usize * bytes..(rank as usize + 1) * bytes;
        target[part(self.rank)].copy_from_slice(&source[part(self.rank)]);
        for step in 1..self.size() {
            let (to, from) = (self.after(step), self.before(step));
            let get = Get::new(from, &mut target[part(from)]);
            self.run(&mut [Put::new(to, &source[part(to)])], &mut [get])?;
        }
        Ok(())
    }

    fn gather(&mut self, root: u32, source: &[u8], target: &mut [u8], bytes: usize) -> Result<()> {
        if self.rank != root {
            return self.run(&mut [Put::new(root, source)], &mut []);
        }
        let mut gets = Vec::new();
        let mut rest = target;
        for rank in 0..self.size() {
            let (part, behind) = rest.split_at_mut(bytes);
            match rank == root {
                true => part.copy_from_slice(source),
                false => gets.push(Get::new(rank, part)),
            }
            rest = behind;
        }
        self.run(&mut [], &mut gets)
    }

    fn scatter(&mut self, root: u32, source: &[u8], target: &mut [u8], bytes: usize) -> Result<()> {
        if self.rank != root {
            return self.run(&mut [], &mut [Get::new(root, target)]);
        }
        let part = |rank: u32| &source[rank as usize * bytes..(rank as usize + 1) * bytes];
        target.copy_from_slice(part(root));
        let others = (0..self.size()).filter(|rank| *rank != root);
        let mut puts: Vec<Put<'_>> = others.map(|rank| Put::new(rank, part(rank))).collect();
        self.run(&mut puts, &mut [])
    }

    fn barrier(&mut self) -> Result<()> {
        let mut distance = 1;
        while distance < self.size() {
            let (to, from) = (self.after(distance), self.before(distance));
            self.run(&mut [Put::new(to, &[])], &mut [Get::new(from, &mut [])])?;
            distance *= 2;
        }
        Ok(())
    }
}

/// Two ranges that do not overlap, the first to be read and the second to be written.
fn disjoint(bytes: &mut [u8], one: Range<usize>, two: Range<usize>) -> (&[u8], &mut [u8]) {
    if one.end <= two.start {
        let (low, high) = bytes.split_at_mut(two.start);
        return (&low[one], &mut high[..two.end - two.start]);
    }
    let (low, high) = bytes.split_at_mut(one.start);
    (&high[..one.end - one.start], &mut low[two])
}
