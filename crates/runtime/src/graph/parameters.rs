//! Parameters: values and buffers that can be replaced between runs of a plan.
//!
//! Parameters are declared before planning, so that the optimization does not rely on their values.

use std::sync::Arc;

use elinvar_driver::{Binding, Command, Error, Result};

use super::node::Work;
use super::placeholder::Placeholder;
use super::{Graph, Node};
use crate::Buffer;
use crate::memory::operands::place;
use crate::memory::usage::Storage;

/// A value or buffer that can be replaced between runs of a [`crate::Plan`]; see [`Graph::value`] and [`Graph::buffer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    pub(super) graph: u64,
    pub(super) index: usize,
}

/// Identifies a parameter.
#[derive(Clone, Copy, Debug)]
pub enum ParameterKey<'a> {
    /// By name.
    Name(&'a str),
    /// By handle.
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

/// A declared parameter.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) subject: Subject,
}

/// The subject of a parameter.
#[derive(Clone)]
pub(super) enum Subject {
    /// Arguments: nodes and indices.
    Values(Vec<(usize, usize)>),
    /// All uses of this buffer.
    Buffer(Arc<Storage>),
}

impl Graph {
    /// Declares argument `argument` (from 0) of a launch, which was passed by value, as a parameter: [`crate::Plan::set`]
    /// replaces it. A name that is declared repeatedly stands for all these arguments.
    ///
    /// # Errors
    /// `InvalidArgument` for a node that is not a launch or has no such argument, an argument that is not passed by value, or the
    /// name of a buffer parameter.
    pub fn value(&mut self, name: &str, node: Node, argument: usize) -> Result<Parameter> {
        let node = self.index(node)?;
        let Work::Command(Command::Dispatch(dispatch)) = &self.nodes[node].work else {
            let of = &self.nodes[node].name;
            return Err(Error::invalid(format!(
                "graph: parameter `{name}`: `{of}` (node {node}) is not a launch"
            )));
        };
        let signature = dispatch.pipeline.signature();
        match dispatch.bindings.get(argument) {
            Some(Binding::Bytes(_)) => {}
            Some(_) => {
                let place = place(signature, argument);
                return Err(Error::invalid(format!(
                    "graph: parameter `{name}`: {place}: not passed by value"
                )));
            }
            None => {
                let (kernel, count) = (&signature.name, dispatch.bindings.len());
                return Err(Error::invalid(format!(
                    "graph: parameter `{name}`: no argument {argument}: kernel `{kernel}` has {count} arguments"
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
            return Err(Error::invalid(format!("graph: parameter `{name}` is already declared as a buffer")));
        };
        values.push((node, argument));
        Ok(Parameter { graph: self.id, index })
    }

    /// Declares a buffer as a parameter: [`crate::Plan::set`] replaces all its uses in the graph.
    ///
    /// # Errors
    /// `InvalidArgument` for a transient, or a name that is already declared. [`Graph::plan`] rejects a buffer that a launch
    /// accesses through an address.
    pub fn buffer<T>(&mut self, name: &str, buffer: &Buffer<T>) -> Result<Parameter> {
        let storage = &buffer.span.storage;
        if Placeholder::graph_of(&storage.block.memory).is_some() {
            return Err(Error::invalid(format!(
                "graph: parameter `{name}`: a transient is not a buffer of the program"
            )));
        }
        if self.parameters.iter().any(|known| known.name == name) {
            return Err(Error::invalid(format!("graph: parameter `{name}` is already declared")));
        }
        self.parameters.push(Named { name: name.into(), subject: Subject::Buffer(storage.clone()) });
        Ok(Parameter { graph: self.id, index: self.parameters.len() - 1 })
    }
}
