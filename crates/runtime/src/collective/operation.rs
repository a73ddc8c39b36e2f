//! [`Operation`]: a collective with the buffers of one member.

use std::marker::PhantomData;

use bytemuck::Pod;
use elinvar_driver::{Collective, Error, Reduction, Result, Scalar};

use crate::launch::args::Element;
use crate::memory::span::Span;
use crate::{BufferSlice, BufferSliceMut};

/// A collective with the buffers of one member, for [`crate::Stream::collective`]. All members state the same operation, type and number of elements.
///
/// `source` and `target` are buffers or slices of the member's device; those that only the root has are `Some` there and `None` elsewhere.
#[derive(Debug)]
pub struct Operation<'a> {
    pub(super) collective: Collective,
    pub(super) source: Option<Span>,
    pub(super) target: Option<Span>,
    element: Element,
    element_size: u64,
    buffers: PhantomData<&'a mut ()>,
}

impl<'a> Operation<'a> {
    fn of<T: Pod>(
        collective: Collective,
        source: Option<BufferSlice<'a, T>>,
        target: Option<BufferSliceMut<'a, T>>,
    ) -> Self {
        let (source, target) = (source.map(|slice| slice.span), target.map(|slice| slice.span));
        let (element, element_size) = (Element::of::<T>(), size_of::<T>() as u64);
        Self { collective, source, target, element, element_size, buffers: PhantomData }
    }

    /// The root's elements to the buffers of all members.
    pub fn broadcast<T: Pod>(root: u32, buffer: impl Into<BufferSliceMut<'a, T>>) -> Self {
        Self::of(Collective::Broadcast { root }, None, Some(buffer.into()))
    }

    /// The reduction of all sources to the root's target, element by element.
    pub fn reduce<T: Pod>(
        root: u32,
        reduction: Reduction,
        source: impl Into<BufferSlice<'a, T>>,
        target: Option<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::Reduce { root, reduction }, Some(source.into()), target)
    }

    /// The reduction of all sources to all targets, element by element.
    pub fn all_reduce<T: Pod>(
        reduction: Reduction,
        source: impl Into<BufferSlice<'a, T>>,
        target: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::AllReduce { reduction }, Some(source.into()), Some(target.into()))
    }

    /// The reduction of all buffers to all of them, element by element.
    pub fn all_reduce_in_place<T: Pod>(
        reduction: Reduction,
        buffer: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        let operation = Self::of(Collective::AllReduce { reduction }, None, Some(buffer.into()));
        Self { source: operation.target.clone(), ..operation }
    }

    /// The sources of all members, in the order of ranks, to all targets, which have `size` times as many elements.
    pub fn all_gather<T: Pod>(
        source: impl Into<BufferSlice<'a, T>>,
        target: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::AllGather, Some(source.into()), Some(target.into()))
    }

    /// Part `rank` of the reduction of all sources to each target; sources have `size` times as many elements.
    pub fn reduce_scatter<T: Pod>(
        reduction: Reduction,
        source: impl Into<BufferSlice<'a, T>>,
        target: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::ReduceScatter { reduction }, Some(source.into()), Some(target.into()))
    }

    /// Part `r` of each source to part `rank` of the target of member `r`. Both have a multiple of `size` elements.
    pub fn all_to_all<T: Pod>(
        source: impl Into<BufferSlice<'a, T>>,
        target: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::AllToAll, Some(source.into()), Some(target.into()))
    }

    /// The sources of all members, in the order of ranks, to the root's target, which has `size` times as many elements.
    pub fn gather<T: Pod>(
        root: u32,
        source: impl Into<BufferSlice<'a, T>>,
        target: Option<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::Gather { root }, Some(source.into()), target)
    }

    /// Part `r` of the root's source to the target of member `r`; the source has `size` times as many elements.
    pub fn scatter<T: Pod>(
        root: u32,
        source: Option<BufferSlice<'a, T>>,
        target: impl Into<BufferSliceMut<'a, T>>,
    ) -> Self {
        Self::of(Collective::Scatter { root }, source, Some(target.into()))
    }

    /// The source to member `to`, which receives.
    pub fn send<T: Pod>(to: u32, source: impl Into<BufferSlice<'a, T>>) -> Self {
        Self::of(Collective::Send { to }, Some(source.into()), None)
    }

    /// The target from member `from`, which sends.
    pub fn receive<T: Pod>(from: u32, target: impl Into<BufferSliceMut<'a, T>>) -> Self {
        Self::of(Collective::Receive { from }, None, Some(target.into()))
    }

    /// Ends when all members have begun it.
    pub fn barrier() -> Self {
        Self::of::<u8>(Collective::Barrier, None, None)
    }

    /// Type of the elements, if it can be reduced, its size, and the number of elements of a part.
    ///
    /// # Errors
    /// `InvalidArgument` for a rank that the communicator does not have, or a buffer that is missing, superfluous or of another length.
    pub(super) fn resolve(&mut self, rank: u32, size: u32) -> Result<(Option<Scalar>, u64, u64)> {
        let (collective, name) = (self.collective, self.collective.name());
        if let Some(peer) = collective.peer().filter(|peer| *peer >= size) {
            return Err(Error::invalid(format!("{name}: rank {peer} of a communicator of {size} members")));
        }
        match collective {
            Collective::Broadcast { root } if root == rank => self.source = self.target.clone(),
            Collective::Send { to: peer } | Collective::Receive { from: peer } if peer == rank => {
                return Err(Error::invalid(format!("{name}: rank {peer} is the member itself")));
            }
            _ => {}
        }
        let (element, element_size) = match self.element {
            Element::Scalars { scalar, .. } => (Some(scalar), scalar.size()),
            _ => (None, self.element_size),
        };
        if element.is_none() && collective.reduction().is_some() {
            return Err(Error::unsupported(format!("{name}: elements of this type cannot be reduced")));
        }
        let (of_source, of_target) = collective.parts(rank, size);
        let sides = [("source", &self.source, of_source), ("target", &self.target, of_target)];
        let mut part = None;
        for (side, span, parts) in sides {
            let (bytes, parts) = (span.as_ref().map(|span| span.len), u64::from(parts));
            match bytes {
                None if parts > 0 => {
                    return Err(Error::invalid(format!("{name}: rank {rank} has no {side}")));
                }
                Some(_) if parts == 0 => {
                    return Err(Error::invalid(format!(
                        "{name}: rank {rank} has a {side}, which only the root has"
                    )));
                }
                Some(bytes) => {
                    let elements = bytes / element_size;
                    if elements % parts != 0 || part.is_some_and(|part| part != elements / parts) {
                        return Err(Error::invalid(format!(
                            "{name}: the {side} of rank {rank} has {elements} elements; it has {parts} parts, and each part the same \
                             number of elements as that of the other side"
                        )));
                    }
                    part = Some(elements / parts);
                }
                None => {}
            }
        }
        Ok((element, element_size, part.unwrap_or(0)))
    }
}
