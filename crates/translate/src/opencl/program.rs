//! The declarations of a translation unit: functions, which call which, and what of a thread's position each needs.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::ast::Node;
use super::names::Names;

/// Position or size that a function takes as a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Position {
    GlobalId,
    LocalId,
    GroupId,
    GlobalSize,
    LocalSize,
    Groups,
}

impl Position {
    /// The functions of OpenCL C that need it.
    pub fn needed_by(function: &str) -> &'static [Self] {
        match function {
            "get_global_id" => &[Self::GlobalId],
            "get_local_id" => &[Self::LocalId],
            "get_group_id" => &[Self::GroupId],
            "get_global_size" => &[Self::GlobalSize],
            "get_local_size" => &[Self::LocalSize],
            "get_num_groups" => &[Self::Groups],
            "async_work_group_copy" | "async_work_group_strided_copy" => &[Self::LocalId, Self::LocalSize],
            _ => &[],
        }
    }

    /// Name of the parameter.
    pub fn word(self) -> &'static str {
        match self {
            Self::GlobalId => "global_id",
            Self::LocalId => "local_id",
            Self::GroupId => "group_id",
            Self::GlobalSize => "global_size",
            Self::LocalSize => "local_size",
            Self::Groups => "num_groups",
        }
    }

    /// Attribute of the kernel's parameter.
    pub fn attribute(self) -> &'static str {
        match self {
            Self::GlobalId => "thread_position_in_grid",
            Self::LocalId => "thread_position_in_threadgroup",
            Self::GroupId => "threadgroup_position_in_grid",
            Self::GlobalSize => "threads_per_grid",
            Self::LocalSize => "threads_per_threadgroup",
            Self::Groups => "threadgroups_per_grid",
        }
    }

    /// What the function returns for a dimension that does not exist.
    pub fn beyond(self) -> &'static str {
        match self {
            Self::GlobalId | Self::LocalId | Self::GroupId => "0",
            Self::GlobalSize | Self::LocalSize | Self::Groups => "1",
        }
    }
}

/// A function, by name and type: all its declarations.
#[derive(Debug, Default)]
pub(super) struct Function<'a> {
    pub definition: Option<&'a Node>,
    pub is_kernel: bool,
    /// The functions of the source that it calls, with a call's offset.
    pub calls: Vec<(usize, usize)>,
    pub needs: BTreeSet<Position>,
    /// Why it cannot be called.
    pub errors: Vec<(usize, String)>,
}

/// The declarations.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub functions: Vec<Function<'a>>,
    /// Functions by the identities of their declarations.
    by_id: HashMap<u64, usize>,
    pub names: Names,
}

impl<'a> Program<'a> {
    pub fn new(unit: &'a Node, words: HashSet<String>) -> Self {
        let own = |node: &&Node| node.begin.is_some() && !node.name.starts_with("__builtin_");
        let global = unit.children.iter().filter(own).map(|node| node.name.clone()).collect();
        let names = Names::new(words, global);
        let mut program = Self { functions: Vec::new(), by_id: HashMap::new(), names };
        let mut by_key: HashMap<(&str, &str), usize> = HashMap::new();
        for node in unit.children.iter().filter(own).filter(|node| node.kind == "FunctionDecl") {
            let index = *by_key.entry((&node.name, &node.plain)).or_insert_with(|| {
                program.functions.push(Function::default());
                program.functions.len() - 1
            });
            program.by_id.insert(node.id, index);
            let function = &mut program.functions[index];
            function.is_kernel |= node.has("OpenCLKernelAttr");
            if node.body().is_some() {
                function.definition = Some(node);
            }
        }
        program.find_calls();
        program.spread_needs();
        program.find_recursion();
        program
    }

    /// The function of the source that a declaration belongs to.
    pub fn function(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    fn find_calls(&mut self) {
        for index in 0..self.functions.len() {
            let Some(body) = self.functions[index].definition.and_then(Node::body) else { continue };
            let (mut calls, mut needs) = (Vec::new(), BTreeSet::new());
            body.walk(&mut |node| {
                let Some(found) = node.refers.as_ref().filter(|found| found.kind == "FunctionDecl") else {
                    return;
                };
                match self.by_id.get(&found.id) {
                    Some(callee) => calls.push((*callee, node.begin.unwrap_or(0))),
                    None => needs.extend(Position::needed_by(&found.name)),
                }
            });
            let function = &mut self.functions[index];
            (function.calls, function.needs) = (calls, needs);
        }
    }

    /// A function needs what those that it calls need.
    fn spread_needs(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for index in 0..self.functions.len() {
                let mut needs = self.functions[index].needs.clone();
                for (callee, _) in &self.functions[index].calls {
                    needs.extend(&self.functions[*callee].needs);
                }
                if needs.len() > self.functions[index].needs.len() {
                    self.functions[index].needs = needs;
                    changed = true;
                }
            }
        }
    }

    /// Marks the functions on cycles of calls, and calls of kernels.
    fn find_recursion(&mut self) {
        for index in 0..self.functions.len() {
            let mut errors = Vec::new();
            for (callee, at) in &self.functions[index].calls {
                let name = self.functions[*callee].definition.map_or("", |node| &node.name);
                if *callee == index || self.reaches(*callee, index) {
                    errors.push((
                        *at,
                        format!("recursion: `{name}` calls itself, which OpenCL C and Metal do not allow"),
                    ));
                } else if self.functions[*callee].is_kernel {
                    errors.push((*at, format!("`{name}` is a kernel, and a kernel cannot be called in Metal; move its body to a function")));
                }
            }
            self.functions[index].errors = errors;
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut seen, mut open) = (HashSet::from([from]), vec![from]);
        while let Some(index) = open.pop() {
            for (callee, _) in &self.functions[index].calls {
                if *callee == to {
                    return true;
                }
                if seen.insert(*callee) {
                    open.push(*callee);
                }
            }
        }
        false
    }

    /// A function and all that it calls.
    pub fn closure(&self, of: usize) -> BTreeSet<usize> {
        let (mut seen, mut open) = (BTreeSet::from([of]), vec![of]);
        while let Some(index) = open.pop() {
            for (callee, _) in &self.functions[index].calls {
                if seen.insert(*callee) {
                    open.push(*callee);
                }
            }
        }
        seen
    }
}
