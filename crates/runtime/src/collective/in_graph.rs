//! Collectives as nodes of graphs.
//!
//! In a plan, a node is two commands that do nothing, the second of which waits until the member's thread has run the operation; it has the node's memory
//! accesses. The operations of a run are passed to the thread when the run is submitted, in the order in which the nodes were added.

use std::sync::Arc;

use elinvar_driver::{CollectiveCall, Result};

use super::communicator::Communicator;
use super::operation::Operation;
use crate::Event;
use crate::memory::span::Span;
use crate::memory::usage::Storage;

/// An operation of a member.
pub(crate) struct GraphCollective {
    member: Communicator,
    call: CollectiveCall,
}

impl GraphCollective {
    /// The operation, and its source and target.
    pub(crate) fn new(
        member: &Communicator,
        mut operation: Operation<'_>,
    ) -> Result<(Self, [Option<Span>; 2])> {
        let call = member.call(&mut operation)?;
        Ok((Self { member: member.clone(), call }, [operation.source, operation.target]))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.call.collective.name()
    }

    /// Whether both are operations of the same member.
    pub(crate) fn is_of(&self, member: &Communicator) -> bool {
        self.member.is(member)
    }

    /// Whether it is an operation of another member of the same communicator, on the same device.
    pub(crate) fn shares_device(&self, member: &Communicator) -> bool {
        self.member.is_with(member) && !self.member.is(member) && self.member.device() == member.device()
    }
}

/// An operation in a plan.
pub(crate) struct PlannedCollective {
    /// The command after which it begins: branch and number.
    pub(crate) sent: (usize, u32),
    operation: Arc<GraphCollective>,
    storages: Vec<Arc<Storage>>,
    /// Reaches the next value in each run.
    pub(crate) done: Event,
    base: u64,
}

impl PlannedCollective {
    pub(crate) fn new(
        sent: (usize, u32),
        operation: Arc<GraphCollective>,
        storages: Vec<Arc<Storage>>,
    ) -> Result<Self> {
        let done = operation.member.device().event()?;
        Ok(Self { sent, operation, storages, done, base: 0 })
    }

    /// The value that tells the end of the operation in this run.
    pub(crate) fn value(&self) -> u64 {
        self.base + 1
    }

    /// Passes the operation to the member's thread, behind the work that signals `ready`.
    pub(crate) fn begin(&self, ready: (Event, u64)) {
        let done = (self.done.clone(), self.value());
        let call = self.operation.call.clone();
        self.operation.member.begin(call, ready, done, self.storages.clone());
    }

    pub(crate) fn count(&mut self) {
        self.base += 1;
    }

    /// Replaces the event, which may have failed.
    pub(crate) fn renew(&mut self) -> Result<()> {
        (self.done, self.base) = (self.operation.member.device().event()?, 0);
        Ok(())
    }
}
