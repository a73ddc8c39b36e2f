//! Statements of a kernel's body, as a tree of token ranges.

use std::ops::Range;

use super::Refusal;
use super::tokens::{Kind, Text};
use crate::headers::MAKE_GROUPS;

#[derive(Debug)]
pub(super) struct Statement {
    /// Its tokens.
    pub(super) range: Range<usize>,
    pub(super) form: Form,
}

#[derive(Debug)]
pub(super) enum Form {
    /// A declaration or an expression, up to its semicolon.
    Simple,
    Barrier,
    Block(Vec<Statement>),
    If {
        condition: Range<usize>,
        then: Box<Statement>,
        otherwise: Option<Box<Statement>>,
    },
    Loop(Loop),
    Switch,
    Break,
    Continue,
}

#[derive(Debug)]
pub(super) struct Loop {
    pub(super) init: Option<Box<Statement>>,
    /// Empty for none.
    pub(super) condition: Range<usize>,
    pub(super) step: Range<usize>,
    pub(super) body: Box<Statement>,
    /// Whether the condition is tested behind the body.
    pub(super) is_do: bool,
}

impl Statement {
    pub(super) fn has_barrier(&self) -> bool {
        match &self.form {
            Form::Barrier => true,
            Form::Block(all) => all.iter().any(Self::has_barrier),
            Form::If { then, otherwise, .. } => {
                then.has_barrier() || otherwise.as_ref().is_some_and(|otherwise| otherwise.has_barrier())
            }
            Form::Loop(of) => of.body.has_barrier(),
            Form::Simple | Form::Switch | Form::Break | Form::Continue => false,
        }
    }

    /// Whether it has a barrier, or leaves a loop around it.
    pub(super) fn is_split(&self) -> bool {
        match &self.form {
            Form::Break | Form::Continue => true,
            Form::Block(all) => all.iter().any(Self::is_split),
            Form::If { then, otherwise, .. } => {
                then.is_split() || otherwise.as_ref().is_some_and(|otherwise| otherwise.is_split())
            }
            _ => self.has_barrier(),
        }
    }
}

const BARRIER: [&str; 7] = ["elinvar", ":", ":", "grid_barrier", "(", ")", ";"];
const SYNC: [&str; 11] = ["elinvar", ":", ":", "this_grid", "(", ")", ".", "sync", "(", ")", ";"];

/// Whether a word is of a grid barrier.
pub(super) fn is_of_barrier(word: &str) -> bool {
    matches!(word, "grid_barrier" | "this_grid")
}

/// Whether a word makes a group of threads.
pub(super) fn is_group(word: &str) -> bool {
    MAKE_GROUPS.contains(&word)
}

/// Reads the statement that begins at a token.
pub(super) fn statement(text: &Text<'_>, first: usize) -> Result<Statement, Refusal> {
    let unclosed = || Refusal::new(first, "a bracket is not closed");
    let parenthesized = |open: usize| -> Result<(Range<usize>, usize), Refusal> {
        if text.word(open) != "(" {
            return Err(Refusal::new(first, "a statement that the driver cannot read"));
        }
        let behind = text.behind(open).ok_or_else(unclosed)?;
        Ok((open + 1..behind - 1, behind))
    };
    let made = |form, end| Ok(Statement { range: first..end, form });
    if text.tokens.get(first).is_none_or(|token| token.kind == Kind::Directive) {
        return Err(Refusal::new(first, "a directive of the preprocessor in the kernel"));
    }
    match text.word(first) {
        "{" => {
            let end = text.behind(first).ok_or_else(unclosed)?;
            let (mut all, mut next) = (Vec::new(), first + 1);
            while next + 1 < end {
                let one = statement(text, next)?;
                next = one.range.end;
                all.push(one);
            }
            made(Form::Block(all), end)
        }
        "if" => {
            let (condition, behind) = parenthesized(first + 1)?;
            let then = Box::new(statement(text, behind)?);
            let mut end = then.range.end;
            let otherwise = match text.word(end) {
                "else" => Some(Box::new(statement(text, end + 1)?)),
                _ => None,
            };
            end = otherwise.as_ref().map_or(end, |otherwise| otherwise.range.end);
            made(Form::If { condition, then, otherwise }, end)
        }
        "for" => {
            let (head, behind) = parenthesized(first + 1)?;
            let body = Box::new(statement(text, behind)?);
            let end = body.range.end;
            if !head.clone().any(|at| text.word(at) == ";") {
                return match body.has_barrier() {
                    true => Err(Refusal::new(first, "a loop over a range")),
                    // Its text stays as it is.
                    false => made(Form::Switch, end),
                };
            }
            let init = statement(text, head.start)?;
            let semicolon = init.range.end;
            let mut next = semicolon;
            while next < head.end && text.word(next) != ";" {
                next = if matches!(text.word(next), "(" | "[" | "{") {
                    text.behind(next).ok_or_else(unclosed)?
                } else {
                    next + 1
                };
            }
            if semicolon > head.end || next >= head.end {
                return Err(Refusal::new(first, "a loop that the driver cannot read"));
            }
            let (condition, step) = (semicolon..next, next + 1..head.end);
            let init = (init.range.len() > 1).then(|| Box::new(init));
            made(Form::Loop(Loop { init, condition, step, body, is_do: false }), end)
        }
        "while" => {
            let (condition, behind) = parenthesized(first + 1)?;
            let body = Box::new(statement(text, behind)?);
            let end = body.range.end;
            made(Form::Loop(Loop { init: None, condition, step: 0..0, body, is_do: false }), end)
        }
        "do" => {
            let body = Box::new(statement(text, first + 1)?);
            let end = body.range.end;
            if text.word(end) != "while" {
                return Err(Refusal::new(first, "a loop that the driver cannot read"));
            }
            let (condition, behind) = parenthesized(end + 1)?;
            made(Form::Loop(Loop { init: None, condition, step: 0..0, body, is_do: true }), behind + 1)
        }
        "switch" => {
            let (_, behind) = parenthesized(first + 1)?;
            let end = text.behind(behind).filter(|_| text.word(behind) == "{").ok_or_else(unclosed)?;
            let words = (first..end).map(|at| text.word(at));
            match words.clone().any(|word| is_of_barrier(word) || word == "continue") {
                true => Err(Refusal::new(first, "a grid barrier or `continue` in a switch")),
                false => made(Form::Switch, end),
            }
        }
        "break" => made(Form::Break, first + 2),
        "continue" => made(Form::Continue, first + 2),
        "else" | "case" | "default" | "goto" | "try" => {
            Err(Refusal::new(first, "a statement that the driver cannot read"))
        }
        _ if text.are(first, &BARRIER) => made(Form::Barrier, first + BARRIER.len()),
        _ if text.are(first, &SYNC) => made(Form::Barrier, first + SYNC.len()),
        _ => {
            let mut next = first;
            while text.word(next) != ";" {
                if next >= text.tokens.len() || matches!(text.word(next), "}" | ")" | "]") {
                    return Err(unclosed());
                }
                if is_of_barrier(text.word(next)) {
                    return Err(Refusal::new(
                        next,
                        "a grid barrier that is no statement of its own, or another function of `this_grid`",
                    ));
                }
                next = match text.word(next) {
                    "(" | "[" | "{" => {
                        let behind = text.behind(next).ok_or_else(unclosed)?;
                        if let Some(at) = (next..behind).find(|at| is_of_barrier(text.word(*at))) {
                            return Err(Refusal::new(at, "a grid barrier within an expression"));
                        }
                        behind
                    }
                    _ => next + 1,
                };
            }
            made(Form::Simple, next + 1)
        }
    }
}
