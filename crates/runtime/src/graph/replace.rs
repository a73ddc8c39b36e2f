//! [`Plan::set`]: replaces values and buffers for later runs.
//!
//! All replacements are validated against the kernels' signatures before anything changes. Pending runs are not affected.

use std::sync::Arc;

use elinvar_driver::{Binding, Command, Dispatch, Error, Grid, Result};

use super::parameters::{ParameterKey, Subject};
use super::plan::{CommandIndex, Part, Plan};
use crate::Device;
use crate::identity::identity;
use crate::launch::args::{Arg, Element, Value};
use crate::launch::bind::rebind;
use crate::launch::grid::check_counts;
use crate::launch::recording::Recording;
use crate::memory::memory_effects::{memory_effects, slices_mut};
use crate::memory::operands::place;
use crate::memory::span::Span;
use crate::memory::usage::{Access, Storage, Usage};

/// The current buffer of a parameter, and its uses.
#[derive(Clone)]
pub(super) struct Replaced {
    span: Span,
    slices: Vec<Slice>,
    /// Entries of the usage lists: segment, part, index, and whether the whole buffer is used.
    usages: Vec<(usize, usize, usize, bool)>,
}

/// A range of the buffer in a command.
#[derive(Clone, Copy)]
struct Slice {
    command_index: CommandIndex,
    /// Index among the ranges that the command names.
    number: usize,
    /// Its offset in the buffer.
    offset: u64,
}

impl Plan {
    /// Replaces the value or buffer of a parameter, given by name or handle, for later runs. A buffer must have the length of the
    /// current one, and is passed as `&mut` if the graph writes it.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such parameter; with kernel, argument and index if the argument is invalid, as in
    /// [`crate::Kernel::launch`]; for a buffer that the graph also uses otherwise, if either use writes it. Nothing changes in
    /// that case.
    pub fn set<'k>(&mut self, parameter: impl Into<ParameterKey<'k>>, value: impl Into<Arg>) -> Result<()> {
        let index = self.find(parameter.into())?;
        let value = value.into();
        match self.parameters[index].subject.clone() {
            Subject::Values(values) => self.set_value(&values, &value),
            Subject::Buffer(storage) => {
                let name = self.parameters[index].name.clone();
                let Value::Memory { span, element, writable } = value.value else {
                    return Err(Error::invalid(format!("parameter `{name}` is a buffer; given a value")));
                };
                let device = storage.device.clone();
                self.set_buffer(index, &New { name, span, element, writable, device })
            }
        }
    }

    fn find(&self, parameter: ParameterKey<'_>) -> Result<usize> {
        match parameter {
            ParameterKey::Handle(handle)
                if handle.graph == self.graph && handle.index < self.parameters.len() =>
            {
                Ok(handle.index)
            }
            ParameterKey::Handle(_) => Err(Error::invalid("the parameter belongs to another graph")),
            ParameterKey::Name(name) => {
                let found = self.parameters.iter().position(|known| known.name == name);
                found.ok_or_else(|| {
                    let names: Vec<&str> = self.parameters.iter().map(|known| known.name.as_str()).collect();
                    Error::invalid(format!("no parameter `{name}`; the graph has: {}", names.join(", ")))
                })
            }
        }
    }

    fn set_value(&mut self, values: &[(usize, usize)], value: &Arg) -> Result<()> {
        let mut changes = Vec::new();
        for (node, argument) in values {
            // A removed node has no command.
            let Some(command_index) = self.command_indices.get(node).copied() else { continue };
            let Some(Command::Dispatch(dispatch)) = self.command(command_index) else { continue };
            let device = self.recording(command_index).map(|recording| recording.device().clone());
            let Some(device) = device else { continue };
            let binding = rebind(&device, &dispatch.pipeline, *argument, value)?;
            if let Binding::Memory(_) = binding {
                let place = place(dispatch.pipeline.signature(), *argument);
                return Err(Error::invalid(format!("{place}: the parameter is a value; given a buffer")));
            }
            changes.push((command_index, *argument, binding));
        }
        for (command_index, argument, binding) in changes {
            if let Some(Command::Dispatch(dispatch)) = self.command_mut(command_index) {
                dispatch.bindings[argument] = binding;
            }
        }
        Ok(())
    }

    fn set_buffer(&mut self, index: usize, new: &New) -> Result<()> {
        let Some(old) = self.replaced.get(&index).cloned() else { return Ok(()) };
        for slice in &old.slices {
            if let Some(Command::Dispatch(dispatch)) = self.command(slice.command_index) {
                new.check_launch(dispatch, slice, old.span.len)?;
            }
        }
        self.check_buffer(&old, new)?;
        for command_index in old.slices.iter().map(|slice| slice.command_index) {
            if let Some(Command::Dispatch(dispatch)) = self.command(command_index) {
                new.prepare(dispatch, &old)?;
            }
        }
        let to = &new.span;
        for slice in &old.slices {
            let range = self
                .command_mut(slice.command_index)
                .and_then(|c| slices_mut(c).into_iter().nth(slice.number));
            if let Some(range) = range {
                let memory = to.storage.block.memory.clone();
                (range.memory, range.offset) = (memory, to.offset + slice.offset);
            }
        }
        for (segment, part, at, covers) in &old.usages {
            if let Part::Run(recording) = &mut self.segments[*segment].parts[*part] {
                let usage = &mut recording.usages[*at];
                (usage.storage, usage.covers) = (to.storage.clone(), *covers && to.covers_storage());
            }
        }
        self.replaced.insert(index, Replaced { span: to.clone(), ..old });
        Ok(())
    }

    /// Records the uses of parameters' buffers, before any is replaced.
    pub(super) fn note_parameters(&mut self) {
        let buffers = self.parameters.iter().enumerate().filter_map(|(index, named)| match &named.subject {
            Subject::Buffer(storage) => Some((index, storage.clone())),
            Subject::Values(_) => None,
        });
        let noted: Vec<_> = buffers.map(|(index, storage)| (index, self.as_declared(storage))).collect();
        self.replaced.extend(noted);
    }

    /// The buffer with which the graph was built, and its uses.
    fn as_declared(&self, storage: Arc<Storage>) -> Replaced {
        let of = |usage: &Usage| identity(&usage.storage) == identity(&storage);
        let usages = self.usages().filter(|(_, usage)| of(usage));
        let usages = usages.map(|((s, p, at), usage)| (s, p, at, usage.covers)).collect();
        let memory = identity(&storage.block.memory);
        let mut slices = Vec::new();
        for (command_index, command) in self.commands() {
            let named = memory_effects(command).into_iter().enumerate();
            let of = named.filter(|(_, effect)| identity(&effect.slice.memory) == memory);
            slices.extend(of.map(|(number, effect)| Slice {
                command_index,
                number,
                offset: effect.slice.offset,
            }));
        }
        let span = Span { offset: 0, len: storage.block.bytes, storage };
        Replaced { span, slices, usages }
    }

    fn check_buffer(&self, old: &Replaced, new: &New) -> Result<()> {
        let (name, own) = (&new.name, &old.span);
        let own_device = &own.storage.device;
        own_device.expect_same(&new.span.storage.device, || format!("parameter `{name}`: the buffer is"))?;
        if new.span.storage.block.is_placeholder() {
            return Err(Error::invalid(format!(
                "parameter `{name}`: a transient is not a buffer of the program"
            )));
        }
        if new.span.len != own.len {
            let (given, expected) = (new.span.len, own.len);
            return Err(Error::invalid(format!(
                "parameter `{name}`: expected a buffer of {expected} bytes, given {given}"
            )));
        }
        let mine =
            |(s, p, at): (usize, usize, usize)| old.usages.iter().any(|u| (u.0, u.1, u.2) == (s, p, at));
        let written = self.usages().any(|(at, usage)| mine(at) && usage.access == Access::Write);
        if written && !new.writable {
            return Err(Error::invalid(format!(
                "parameter `{name}`: the graph writes it; pass the buffer as `&mut`"
            )));
        }
        let clash = |(at, usage): ((usize, usize, usize), &Usage)| {
            let same = identity(&usage.storage) == identity(&new.span.storage);
            same && !mine(at) && (written || usage.access == Access::Write)
        };
        if self.usages().any(clash) {
            return Err(Error::invalid(format!(
                "parameter `{name}`: the graph also uses this buffer otherwise, and one of the uses writes it"
            )));
        }
        Ok(())
    }

    /// All uses of memory: segment, part, index.
    fn usages(&self) -> impl Iterator<Item = ((usize, usize, usize), &Usage)> {
        let parts = self
            .segments
            .iter()
            .enumerate()
            .flat_map(|(s, segment)| segment.parts.iter().enumerate().map(move |(p, part)| (s, p, part)));
        parts.flat_map(|(s, p, part)| {
            let usages = if let Part::Run(recording) = part { &recording.usages[..] } else { &[] };
            usages.iter().enumerate().map(move |(at, usage)| ((s, p, at), usage))
        })
    }

    fn commands(&self) -> impl Iterator<Item = (CommandIndex, &Command)> {
        let parts = self.segments.iter().enumerate().flat_map(|(segment, parts)| {
            parts.parts.iter().enumerate().map(move |(part, run)| (segment, part, run))
        });
        parts.flat_map(|(segment, part, run)| {
            let commands = if let Part::Run(recording) = run { &recording.commands[..] } else { &[] };
            commands
                .iter()
                .enumerate()
                .map(move |(at, command)| (CommandIndex { segment, part, at }, command))
        })
    }

    fn recording(&self, command_index: CommandIndex) -> Option<&Recording> {
        match &self.segments[command_index.segment].parts[command_index.part] {
            Part::Run(recording) => Some(recording),
            _ => None,
        }
    }

    fn command(&self, command_index: CommandIndex) -> Option<&Command> {
        self.recording(command_index).map(|recording| &recording.commands[command_index.at])
    }

    fn command_mut(&mut self, command_index: CommandIndex) -> Option<&mut Command> {
        match &mut self.segments[command_index.segment].parts[command_index.part] {
            Part::Run(recording) => Some(&mut Arc::make_mut(&mut recording.commands)[command_index.at]),
            _ => None,
        }
    }
}

/// A replacement of a parameter's buffer.
struct New {
    name: String,
    span: Span,
    element: Element,
    writable: bool,
    /// Device of the graph's buffer.
    device: Device,
}

impl New {
    /// Prepares a launch of which it becomes an argument, in place of the current buffer.
    fn prepare(&self, dispatch: &Dispatch, old: &Replaced) -> Result<()> {
        let (memory, previous) = (&self.span.storage.block.memory, &old.span.storage.block.memory);
        if memory.len() == previous.len() {
            return Ok(());
        }
        let mut dispatch = dispatch.clone();
        for binding in &mut dispatch.bindings {
            if let Binding::Memory(slice) = binding
                && identity(&slice.memory) == identity(previous)
            {
                slice.memory = memory.clone();
            }
        }
        dispatch.prepare()
    }

    /// Validates it as the argument of a launch that uses a range of the current buffer.
    fn check_launch(&self, dispatch: &Dispatch, slice: &Slice, expected: u64) -> Result<()> {
        let bindings = dispatch.bindings.iter().enumerate();
        let mut ranges = bindings.filter_map(|(index, binding)| match binding {
            Binding::Memory(range) => Some((index, range)),
            _ => None,
        });
        let span = |len| {
            let offset = self.span.offset + slice.offset;
            Span { storage: self.span.storage.clone(), offset, len }
        };
        let Some((index, range)) = ranges.nth(slice.number) else {
            // Buffers accessed through an address cannot be parameters, so it is the counts' memory.
            return check_counts(
                &dispatch.pipeline.signature().name,
                &span(Grid::COUNTS_BYTES),
                self.element,
            );
        };
        if self.span.len != expected {
            let (place, given) = (place(dispatch.pipeline.signature(), index), self.span.len);
            return Err(Error::invalid(format!(
                "{place}: expected a buffer of {expected} bytes, given {given}"
            )));
        }
        let span = span(range.len);
        let value = Value::Memory { span, element: self.element, writable: self.writable };
        rebind(&self.device, &dispatch.pipeline, index, &Arg { value }).map(drop)
    }
}
