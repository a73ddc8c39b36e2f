//! Host code that is skipped: which errors of clang are those of a declaration, and kernels that clang could not read.

use super::ast::Node;
use super::names::is_function;
use super::program::Program;
use crate::opencl::text::{tokens, words};

/// An error of clang, with its offset in the text.
pub(super) type SyntaxError = (usize, String);

/// The errors in the text of a declaration.
pub(super) fn errors_in(node: &Node, errors: &[SyntaxError]) -> Vec<SyntaxError> {
    errors.iter().filter(|(at, _)| contains(node, *at)).cloned().collect()
}

/// Those in the text of a record, but for the functions in it.
pub(super) fn errors_of_record(node: &Node, errors: &[SyntaxError]) -> Vec<SyntaxError> {
    let is_code = |node: &&Node| is_function(&node.kind) || node.kind == "FunctionTemplateDecl";
    let functions: Vec<&Node> = node.children.iter().filter(is_code).collect();
    let is_inside = |at: usize| functions.iter().any(|function| contains(function, at));
    errors_in(node, errors).into_iter().filter(|(at, _)| !is_inside(*at)).collect()
}

fn contains(node: &Node, at: usize) -> bool {
    node.begin.is_some_and(|begin| begin <= at) && node.end.is_some_and(|end| at < end)
}

/// A kernel that the tree does not have.
pub(super) struct Unread {
    pub name: String,
    pub at: usize,
    pub message: String,
}

/// What `__global__` is in preprocessed text.
const GLOBAL: &str = "__attribute__((global))";

/// The kernels of the text that the tree does not have, because clang could not read their declarations.
pub(super) fn unread(unit: &Node, program: &Program<'_>, errors: &[SyntaxError]) -> Vec<Unread> {
    let mut read: Vec<&Node> = Vec::new();
    unit.walk(&mut |node| {
        if is_function(&node.kind) {
            read.push(node);
        }
    });
    let text = program.text.text.as_str();
    let mut unread = Vec::new();
    for (at, _) in text.match_indices(GLOBAL) {
        let behind = at + GLOBAL.len();
        if program.is_header_at(at) || read.iter().any(|node| contains(node, at)) {
            continue;
        }
        // The attribute may be before the declaration's type, where clang's range begins.
        let next = tokens(text, behind).next().map_or(behind, |(next, _)| next);
        if read.iter().any(|node| contains(node, next)) {
            continue;
        }
        let head = text[behind..].split(['{', ';']).next().unwrap_or("");
        let before = head.find('(').map_or(head, |open| &head[..open]);
        let name = words(before).last().unwrap_or("?").to_owned();
        let why = errors.iter().find(|(error, _)| *error >= at).map_or("", |(_, message)| message.as_str());
        let message = format!("kernel `{name}` cannot be read: {why}");
        unread.push(Unread { name, at: next, message });
    }
    unread
}
