//! [`Sharded`]: an array whose rows are divided among the devices of a group.

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use super::group::{Copies, DeviceGroup};
use super::layout::{Division, Kind, Layout, Run};
use crate::Buffer;

/// An array whose rows are divided among the devices of a group, with a buffer on each: the shard.
///
/// With a halo of `h` rows, a shard's own rows begin at row `h` of its buffer, and `h` rows of the neighbors are before and behind them. Halo rows outside
/// of the array are zero.
pub struct Sharded<T> {
    pub(super) group: DeviceGroup,
    pub(super) division: Division,
    pub(super) shards: Vec<Buffer<T>>,
}

impl DeviceGroup {
    /// An array of `len` elements, zeroed.
    ///
    /// # Errors
    /// `InvalidArgument` if the length is no multiple of the row, for an empty row, or for a halo without [`Layout::block`]; `ShardFailed` with
    /// `OutOfMemory`.
    pub fn sharded<T: Pod>(&self, len: usize, layout: Layout) -> Result<Sharded<T>> {
        let Layout { kind, row, halo } = layout;
        if row == 0 || !len.is_multiple_of(row) {
            return Err(Error::invalid(format!("sharded: {len} elements in rows of {row}")));
        }
        if halo > 0 && kind != Kind::Block {
            return Err(Error::invalid(format!("sharded: a halo of {halo} rows needs a block layout")));
        }
        Sharded::new(self, Division::new(layout, len / row, &self.shares()))
    }

    /// An array with these elements.
    ///
    /// # Errors
    /// As [`DeviceGroup::sharded`].
    pub fn sharded_with_data<T: Pod>(&self, data: &[T], layout: Layout) -> Result<Sharded<T>> {
        let mut array = self.sharded(data.len(), layout)?;
        array.write(data)?;
        Ok(array)
    }
}

impl<T: Pod> Sharded<T> {
    fn new(group: &DeviceGroup, division: Division) -> Result<Self> {
        let shard = |member| {
            let elements = division.held(member) * division.layout.row;
            group.device(member).buffer(elements).map_err(|error| group.failed(member, error))
        };
        let shards = (0..group.len()).map(shard).collect::<Result<_>>()?;
        Ok(Self { group: group.clone(), division, shards })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.division.rows * self.division.layout.row
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.division.layout
    }

    /// The buffer of a member. Panics if there is no such member.
    pub fn shard(&self, member: usize) -> &Buffer<T> {
        &self.shards[member]
    }

    /// The buffer of a member, for writing. Panics if there is no such member.
    pub fn shard_mut(&mut self, member: usize) -> &mut Buffer<T> {
        &mut self.shards[member]
    }

    /// Number of rows of a member, without halos. Panics if there is no such member.
    pub fn rows(&self, member: usize) -> usize {
        self.division.owned(member)
    }

    /// The rows of a member in a block layout; in the others, its share of the rows. Panics if there is no such member.
    pub fn block(&self, member: usize) -> Range<usize> {
        self.division.block(member)
    }

    /// Copies `data`, which must have the array's length, to the shards; halos become zero. Waits for pending work.
    ///
    /// # Errors
    /// `InvalidArgument` for another length; as [`DeviceGroup::synchronize`].
    pub fn write(&mut self, data: &[T]) -> Result<()> {
        if data.len() != self.len() {
            let (expected, given) = (self.len(), data.len());
            return Err(Error::invalid(format!("write: {given} elements to an array of {expected}")));
        }
        self.group.synchronize()?;
        let row = self.division.layout.row;
        for (member, target) in self.shards.iter_mut().enumerate() {
            // The whole buffer, so that it is readable again after a failure.
            let mut all = vec![T::zeroed(); target.len()];
            for (rows, local) in self.division.ranges(member) {
                let part = &mut all[local * row..(local + rows.len()) * row];
                part.copy_from_slice(&data[rows.start * row..rows.end * row]);
            }
            target.write(&all).map_err(|error| self.group.failed(member, error))?;
        }
        Ok(())
    }

    /// The elements; of a replicated array, those of member 0. Waits for pending work.
    ///
    /// # Errors
    /// As [`DeviceGroup::synchronize`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.group.synchronize()?;
        let row = self.division.layout.row;
        let mut data = vec![T::zeroed(); self.len()];
        let is_replicated = self.division.layout.kind == Kind::Replicated;
        for member in 0..if is_replicated { 1 } else { self.shards.len() } {
            let read = self.shards[member].slice(self.own(member)).and_then(|slice| slice.to_vec());
            let own = read.map_err(|error| self.group.failed(member, error))?;
            let mut rest = &own[..];
            for (rows, _) in self.division.ranges(member) {
                let (part, behind) = rest.split_at(rows.len() * row);
                data[rows.start * row..rows.end * row].copy_from_slice(part);
                rest = behind;
            }
        }
        Ok(data)
    }

    /// The elements of a member's own rows, in its buffer.
    fn own(&self, member: usize) -> Range<usize> {
        let Layout { row, halo, .. } = self.division.layout;
        halo * row..(halo + self.division.owned(member)) * row
    }

    /// Copies an array of the same group, length and row, whatever its layout, directly between the devices: a block array to a replicated one is an
    /// all-gather. Does not block. Halos are not written.
    ///
    /// # Errors
    /// `InvalidArgument` for another group, length or row; `ShardFailed` with the error of a submission.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        let (ours, theirs) = (&self.division, &source.division);
        if !std::sync::Arc::ptr_eq(&self.group.inner, &source.group.inner) {
            return Err(Error::invalid("copy_from: the source is of another group"));
        }
        if (ours.rows, ours.layout.row) != (theirs.rows, theirs.layout.row) {
            return Err(Error::invalid(format!(
                "copy_from: the source has {} rows of {} elements, the target {} of {}",
                theirs.rows, theirs.layout.row, ours.rows, ours.layout.row
            )));
        }
        let wanted = |member: usize| ours.ranges(member);
        let copies = plan(&self.group, &source.division, wanted, &source.shards, &mut self.shards)?;
        self.group.exchange(copies)
    }

    /// Copies the rows of neighbors to the halos of each shard. Does not block.
    ///
    /// # Errors
    /// `ShardFailed` with the error of a submission.
    pub fn exchange_halos(&mut self) -> Result<()> {
        let copies = self.halo_copies()?;
        self.group.exchange(copies)
    }

    pub(super) fn halo_copies(&mut self) -> Result<Vec<Copies>> {
        let division = &self.division;
        let wanted = |member: usize| division.halos(member).to_vec();
        let sources = self.shards.clone();
        plan(&self.group, division, wanted, &sources, &mut self.shards)
    }

    /// Divides the rows anew, by the group's current shares ([`DeviceGroup::rebalance`]). Does not block. Halos become zero until they are exchanged.
    ///
    /// # Errors
    /// `ShardFailed` with `OutOfMemory` or the error of a submission; the array is then unchanged.
    pub fn redistribute(&mut self) -> Result<()> {
        let division = Division::new(self.division.layout, self.division.rows, &self.group.shares());
        if division == self.division {
            return Ok(());
        }
        let mut next = Self::new(&self.group, division)?;
        next.copy_from(self)?;
        *self = next;
        Ok(())
    }
}

/// The copies of wanted rows, given with their first row in the target's buffer, from the shards that have them.
fn plan<T: Pod>(
    group: &DeviceGroup,
    from: &Division,
    wanted: impl Fn(usize) -> Vec<(Range<usize>, usize)>,
    sources: &[Buffer<T>],
    targets: &mut [Buffer<T>],
) -> Result<Vec<Copies>> {
    let row = from.layout.row;
    let elements = |first: usize, rows: usize| first * row..(first + rows) * row;
    let mut all = Vec::new();
    for (member, target) in targets.iter_mut().enumerate() {
        let mut copies = Copies { member, sources: Vec::new(), commands: group.copies(member) };
        for (rows, local) in wanted(member) {
            for (offset, Run { member: of, local: first, rows }) in from.runs(rows, member) {
                let mut copy = || {
                    let to = target.slice_mut(elements(local + offset, rows))?;
                    copies.commands.copy(sources[of].slice(elements(first, rows))?, to)
                };
                copy().map_err(|error| group.failed(member, error))?;
                if !copies.sources.contains(&of) {
                    copies.sources.push(of);
                }
            }
        }
        if !copies.sources.is_empty() {
            all.push(copies);
        }
    }
    Ok(all)
}

impl<T> fmt::Debug for Sharded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Division { layout, rows, .. } = &self.division;
        write!(f, "Sharded<{}>({rows} rows, {layout:?}, on {:?})", std::any::type_name::<T>(), self.group)
    }
}
