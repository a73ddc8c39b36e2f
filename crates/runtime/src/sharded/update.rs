//! Launches that read halos, which are exchanged while the inner rows are computed.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use elinvar_driver::{Error, Result};

use super::array::Sharded;
use super::group::DeviceGroup;
use crate::{Buffer, CommandBuffer};

/// Rows that a launch of [`DeviceGroup::update`] computes.
#[derive(Debug)]
pub struct Part<'a, S: Pod, T: Pod> {
    /// Number of the member.
    pub member: usize,
    /// The rows of the array to be written.
    pub rows: Range<usize>,
    /// Where they begin in both buffers, in rows.
    pub first: usize,
    /// The shard of the source, with its halos.
    pub source: &'a Buffer<S>,
    /// The shard of the target.
    pub target: &'a mut Buffer<T>,
}

impl DeviceGroup {
    /// Computes `target` from `source` and its halos. `record` adds the launch for some rows of a member, up to three times for each: for the inner rows, while
    /// the halos are exchanged, and for those at its borders. The launch reads at most the layout's halo of rows before and behind those that it writes.
    /// Does not block.
    ///
    /// # Errors
    /// `InvalidArgument` for arrays of different layouts, lengths or divisions, or of another group; `ShardFailed` with the error of `record` or of a
    /// submission.
    pub fn update<S: Pod, T: Pod>(
        &self,
        source: &mut Sharded<S>,
        target: &mut Sharded<T>,
        mut record: impl FnMut(&mut CommandBuffer, Part<'_, S, T>) -> Result<()>,
    ) -> Result<()> {
        if [&source.group, &target.group].iter().any(|group| !Arc::ptr_eq(&group.inner, &self.inner)) {
            return Err(Error::invalid("update: an array is of another group"));
        }
        if source.division != target.division {
            return Err(Error::invalid(
                "update: the arrays are divided differently; expected the same layout, length and shares",
            ));
        }
        let division = source.division.clone();
        let halo = division.layout.halo;
        let mut add = |commands: &mut CommandBuffer, member: usize, rows: Range<usize>| {
            if rows.is_empty() {
                return Ok(());
            }
            let start = division.block(member).start;
            let part = Part {
                member,
                first: halo + rows.start,
                rows: start + rows.start..start + rows.end,
                source: &source.shards[member],
                target: &mut target.shards[member],
            };
            record(commands, part).map_err(|error| self.failed(member, error))
        };
        // Everything is recorded before anything is submitted.
        let mut recorded = Vec::new();
        for member in 0..self.len() {
            let (inner, borders) = division.inner(member);
            let (mut first, mut last) = (self.launches(member), self.launches(member));
            let has_inner = !inner.is_empty();
            add(&mut first, member, inner)?;
            for rows in borders {
                add(&mut last, member, rows)?;
            }
            recorded.push((has_inner.then_some(first), last));
        }
        let copies = source.halo_copies()?;
        let mut borders = Vec::new();
        for (member, (inner, last)) in recorded.into_iter().enumerate() {
            self.wait_for_copies(member)?;
            if let Some(inner) = inner {
                self.launch(member, inner, false)?;
            }
            borders.push(last);
        }
        self.exchange(copies)?;
        for (member, last) in borders.into_iter().enumerate() {
            self.wait_for_copies(member)?;
            self.launch(member, last, true)?;
        }
        Ok(())
    }
}
