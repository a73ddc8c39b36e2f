//! Parameters: values and buffers that runs of a plan replace.
//!
//! What is to change is declared before the graph is planned, so that nothing is taken for the same that may come to differ.

use std::sync::Arc;

use elinvar_driver::{Binding, Command, Error, Result};

use super::placeholder::Placeholder;
use super::step::Work;
use super::{Graph, Node};
use crate::Buffer;
use crate::memory::operands::place;
use crate::memory::usage::Storage;

/// A value or buffer that each run of a [`crate::Plan`] may have another of; see [`Graph::value`] and [`Graph::buffer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    pub(super) graph: u64,
    pub(super) index: usize,
}

/// A parameter, by its name or as it was declared.
#[derive(Clone, Copy, Debug)]
pub enum ParameterKey<'a> {
    /// By its name.
    Name(&'a str),
    /// As it was declared.
    Handle(Parameter),
}

impl<'a> From<&'a str> for ParameterKey<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl From<Parameter> for ParameterKey<'_> {
    fn from(parameter: Parameter) -> Self {
        Self::Handle(parameter)
    }
}

/// A parameter as it was declared.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) subject: Subject,
}

/// What a parameter replaces.
#[derive(Clone)]
pub(super) enum Subject {
    /// These arguments: nodes and positions.
    Values(Vec<(usize, usize)>),
    /// This buffer, wherever it is used.
    Buffer(Arc<Storage>),
}

impl Graph {
    /// Declare an argument of a launch that is given by value as a parameter: [`crate::Plan::set`] replaces it. A name that is
    /// declared again stands for all these arguments.
    ///
    /// # Errors
    /// `InvalidArgument` for a node that is no launch or has no such argument, one that is no value, or the name of a
    /// buffer.
    pub fn value(&mut self, name: &str, node: Node, argument: usize) -> Result<Parameter> {
        let node = self.index(node)?;
        let Work::Command(Command::Dispatch(dispatch)) = &self.steps[node].work else {
            let of = &self.steps[node].name;
            return Err(Error::invalid(format!(
                "graph: parameter `{name}`: `{of}` (node {node}) is no launch"
            )));
        };
        let signature = dispatch.pipeline.signature();
        match dispatch.bindings.get(argument) {
            Some(Binding::Bytes(_)) => {}
            Some(_) => {
                let place = place(signature, argument);
                return Err(Error::invalid(format!(
                    "graph: parameter `{name}`: {place}: it is not given by value"
                )));
            }
            None => {
                let (kernel, count) = (&signature.name, dispatch.bindings.len());
                return Err(Error::invalid(format!(
                    "graph: parameter `{name}`: kernel `{kernel}` has {count} arguments, and none at {argument}"
                )));
            }
        }
        let index = match self.parameters.iter().position(|known| known.name == name) {
            Some(index) => index,
            None => {
                self.parameters.push(Named { name: name.into(), subject: Subject::Values(Vec::new()) });
                self.parameters.len() - 1
            }
        };
        let Subject::Values(values) = &mut self.parameters[index].subject else {
            return Err(Error::invalid(format!("graph: parameter `{name}` is a buffer already")));
        };
        values.push((node, argument));
        Ok(Parameter { graph: self.id, index })
    }

    /// Declare a buffer as a parameter: [`crate::Plan::set`] puts another one in its place wherever nodes use it.
    ///
    /// # Errors
    /// `InvalidArgument` for a transient, or a name that is declared already. [`Graph::plan`] refuses a buffer that a
    /// launch reaches through an address.
    pub fn buffer<T>(&mut self, name: &str, buffer: &Buffer<T>) -> Result<Parameter> {
        let storage = &buffer.span.storage;
        if Placeholder::graph_of(&storage.block.memory).is_some() {
            return Err(Error::invalid(format!(
                "graph: parameter `{name}`: a transient is not a buffer of the program"
            )));
        }
        if self.parameters.iter().any(|known| known.name == name) {
            return Err(Error::invalid(format!("graph: parameter `{name}` is declared already")));
        }
        self.parameters.push(Named { name: name.into(), subject: Subject::Buffer(storage.clone()) });
        Ok(Parameter { graph: self.id, index: self.parameters.len() - 1 })
    }
}
