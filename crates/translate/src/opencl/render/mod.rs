//! Writes MSL for the nodes of a tree.
//!
//! What is the same in both languages is copied from the source with its comments; what differs is written anew. Each piece has as many line
//! breaks as the text that it stands for.

mod declarations;
mod expressions;
mod functions;
mod gotos;
mod operators;
mod wide;

use std::collections::HashMap;

use super::ast::Node;
use super::helpers::Helpers;
use super::program::Program;
use super::report::Notes;
use super::text::{tokens, words};
use super::types::{self, Shape, Space, Type};

/// Writes MSL.
pub(super) struct Renderer<'a> {
    pub text: &'a str,
    pub program: &'a Program<'a>,
    pub helpers: Helpers,
    pub notes: Notes,
    /// What cannot be translated, with its offset.
    pub errors: Vec<(usize, String)>,
    /// Declarations that have another name here.
    renamed: HashMap<u64, String>,
    /// What is written around statements, or instead of them, because of `goto`.
    edits: HashMap<u64, gotos::Edit>,
}

impl<'a> Renderer<'a> {
    pub fn new(text: &'a str, program: &'a Program<'a>) -> Self {
        Self {
            text,
            program,
            helpers: Helpers::default(),
            notes: Notes::default(),
            errors: Vec::new(),
            renamed: HashMap::new(),
            edits: HashMap::new(),
        }
    }

    /// Records that a node cannot be translated.
    pub fn refuse(&mut self, node: &Node, message: impl Into<String>) -> String {
        self.errors.push((node.begin.unwrap_or(0), message.into()));
        String::new()
    }

    /// The source's text of a node.
    pub fn source(&self, node: &Node) -> &'a str {
        match (node.begin, node.end) {
            (Some(begin), Some(end)) => self.text.get(begin..end).unwrap_or(""),
            _ => "",
        }
    }

    /// The node's text, with that of its children written in MSL.
    pub fn splice(&mut self, node: &Node) -> String {
        let children: Vec<&Node> = node.children.iter().collect();
        self.splice_with(node, &children, Self::node)
    }

    /// The node's text, with that of `children` written by `write`.
    pub fn splice_with(
        &mut self,
        node: &Node,
        children: &[&Node],
        mut write: impl FnMut(&mut Self, &Node) -> String,
    ) -> String {
        let (Some(begin), Some(end)) = (node.begin, node.end) else { return String::new() };
        let mut placed: Vec<&Node> =
            children.iter().copied().filter(|child| child.begin.is_some() && child.end.is_some()).collect();
        placed.sort_by_key(|child| child.begin);
        let (mut out, mut at) = (String::new(), begin);
        for child in placed {
            let (Some(from), Some(to)) = (child.begin, child.end) else { continue };
            if from < at || to > end {
                return self.refuse(node, format!("{} is not supported here", node.kind));
            }
            out.push_str(&self.text[at..from]);
            let text = write(self, child);
            out.push_str(&text);
            at = to;
            if self.swallows(child) {
                let behind = self.statement_end(to);
                at = if behind <= end { behind } else { to };
            }
        }
        out.push_str(self.text.get(at..end).unwrap_or(""));
        out
    }

    /// A new text for a range of the source, with at least as many line breaks.
    pub fn fit(&self, from: usize, to: usize, mut new: String) -> String {
        let count = |text: &str| text.matches('\n').count();
        let missing = count(self.text.get(from..to).unwrap_or("")).saturating_sub(count(&new));
        new.push_str(&"\n".repeat(missing));
        new
    }

    /// White space and comments of a range of the source.
    pub fn blanks(&self, from: usize, to: usize) -> String {
        let text = self.text.get(..to).unwrap_or("");
        let (mut out, mut at) = (String::new(), from);
        for (begin, token) in tokens(text, from) {
            out.push_str(&text[at..begin]);
            at = begin + token.len();
        }
        out.push_str(text.get(at..).unwrap_or(""));
        out
    }

    /// A piece of source with the names that MSL does not allow replaced.
    pub fn rename_words(&self, text: &str) -> String {
        let (mut out, mut at) = (String::new(), 0);
        for (begin, token) in tokens(text, 0) {
            out.push_str(&text[at..begin]);
            at = begin + token.len();
            match words(token).next() {
                Some(word) if !token.starts_with(['"', '\'']) => out.push_str(&self.program.names.of(word)),
                _ => out.push_str(token),
            }
        }
        out.push_str(&text[at..]);
        out
    }

    /// The name in MSL of a type: a vector of 8 or 16 components is a struct.
    pub fn type_name(&mut self, name: &str) -> String {
        let shape = Shape::of(name);
        if shape.is_wide() {
            self.wide(shape);
            return shape.name();
        }
        match name {
            "uintptr_t" => return "ulong".into(),
            "intptr_t" => return "long".into(),
            // A copy has ended behind the next barrier.
            "event_t" => return "int".into(),
            _ => {}
        }
        let (tag, rest) = match name.split_once(' ') {
            Some((tag @ ("struct" | "union" | "enum"), rest)) => (format!("{tag} "), rest),
            _ => (String::new(), name),
        };
        let is_own = Shape::of(rest) == Shape::Other && !rest.contains(' ') && rest != "void";
        if is_own { format!("{tag}{}", self.program.names.of(rest)) } else { format!("{tag}{rest}") }
    }

    /// The type of a declaration or cast. A pointer whose typedef hides its address space is written without the typedef.
    pub fn parse_type(&self, node: &Node) -> Option<Type> {
        self.parse_types(&node.ty, &node.plain)
    }

    pub fn parse_types(&self, written: &str, plain: &str) -> Option<Type> {
        let mut found = types::parse(written)?;
        if let Some(to) = found.pointee()
            && to.qualifiers().space.is_none()
            && plain.contains("__")
            && let Some(plain) = types::parse(plain)
            && plain.pointee().is_some_and(|to| to.qualifiers().space.is_some_and(|s| s != Space::Private))
        {
            found = plain;
        }
        // Vectors and structs have no operators for volatile objects.
        if found.base_mut().0.is_volatile
            && let Some(mut plain) = types::parse(plain)
            && !matches!(Shape::of(plain.base_mut().1), Shape::Scalar(_))
            && plain.base_mut().1 != "void"
        {
            found.base_mut().0.is_volatile = false;
        }
        Some(found)
    }

    /// The declaration of a name with a type.
    pub fn declare(&mut self, of: &Type, name: &str) -> String {
        let mut base = of;
        while let Type::Pointer(_, inner) | Type::Array(inner, _) = base {
            base = inner;
        }
        let Type::Named(_, written) = base else { return String::new() };
        let renamed = self.type_name(written);
        of.declare(name, &|_| renamed.clone())
    }
}

/// The letter of a component.
pub(super) fn letter(index: u32) -> String {
    operators::letters(&[index])
}

pub(super) use expressions::{is_truth, strip};
pub(super) use operators::{direct_path, nested, wrap};
