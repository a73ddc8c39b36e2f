//! Macros that hide a grid barrier or a group of threads: those without parameters are expanded in kernels, before these are split.

use std::collections::HashMap;

use super::Function;
use super::statements::{is_group, is_of_barrier};
use super::tokens::{Kind, Text};

/// A macro that has such a word, perhaps by way of other macros.
pub(super) struct Macro {
    value: String,
    /// Whether an invocation has parentheses.
    is_function: bool,
    /// What it has: a grid barrier, or a group of threads.
    pub(super) what: &'static str,
    /// Why it is not expanded, if so.
    pub(super) refused: Option<&'static str>,
}

/// The macros of a text that have such words, by name.
pub(super) fn hidden(text: &Text<'_>) -> HashMap<String, Macro> {
    let mut all: HashMap<String, Macro> = HashMap::new();
    for (name, rest) in text.tokens.iter().filter_map(|token| definition(&text.text[token.at.clone()])) {
        let (is_function, parameters, value) =
            match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                Some((parameters, value)) => (true, parameters.trim(), value),
                None => (false, "", &*rest),
            };
        let refused = match () {
            () if !parameters.is_empty() => Some("has parameters"),
            () if all.contains_key(&name) => Some("has several definitions"),
            () if value.contains('#') => Some("has an operator of the preprocessor"),
            () => None,
        };
        // The words of all definitions count.
        let value = all.get(&name).map_or(String::new(), |other| format!("{} ", other.value)) + value;
        all.insert(name, Macro { value, is_function, what: "", refused });
    }
    let directives = text.tokens.iter().filter(|token| token.kind == Kind::Directive);
    for directive in directives.map(|token| &text.text[token.at.clone()]) {
        let undefined = directive.trim_start_matches('#').trim_start().strip_prefix("undef").map(str::trim);
        if let Some(found) = undefined.and_then(|name| all.get_mut(name)) {
            found.refused = Some("has several definitions");
        }
    }
    // Until nothing new is found: a macro may use another one.
    loop {
        let what = |value: &str| {
            let value = Text::of(value);
            let mut words = (0..value.tokens.len()).map(|at| value.word(at));
            words.find_map(|word| match word {
                word if is_of_barrier(word) => Some("grid barrier"),
                word if is_group(word) => Some("group of threads"),
                word => all.get(word).map(|other| other.what).filter(|what| !what.is_empty()),
            })
        };
        let unknown = all.iter().filter(|(_, found)| found.what.is_empty());
        let new: Vec<(String, &'static str)> =
            unknown.filter_map(|(name, found)| Some((name.clone(), what(&found.value)?))).collect();
        if new.is_empty() {
            break;
        }
        for (name, what) in new {
            all.entry(name).and_modify(|found| found.what = what);
        }
    }
    all.retain(|_, found| !found.what.is_empty());
    all
}

/// Name and the rest of a definition on one line.
fn definition(directive: &str) -> Option<(String, String)> {
    let rest = directive.strip_prefix('#')?.trim_start().strip_prefix("define")?;
    let rest = rest.strip_prefix(|c: char| c.is_ascii_whitespace())?.trim_start();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
    Some((name.to_owned(), rest.replace("\\\r\n", " ").replace("\\\n", " ")))
}

/// The text with macros expanded in its kernels.
pub(super) fn expanded(text: &Text<'_>, hidden: &HashMap<String, Macro>) -> String {
    let (mut out, mut end, mut at) = (String::new(), 0, 0);
    while at < text.tokens.len() {
        let Some(function) = Function::at(text, at) else {
            at += 1;
            continue;
        };
        at = function.body.start;
        while at < function.body.end {
            let next = match hidden.get(text.word(at)) {
                Some(found) if text.tokens[at].kind == Kind::Word => invocation(text, at, found),
                _ => None,
            };
            if let Some(next) = next {
                out.push_str(&text.text[end..text.tokens[at].at.start]);
                value(text.word(at), hidden, &mut Vec::new(), &mut out);
                end = text.tokens[next - 1].at.end;
            }
            at = next.unwrap_or(at + 1);
        }
    }
    out.push_str(&text.text[end..]);
    out
}

/// The token behind an invocation of a macro that is expanded.
fn invocation(text: &Text<'_>, at: usize, found: &Macro) -> Option<usize> {
    let has_parentheses = text.are(at + 1, &["(", ")"]);
    match found.refused {
        Some(_) => None,
        None if !found.is_function => Some(at + 1),
        None => has_parentheses.then_some(at + 3),
    }
}

/// Appends a macro's value, with the macros in it expanded; not within themselves.
fn value(name: &str, hidden: &HashMap<String, Macro>, open: &mut Vec<String>, out: &mut String) {
    let Some(found) = hidden.get(name) else { return };
    open.push(name.to_owned());
    let text = Text::of(&found.value);
    let (mut end, mut at) = (text.tokens.first().map_or(0, |token| token.at.start), 0);
    while let Some(token) = text.tokens.get(at) {
        out.push_str(&text.text[end..token.at.start]);
        let word = text.word(at);
        let inner = hidden.get(word).filter(|_| !open.iter().any(|name| name == word));
        match inner.and_then(|inner| invocation(&text, at, inner)) {
            Some(next) => {
                value(word, hidden, open, out);
                at = next;
            }
            None => {
                out.push_str(word);
                at += 1;
            }
        }
        end = text.tokens[at - 1].at.end;
    }
    open.pop();
}
